// Which sessions' grants are revoked, as every vault proxy over one storage knows it.
//
//   K1  A revocation counts here at once, and is answered for when it lies in the storage: it survives a restart. While it can't be stored it counts here,
//       and is tried again with every look.
//   K2  Other proxies look every LOOK_MS: what was revoked at one is refused at all of them, and what is open of it is cut, within that time and one list.
//       A check of a grant asks this process's memory alone.
//   K3  A proxy takes its first request after its first look, or after FIRST_MS of trying. While the storage can't be read, what is known stays known; no
//       credential of a vault can be used meanwhile, since each use reads its vault.
//   K4  A revocation is kept for as long as a grant can live, and then removed.

import type { Logger } from "pino";
import type { Grants } from "./grant.ts";
import { nameOf, Passing, sessionOf } from "./passing.ts";
import { StoreTrouble, type VaultStore } from "./store.ts";

const LOOK_MS = 2_000;
/** With a storage that is ours alone there is nothing to hear, only to tidy up. */
const TIDY_MS = 60_000;
const FIRST_MS = 5_000;
/** Stored again by one look. */
const AGAIN_MAX = 100;

export interface RevocationOptions {
  readonly store: VaultStore;
  readonly grants: Grants;
  /** Cuts what is open of a session. */
  readonly cut: (session: string) => void;
  readonly log: Logger;
  readonly lookMs?: number;
}

export class Revocations {
  readonly #options: RevocationOptions;
  readonly #records: Passing;
  readonly #lookMs: number;
  /** Ids of records that were acted on. */
  #heard: ReadonlySet<string> = new Set();
  /** Session → when its last grant has ended; what could not be stored yet. K1 */
  readonly #unstored = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> = Promise.resolve();
  #isTroubled = false;
  #isClosed = false;

  constructor(options: RevocationOptions) {
    this.#options = options;
    this.#records = new Passing(options.store, "revocation");
    this.#lookMs = options.lookMs ?? (options.store.driver === "server" ? LOOK_MS : TIDY_MS);
  }

  /** The first look. K3 */
  async start(): Promise<void> {
    this.#looking = this.#look();
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, FIRST_MS);
    });
    await Promise.race([this.#looking, late]);
    clearTimeout(timer);
  }

  /** `full`: it does not count, too many do. `unstored`: it counts here, and elsewhere as soon as the storage takes it. K1 */
  async add(session: string): Promise<"kept" | "full" | "unstored"> {
    const { grants, cut } = this.#options;
    const endsAtMs = grants.revoke(session);
    if (endsAtMs === null) return "full";
    cut(session);
    this.#unstored.set(session, endsAtMs);
    try {
      await this.#store(session, endsAtMs);
      return "kept";
    } catch (error) {
      this.#troubled(error);
      return "unstored";
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#looking;
  }

  async #store(session: string, endsAtMs: number): Promise<void> {
    // One that lies there already says the same.
    await this.#options.store.put(this.#records.keyOf(endsAtMs, nameOf(session)), { session }, 0);
    if (this.#unstored.get(session) === endsAtMs) this.#unstored.delete(session);
  }

  async #look(): Promise<void> {
    try {
      for (const [session, endsAtMs] of [...this.#unstored].slice(0, AGAIN_MAX)) {
        if (endsAtMs > Date.now()) await this.#store(session, endsAtMs);
        else this.#unstored.delete(session);
      }
      this.#hear(await this.#records.list());
      if (this.#isTroubled) this.#options.log.info({}, "revocations.read");
      this.#isTroubled = false;
    } catch (error) {
      this.#troubled(error);
    }
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => {
      this.#looking = this.#look();
    }, this.#lookMs);
    this.#timer.unref();
  }

  /** K2 */
  #hear(records: Awaited<ReturnType<Passing["list"]>>): void {
    const { grants, cut, log } = this.#options;
    const heard = new Set<string>();
    for (const { key, name, endsAtMs } of records) {
      if (!this.#heard.has(key.id)) {
        const session = sessionOf(name);
        if (grants.revoke(session, endsAtMs) === null) {
          log.error({ records: records.length }, "revocations.full");
          break;
        }
        cut(session);
      }
      heard.add(key.id);
    }
    this.#heard = heard;
  }

  /** Said once for each time that the storage is away. */
  #troubled(error: unknown): void {
    if (!(error instanceof StoreTrouble)) throw error;
    if (!this.#isTroubled) this.#options.log.warn({ reason: error.reason, detail: error.detail }, "revocations.unread");
    this.#isTroubled = true;
  }
}
