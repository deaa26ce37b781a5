// A file that may be replaced while we run: read again when it has changed, so that keys rotate without a restart.

import { readFileSync, statSync } from "node:fs";

/** How long a look at a file that can be used stays good; a rotation takes effect within this time. */
const LOOK_MS = 1_000;

/** What a file holds, as `parse` reads it. Null while the file is absent or `parse` refuses it; `complain` hears why, once for each state. */
export class WatchedFile<T> {
  readonly #path: string;
  readonly #parse: (text: string, mode: number) => T;
  readonly #complain: (reason: string) => void;
  #value: T | null = null;
  #stamp = "";
  #complaint = "";
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(path: string, parse: (text: string, mode: number) => T, complain: (reason: string) => void) {
    this.#path = path;
    this.#parse = parse;
    this.#complain = complain;
  }

  /** The value now. The file is looked at once a second at most; at once with `fresh`, or while there is no value. */
  read(fresh = false): T | null {
    const now = performance.now();
    if (fresh || this.#value === null || now - this.#lookedAt >= LOOK_MS) {
      this.#lookedAt = now;
      this.#look();
    }
    return this.#value;
  }

  #look(): void {
    try {
      const found = statSync(this.#path);
      const stamp = `${found.ino} ${found.mtimeMs} ${found.size} ${found.mode}`;
      if (stamp === this.#stamp) return;
      this.#value = this.#parse(readFileSync(this.#path, "utf8"), found.mode);
      this.#stamp = stamp;
      this.#complaint = "";
    } catch (error) {
      this.#value = null;
      this.#stamp = "";
      const reason = reasonOf(error);
      if (reason !== this.#complaint) this.#complain(reason);
      this.#complaint = reason;
    }
  }
}

/** A parser's own words, or the system's code: never what the file holds. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return "unreadable";
  return "code" in error && typeof error.code === "string" ? error.code : error.message;
}
