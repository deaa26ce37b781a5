// Vaults: made, listed, changed, archived, deleted; and the one way to read and change a vault's record.
//
//   P1  An idempotency key is given its id before the vault is made, by a step that only one of two can win: on every proxy that shares the storage,
//       and after a crash, the same key finds the same vault.
//   P2  A retried create without a key, whose first answer never got out, gets that one's vault. This proxy remembers it for REMEMBER_MS; what it
//       remembers is a keyed hash.

import { createHmac, randomBytes } from "node:crypto";
import { z } from "zod";
import { type Opened, RECORD_BYTES_MAX, type RecordKey, type VaultStore } from "../store.ts";
import { purgedAuth } from "./auth.ts";
import type { ApiCall } from "./call.ts";
import { canonical, cursorOf, digestOf, type List, Metadata, MetadataPatch, mintOrdered, patched, readCursor, timeOf } from "./fields.ts";
import { StoredVault, wireOfVault } from "./record.ts";
import { busy, conflict, invalid, noSuchVault } from "./refusal.ts";

const WRITE_TRIES_MAX = 10;
const READS_AT_ONCE = 25;
const REMEMBER_MS = 60_000;
const REMEMBERED_MAX = 10_000;
const LIST = "vaults";

const display_name = z.string().min(1).max(255);
export const VaultCreate = z.strictObject({ display_name, metadata: Metadata.nullish() });
export const VaultUpdate = z.strictObject({ display_name: display_name.nullish(), metadata: MetadataPatch.nullish() });
const CHECKED_MAX = 50;
export const VaultCheck = z.strictObject({ vault_ids: z.array(z.string().max(200)).max(CHECKED_MAX) });

const Made = z.strictObject({ id: z.string(), digest: z.string() });

/** Which create a request is: its id, and the marks by which a repetition of it is known. */
export interface Creation {
  readonly id: string;
  readonly at: number;
  readonly key: string | null;
  readonly digest: string;
}

export class Vaults {
  readonly #store: VaultStore;
  /** What the store gave, as the schema reads it: it may give the same again. */
  readonly #read = new WeakMap<Opened, { readonly vault: StoredVault; readonly revision: number }>();
  readonly #unanswered = new Map<string, { id: string; until: number }>();
  /** P2 */
  readonly #secret = randomBytes(32);

  constructor(store: VaultStore) {
    this.#store = store;
  }

  async create(call: ApiCall, given: z.infer<typeof VaultCreate>, body: unknown): Promise<unknown> {
    const { workspace } = call.caller;
    const creation = this.identify(call, "vlt", body);
    const { key, digest } = creation;
    const id = key === null ? creation.id : await this.#claim(workspace, key, { id: creation.id, digest });
    const at = timeOf(id);
    const vault: StoredVault = {
      display_name: given.display_name,
      metadata: given.metadata ?? {},
      createdAt: at,
      updatedAt: at,
      archivedAt: null,
      origin: { key, digest },
      credentials: [],
    };
    const written = await this.#store.put(at0(workspace, id), vault, 0);
    // An earlier try of this request made it.
    return wireOfVault(id, written === "changed" ? (await this.read(workspace, id)).vault : vault);
  }

  async retrieve(call: ApiCall): Promise<unknown> {
    const id = call.id("vault");
    return wireOfVault(id, (await this.read(call.caller.workspace, id)).vault);
  }

