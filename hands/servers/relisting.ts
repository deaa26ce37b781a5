// When a list is read again: a server may say that its tools changed as often as it likes, and is asked at most once in RELIST_MS, also after its last word.

const RELIST_MS = 1_000;

export class Relisting {
  readonly #read: () => void;
  #timer: NodeJS.Timeout | undefined;
  #at = Number.NEGATIVE_INFINITY;

  constructor(read: () => void) {
    this.#read = read;
  }

  changed(): void {
    if (this.#timer !== undefined) return;
    const waitMs = this.#at + RELIST_MS - performance.now();
    if (waitMs <= 0) this.#now();
    else this.#timer = setTimeout(() => this.#now(), waitMs).unref();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #now(): void {
    this.#timer = undefined;
    this.#at = performance.now();
    this.#read();
  }
}
