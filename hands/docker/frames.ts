// Frames between the hand host and the runner in a container: four bytes of length, then JSON.
//
//   F1  A frame may be cut anywhere by what carries it; a length over the limit breaks the line for good, because what follows can't be trusted.

const FRAME_BYTES_MAX = 64 * 1024 * 1024;
const LENGTH_BYTES = 4;

export function frame(value: unknown): Buffer {
  const body = Buffer.from(JSON.stringify(value), "utf8");
  if (body.length > FRAME_BYTES_MAX) throw new RangeError(`a frame of ${body.length} bytes is over the limit`);
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32BE(body.length);
  return Buffer.concat([length, body]);
}

export class FrameReader {
  readonly #heard: (value: unknown) => void;
  #chunks: Buffer[] = [];
  #held = 0;

  constructor(heard: (value: unknown) => void) {
    this.#heard = heard;
  }

  /** Throws for what can't be a frame. F1 */
  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#held += chunk.length;
    while (this.#held >= LENGTH_BYTES) {
      const length = this.#peekLength();
      if (length > FRAME_BYTES_MAX) throw new RangeError("a frame is over the limit");
      if (this.#held < LENGTH_BYTES + length) return;
      const all = Buffer.concat(this.#chunks);
      const end = LENGTH_BYTES + length;
      this.#chunks = all.length > end ? [all.subarray(end)] : [];
      this.#held = all.length - end;
      this.#heard(JSON.parse(all.toString("utf8", LENGTH_BYTES, end)));
    }
  }

  #peekLength(): number {
    const first = this.#chunks[0];
    if (first !== undefined && first.length >= LENGTH_BYTES) return first.readUInt32BE(0);
    this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0]?.readUInt32BE(0) ?? 0;
  }
}
