// Records that pass: each counts until a time that stands in its id, so that one list tells which of them still do, and none has to be read for it.
//
//   Z1  An id is the end, in seconds and of one length, and a name: ids sort by their ends.
//   Z2  Whoever lists removes what is over, a while after its end: another proxy's clock may be behind ours. So they never pile up.

import { OWN_WORKSPACE, type RecordKey, type RecordKind, StoreTrouble, type VaultStore } from "./store.ts";

const DIGITS = 11;
const ID = /^(\d{11})_([0-9A-Za-z_]{1,116})$/;
/** How far clocks may lie apart. Z2 */
const OVER_MS = 60_000;
/** By one list; the next one goes on. Z2 */
const REMOVED_MAX = 200;
const AT_ONCE = 8;

/** One that still counts. */
export interface PassingRecord {
  readonly key: RecordKey;
  readonly endsAtMs: number;
  readonly name: string;
}

export class Passing {
  readonly #store: VaultStore;
  readonly #kind: RecordKind;
  readonly #now: () => number;

  constructor(store: VaultStore, kind: RecordKind, now: () => number = Date.now) {
    this.#store = store;
    this.#kind = kind;
    this.#now = now;
  }

  /** Where a record lies; the end is rounded up to a second. `name` is of letters, digits and underscores. Z1 */
  keyOf(endsAtMs: number, name: string): RecordKey {
    return { workspace: OWN_WORKSPACE, kind: this.#kind, id: `${String(Math.ceil(endsAtMs / 1000)).padStart(DIGITS, "0")}_${name}` };
  }

  /** What has not ended, in the order of its ends. Throws the storage's trouble. Z1 Z2 */
  async list(): Promise<readonly PassingRecord[]> {
    const now = this.#now();
    const found = (await this.#store.ids(OWN_WORKSPACE, this.#kind)).flatMap((id) => recordOf({ workspace: OWN_WORKSPACE, kind: this.#kind, id }));
    const over = found.filter(({ endsAtMs }) => endsAtMs + OVER_MS <= now).slice(0, REMOVED_MAX);
    await Promise.all(Array.from({ length: AT_ONCE }, (_, lane) => this.#remove(over.filter((_each, index) => index % AT_ONCE === lane))));
    return found.filter(({ endsAtMs }) => endsAtMs > now);
  }

  async #remove(records: readonly PassingRecord[]): Promise<void> {
    try {
      for (const { key } of records) await this.#store.remove(key);
    } catch (error) {
      // It is over all the same, and the next list tries again.
      if (!(error instanceof StoreTrouble)) throw error;
    }
  }
}

/** Whom a grant is for, in the characters of a record's name: `sesn_…` as it is, and `hand:a-b` as `hand_aDb`, since hands are in lower case. */
export const nameOf = (session: string): string => session.replaceAll("-", "D").replace(":", "_");
export const sessionOf = (name: string): string => (name.startsWith("hand_") ? `hand:${name.slice(5).replaceAll("D", "-")}` : name);

/** None: an id that is not of ours. */
function recordOf(key: RecordKey): readonly PassingRecord[] {
  const [, end, name] = ID.exec(key.id) ?? [];
  return end === undefined || name === undefined ? [] : [{ key, name, endsAtMs: Number(end) * 1000 }];
}
