// What a server sends without measure is an error of its own, by which its request, or its connection, ends.

import { ANSWER_BYTES_MAX, FLOOD_MS, MESSAGES_MAX } from "./limits.ts";

export class TooMuch extends Error {
  override readonly name = "TooMuch";
}

export const tooManyBytes = (): TooMuch => new TooMuch(`it sent more than ${ANSWER_BYTES_MAX} bytes in one answer`);
export const tooManyMessages = (): TooMuch => new TooMuch(`it sent more than ${MESSAGES_MAX} messages in ${FLOOD_MS} ms that nobody asked for`);

/** The words of a `TooMuch` in those of another error: the official transport hands on no more than them. */
export const tooMuchIn = (text: string): string | null =>
  /it sent more than \d+ (?:bytes in one answer|messages in \d+ ms that nobody asked for)/.exec(text)?.[0] ?? null;

/** Counts what comes; forgets it every FLOOD_MS. */
export class Flood {
  readonly #max: number;
  #from = performance.now();
  #count = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** True once there is more than may be. */
  isOver(more = 1): boolean {
    const now = performance.now();
    if (now - this.#from >= FLOOD_MS) {
      this.#from = now;
      this.#count = 0;
    }
    this.#count += more;
    return this.#count > this.#max;
  }
}
