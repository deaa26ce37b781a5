// Many needles in one pass (Wu and Manber): a table says for every pair of bytes how far the window may jump, which is nearly the shortest needle's length
// almost everywhere. Gigabytes of memory are searched in seconds.

const PAIRS = 65_536;

export class Finder<T extends { readonly bytes: Buffer }> {
  readonly #window: number;
  readonly #jumps = new Uint8Array(PAIRS);
  /** By the pair that ends the window. */
  readonly #ending = new Map<number, T[]>();

  constructor(needles: readonly T[]) {
    this.#window = Math.min(...needles.map(({ bytes }) => bytes.length), 255);
    if (!(this.#window > 1)) throw new Error("a needle is too short to look for");
    this.#jumps.fill(this.#window - 1);
    for (const needle of needles)
      for (let at = 1; at < this.#window; at += 1) {
        const pair = needle.bytes.readUInt16BE(at - 1);
        const left = this.#window - 1 - at;
        this.#jumps[pair] = Math.min(this.#jumps[pair] ?? 0, left);
        if (left === 0) this.#ending.set(pair, [...(this.#ending.get(pair) ?? []), needle]);
      }
  }

  /** Calls `hear` with every needle and every place where it stands. */
  find(bytes: Buffer, hear: (needle: T, at: number) => void): void {
    const jumps = this.#jumps;
    const last = this.#window - 1;
    for (let at = last; at < bytes.length; ) {
      const pair = ((bytes[at - 1] as number) << 8) | (bytes[at] as number);
      const jump = jumps[pair] as number;
      if (jump > 0) {
        at += jump;
        continue;
      }
      const from = at - last;
      for (const needle of this.#ending.get(pair) ?? []) {
        const to = from + needle.bytes.length;
        if (to <= bytes.length && bytes.compare(needle.bytes, 0, needle.bytes.length, from, to) === 0) hear(needle, from);
      }
      at += 1;
    }
  }
}
