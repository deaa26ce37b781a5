// Authorizations that a person is in the middle of: known by their state, to whoever began them, once, for a while, at any vault proxy over one storage.
//
//   L1  A state is used up by the first who shows it and began it; to anybody else it is the same as one that never was.
//   L2  What belongs to it (the code's verifier, a client's secret) rests sealed like a credential, and ends with it. The record's name holds hashes of state and
//       owner alone: who reads names finishes nothing.
//   L3  It is used once: it is written over before it is used, by a step that only one of two can win, at whatever proxies.

import { createHash, randomBytes } from "node:crypto";
import { z } from "zod";
import { Passing } from "../passing.ts";
import type { RecordKey, VaultStore } from "../store.ts";

const LIFE_MS = 10 * 60_000;
const OPEN_MAX = 1_000;
const OPEN_OF_ONE_MAX = 20;
const STATE_BYTES = 32;
const OWNER_CHARS = 20;
/** When it ends, in seconds, and what nobody can guess. */
const STATE = /^([0-9a-z]{1,9})\.([0-9A-Za-z_-]{43})$/;

const Kept = z.strictObject({ owner: z.string(), flow: z.unknown() });

export class Flows<T> {
  readonly #store: VaultStore;
  readonly #records: Passing;
  readonly #schema: z.ZodType<T>;
  readonly #now: () => number;

  constructor(store: VaultStore, schema: z.ZodType<T>, now: () => number = Date.now) {
    this.#store = store;
    this.#records = new Passing(store, "authorization", now);
    this.#schema = schema;
    this.#now = now;
  }

  /** A fresh state and its end; it names nothing until `keep`. */
  mint(): { readonly state: string; readonly expiresAt: number } {
    const endsAtS = Math.ceil((this.#now() + LIFE_MS) / 1000);
    return { state: `${endsAtS.toString(36)}.${randomBytes(STATE_BYTES).toString("base64url")}`, expiresAt: endsAtS * 1000 };
  }

  /** False: too many are open. One owner's oldest makes room for his newest. Throws the storage's trouble. */
  async keep(state: string, owner: string, flow: T): Promise<boolean> {
    const key = this.#keyOf(state, owner);
    if (key === null) throw new Error("the state was not minted here");
    const open = await this.#records.list();
    const own = open.filter(({ name }) => name.startsWith(`${hashOf(owner).slice(0, OWNER_CHARS)}_`));
    const oldest = own.length >= OPEN_OF_ONE_MAX ? own[0] : undefined;
    if (oldest !== undefined) await this.#store.remove(oldest.key);
    else if (open.length >= OPEN_MAX) return false;
    await this.#store.put(key, { owner, flow }, 0);
    return true;
  }

  /** Throws the storage's trouble. L1 L3 */
  async take(state: string, owner: string): Promise<T | null> {
    const key = this.#keyOf(state, owner);
    const found = key && (await this.#store.get(key));
    if (!key || !found) return null;
    const kept = Kept.parse(found.body);
    const isUsed = kept.flow === null;
    if (isUsed || kept.owner !== owner) return null;
    if ((await this.#store.put(key, { owner, flow: null }, found.revision)) === "changed") return null;
    await this.#store.remove(key);
    return this.#schema.parse(kept.flow);
  }

  /** Null: it has ended, or is none. L2 */
  #keyOf(state: string, owner: string): RecordKey | null {
    const [, end, secret] = STATE.exec(state) ?? [];
    if (end === undefined || secret === undefined) return null;
    const endsAtMs = Number.parseInt(end, 36) * 1000;
    // An end that was written over is another record's, which is nowhere; one beyond every life is not even looked for.
    if (endsAtMs <= this.#now() || endsAtMs > this.#now() + 2 * LIFE_MS) return null;
    return this.#records.keyOf(endsAtMs, `${hashOf(owner).slice(0, OWNER_CHARS)}_${hashOf(secret)}`);
  }
}

const hashOf = (text: string): string => createHash("sha256").update(text).digest("hex");
