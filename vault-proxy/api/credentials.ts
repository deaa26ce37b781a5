// Credentials: made, listed, changed, archived, deleted; each is a part of its vault's record.

import { z } from "zod";
import { changedAuth, keyOf, madeAuth, purgedAuth, type UrlRule } from "./auth.ts";
import { AuthCreate, AuthUpdate } from "./auth-schema.ts";
import type { ApiCall } from "./call.ts";
import { cursorOf, type List, Metadata, MetadataPatch, patched, readCursor } from "./fields.ts";
import { holderOf, type StoredCredential, type StoredVault, wireOfCredential } from "./record.ts";
import { conflict, invalid, noSuchCredential } from "./refusal.ts";
import { later, refuseArchived, type Vaults } from "./vaults.ts";

export const ACTIVE_MAX = 20;
const LIST = "credentials";

const display_name = z.string().max(255).nullish();
export const CredentialCreate = z.strictObject({ display_name, metadata: Metadata.nullish(), auth: AuthCreate });
export const CredentialUpdate = z.strictObject({ display_name, metadata: MetadataPatch.nullish(), auth: AuthUpdate.nullish() });

export class Credentials {
  readonly #vaults: Vaults;
  readonly #rule: UrlRule;

  constructor(vaults: Vaults, rule: UrlRule) {
    this.#vaults = vaults;
    this.#rule = rule;
  }

  async create(call: ApiCall, given: z.infer<typeof CredentialCreate>, body: unknown): Promise<unknown> {
    const vaultId = call.id("vault");
    const { id, at, key, digest } = this.#vaults.identify(call, "vcrd", body);
    const auth = madeAuth(given.auth, this.#rule);
    const isSame = (each: StoredCredential) => each.id === id || (key !== null && each.origin.key === key);
    const { vault } = await this.#vaults.change(call.caller.workspace, vaultId, (before) => {
      const known = before.credentials.find(isSame);
      if (known && known.origin.digest !== digest) throw conflict("This idempotency key was used with another body.");
      if (known) return null;
      refuseArchived(before);
      refuseTaken(before, auth);
      if (before.credentials.filter((each) => each.archivedAt === null).length >= ACTIVE_MAX)
        throw invalid(`A vault holds at most ${ACTIVE_MAX} active credentials.`);
      const credential: StoredCredential = {
        id,
        display_name: given.display_name || null,
        metadata: given.metadata ?? {},
        createdAt: at,
        updatedAt: at,
        archivedAt: null,
        origin: { key, digest },
        auth,
      };
      return { ...before, credentials: [...before.credentials, credential] };
    });
    const made = vault.credentials.find(isSame);
    if (!made) throw new Error("a credential that was made is not in its vault");
    return wireOfCredential(vaultId, made);
  }

  async retrieve(call: ApiCall): Promise<unknown> {
    const { vault } = await this.#vaults.read(call.caller.workspace, call.id("vault"));
    return wireOfCredential(call.id("vault"), find(vault, call.id("credential")));
  }

  async list(call: ApiCall, query: List): Promise<unknown> {
    const vaultId = call.id("vault");
    const name = `${LIST} ${vaultId}`;
    const before = query.page === undefined ? null : readCursor(name, query.page);
    const { vault } = await this.#vaults.read(call.caller.workspace, vaultId);
    const found = vault.credentials
      .filter((each) => (query.include_archived || each.archivedAt === null) && (before === null || each.id < before))
      .sort((one, other) => (one.id < other.id ? 1 : -1));
    const page = found.slice(0, query.limit);
    const last = page.at(-1);
    return {
      data: page.map((each) => wireOfCredential(vaultId, each)),
      next_page: last && found.length > page.length ? cursorOf(name, last.id) : null,
    };
  }

  async update(call: ApiCall, given: z.infer<typeof CredentialUpdate>): Promise<unknown> {
    return this.#changeOne(call, (before, vault) => {
      refuseArchived(vault);
      if (before.archivedAt !== null) throw invalid("The credential is archived and can't be changed.");
      return {
        ...before,
        display_name: given.display_name === undefined ? before.display_name : given.display_name || null,
        metadata: patched(before.metadata, given.metadata),
        auth: given.auth ? changedAuth(before.auth, given.auth) : before.auth,
        updatedAt: later(before),
      };
    });
  }

  async archive(call: ApiCall): Promise<unknown> {
    return this.#changeOne(call, (before) => {
      if (before.archivedAt !== null) return before;
      const at = later(before);
      return { ...before, archivedAt: at, updatedAt: at, auth: purgedAuth(before.auth) };
    });
  }

  async remove(call: ApiCall): Promise<unknown> {
    const id = call.id("credential");
    await this.#vaults.change(call.caller.workspace, call.id("vault"), (before) => {
      find(before, id);
      return { ...before, credentials: before.credentials.filter((each) => each.id !== id) };
    });
    return { id, type: "vault_credential_deleted" };
  }

  async #changeOne(call: ApiCall, change: (before: StoredCredential, vault: StoredVault) => StoredCredential): Promise<unknown> {
    const [vaultId, id] = [call.id("vault"), call.id("credential")];
    const { vault } = await this.#vaults.change(call.caller.workspace, vaultId, (before) => {
      const old = find(before, id);
      const fresh = change(old, before);
      return fresh === old ? null : { ...before, credentials: before.credentials.map((each) => (each.id === id ? fresh : each)) };
    });
    return wireOfCredential(vaultId, find(vault, id));
  }
}

function find(vault: StoredVault, id: string): StoredCredential {
  const found = vault.credentials.find((each) => each.id === id);
  if (!found) throw noSuchCredential();
  return found;
}

function refuseTaken(vault: StoredVault, auth: StoredCredential["auth"]): void {
  if (!holderOf(vault, auth)) return;
  const what = keyOf(auth).startsWith("name ")
    ? "auth.secret_name: an active credential of this vault has this name"
    : "auth.mcp_server_url: an active credential of this vault is for this server";
  throw conflict(what);
}
