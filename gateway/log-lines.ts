// Where a program's log lines go: what comes within a moment leaves in one write, because a write costs more than the line.
//
//   G1  Lines leave in the order in which they came. From `warn` on nothing waits, and nothing that came before.
//   G2  A line waits LINGER_MS at most; a process that ends by itself has written all of them. What is killed may lose the last moment's.

import { symbols } from "pino";

const LINGER_MS = 5;
/** So much does not wait. */
const HELD_CHARS_MAX = 65_536;
const WARN = 40;

export class LogLines {
  readonly #write: (text: string) => void;
  #held = "";
  #timer: NodeJS.Timeout | null = null;
  /** By this the logger knows that it is to say the level of each line (`lastLevel`). */
  readonly [symbols.needsMetadataGsym] = true;
  lastLevel = 0;

  constructor(write: (text: string) => void) {
    this.#write = write;
    process.on("exit", () => this.#flush());
  }

  write(line: string): void {
    this.#held += line;
    if (this.lastLevel >= WARN || this.#held.length > HELD_CHARS_MAX) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), LINGER_MS);
  }

  #flush(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#held === "") return;
    const text = this.#held;
    this.#held = "";
    this.#write(text);
  }
}