  async list(call: ApiCall, query: List): Promise<unknown> {
    const { workspace } = call.caller;
    const before = query.page === undefined ? null : readCursor(LIST, query.page);
    const ids = [...(await this.#store.ids(workspace, "vault"))].reverse().filter((id) => before === null || id < before);
    const found: { id: string; vault: StoredVault }[] = [];
    for (let at = 0; at < ids.length && found.length <= query.limit; at += READS_AT_ONCE) {
      const read = await Promise.all(ids.slice(at, at + READS_AT_ONCE).map(async (id) => ({ id, vault: await this.#find(workspace, id) })));
      for (const { id, vault } of read)
        if (vault && (query.include_archived || vault.vault.archivedAt === null)) found.push({ id, vault: vault.vault });
    }
    const page = found.slice(0, query.limit);
    const last = page.at(-1);
    return {
      data: page.map(({ id, vault }) => wireOfVault(id, vault)),
      next_page: last && found.length > page.length ? cursorOf(LIST, last.id) : null,
    };
  }

  async update(call: ApiCall, given: z.infer<typeof VaultUpdate>): Promise<unknown> {
    const id = call.id("vault");
    const { vault } = await this.change(call.caller.workspace, id, (before) => {
      refuseArchived(before);
      return {
        ...before,
        display_name: given.display_name ?? before.display_name,
        metadata: patched(before.metadata, given.metadata),
        updatedAt: later(before),
      };
    });
    return wireOfVault(id, vault);
  }

  /** Archives what is inside as well, and purges every secret of it. */
  async archive(call: ApiCall): Promise<unknown> {
    const id = call.id("vault");
    const { vault } = await this.change(call.caller.workspace, id, (before) => {
      if (before.archivedAt !== null) return null;
      const at = later(before);
      const credentials = before.credentials.map((each) =>
        each.archivedAt === null ? { ...each, archivedAt: at, updatedAt: at, auth: purgedAuth(each.auth) } : each,
      );
      return { ...before, archivedAt: at, updatedAt: at, credentials };
    });
    return wireOfVault(id, vault);
  }

  async remove(call: ApiCall): Promise<unknown> {
    const id = call.id("vault");
    const { workspace } = call.caller;
    const { vault } = await this.read(workspace, id);
    await this.#store.remove(at0(workspace, id));
    // A crash before this leaves a key that names a vault which is gone: a create with it makes that vault anew.
    if (vault.origin.key !== null) await this.#store.remove({ workspace, kind: "create", id: vault.origin.key });
    return { id, type: "vault_deleted" };
  }

  /** Which of a session's vaults it can't have. */
  async check(call: ApiCall, ids: readonly string[]): Promise<unknown> {
    const { workspace } = call.caller;
    const read = await Promise.all(ids.map(async (id) => ({ id, found: isVaultId(id) ? await this.#find(workspace, id) : null })));
    return {
      unknown: read.filter(({ found }) => found === null).map(({ id }) => id),
      archived: read.filter(({ found }) => found !== null && found.vault.archivedAt !== null).map(({ id }) => id),
    };
  }

  async read(workspace: string, id: string): Promise<{ readonly vault: StoredVault; readonly revision: number }> {
    const found = await this.#find(workspace, id);
    if (!found) throw noSuchVault();
    return found;
  }

  /** Reads, changes, writes; again where another write came between. `change` gives null for "as it is". */
  async change(workspace: string, id: string, change: (before: StoredVault) => StoredVault | null): Promise<{ readonly vault: StoredVault }> {
    for (let tries = 0; tries < WRITE_TRIES_MAX; tries += 1) {
      const { vault: before, revision } = await this.read(workspace, id);
      const vault = change(before);
      if (!vault) return { vault: before };
      if (Buffer.byteLength(JSON.stringify(vault)) > RECORD_BYTES_MAX)
        throw invalid(`The vault is full: with this it would be over ${RECORD_BYTES_MAX} bytes. Delete archived credentials, or use another vault.`);
      if ((await this.#store.put(at0(workspace, id), vault, revision)) !== "changed") return { vault };
    }
    throw busy();
  }

  /** P1 P2 */
  identify(call: ApiCall, prefix: string, body: unknown): Creation {
    const { caller, path, key, retries } = call;
    const digest = digestOf(canonical(body));
    const fresh = mintOrdered(prefix);
    if (key !== null) return { ...fresh, key: digestOf(caller.principal, path, key), digest };
    const name = createHmac("sha256", this.#secret)
      .update(JSON.stringify([caller.principal, path, digest]))
      .digest("base64url");
    const known = retries > 0 ? this.#unanswered.get(name) : undefined;
    const id = known !== undefined && known.until > Date.now() ? known.id : fresh.id;
    this.#remember(name, id);
    call.onAnswered(() => {
      if (this.#unanswered.get(name)?.id === id) this.#unanswered.delete(name);
    });
    return { id, at: timeOf(id), key: null, digest };
  }

  /** The id that this key's create has, whoever came first. P1 */
  async #claim(workspace: string, key: string, made: z.infer<typeof Made>): Promise<string> {
    const at: RecordKey = { workspace, kind: "create", id: key };
    for (let tries = 0; tries < WRITE_TRIES_MAX; tries += 1) {
      const found = await this.#store.get(at);
      if (found) {
        const before = Made.parse(found.body);
        if (before.digest !== made.digest) throw conflict("This idempotency key was used with another body.");
        return before.id;
      }
      if ((await this.#store.put(at, made, 0)) !== "changed") return made.id;
    }
    throw busy();
  }

  #remember(name: string, id: string): void {
    this.#unanswered.delete(name);
    this.#unanswered.set(name, { id, until: Date.now() + REMEMBER_MS });
    for (const [oldest, { until }] of this.#unanswered) {
      if (this.#unanswered.size <= REMEMBERED_MAX && until > Date.now()) break;
      this.#unanswered.delete(oldest);
    }
  }

  async #find(workspace: string, id: string): Promise<{ readonly vault: StoredVault; readonly revision: number } | null> {
    const found = await this.#store.get(at0(workspace, id));
    if (!found) return null;
    const known = this.#read.get(found);
    if (known) return known;
    const read = { vault: StoredVault.parse(found.body), revision: found.revision };
    this.#read.set(found, read);
    return read;
  }
}

const at0 = (workspace: string, id: string): RecordKey => ({ workspace, kind: "vault", id });
const isVaultId = (id: string): boolean => /^vlt_[0-9A-Za-z]{1,64}$/.test(id);

/** A time that is not before the last one. */
export const later = ({ updatedAt }: { readonly updatedAt: number }): number => Math.max(Date.now(), updatedAt);

export function refuseArchived(vault: StoredVault): void {
  if (vault.archivedAt !== null) throw invalid("The vault is archived and can't be changed.");
}
