// Authorizations that a person is in the middle of: known by their state, to whoever began them, once, for a while.
//
//   L1  A state is used up by the first who shows it and began it; to anybody else it is the same as one that never was.
//   L2  What belongs to it (the code's verifier, a client's secret) lives in this memory alone and ends with it.

import { randomBytes } from "node:crypto";

const LIFE_MS = 10 * 60_000;
const OPEN_MAX = 1_000;
const OPEN_OF_ONE_MAX = 20;
const STATE_BYTES = 32;

interface Kept<T> {
  readonly owner: string;
  readonly expiresAt: number;
  readonly flow: T;
}

export class Flows<T> {
  readonly #kept = new Map<string, Kept<T>>();
  readonly #now: () => number;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  /** A fresh state; it names nothing until `keep`. */
  static mint(): string {
    return randomBytes(STATE_BYTES).toString("base64url");
  }

  /** When it ends; null: too many are open. One owner's oldest makes room for his newest. */
  keep(state: string, owner: string, flow: T): number | null {
    this.#forgetOld();
    const own = [...this.#kept].filter(([, each]) => each.owner === owner);
    const [oldest] = own;
    if (own.length >= OPEN_OF_ONE_MAX && oldest !== undefined) this.#kept.delete(oldest[0]);
    if (this.#kept.size >= OPEN_MAX) return null;
    const expiresAt = this.#now() + LIFE_MS;
    this.#kept.set(state, { owner, expiresAt, flow });
    return expiresAt;
  }

  /** L1 */
  take(state: string, owner: string): T | null {
    this.#forgetOld();
    const found = this.#kept.get(state);
    if (found === undefined || found.owner !== owner) return null;
    this.#kept.delete(state);
    return found.flow;
  }

  #forgetOld(): void {
    for (const [state, { expiresAt }] of this.#kept) {
      if (expiresAt > this.#now()) break; // Kept in the order of their ends.
      this.#kept.delete(state);
    }
  }
}
