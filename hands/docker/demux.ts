// The engine's stream of an exec: its output and its errors, each piece behind a header.
//
//   Every piece, headers included, may be cut anywhere by the connection; nothing is lost or added by that.

const HEADER_BYTES = 8;
const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;

/** Takes the engine's stream apart: each piece has a header of stream number and length, and either may be cut anywhere. */
export class Demux {
  readonly #stdout: (chunk: Buffer) => void;
  readonly #stderr: (chunk: Buffer) => void;
  #header: Buffer = Buffer.alloc(0);
  #stream = 0;
  #left = 0;

  constructor(stdout: (chunk: Buffer) => void, stderr: (chunk: Buffer) => void) {
    this.#stdout = stdout;
    this.#stderr = stderr;
  }

  /** Throws a RangeError for what has no header. */
  push(chunk: Buffer): void {
    for (let rest = chunk; rest.length > 0; ) {
      if (this.#left === 0) {
        const missing = HEADER_BYTES - this.#header.length;
        this.#header = Buffer.concat([this.#header, rest.subarray(0, missing)]);
        rest = rest.subarray(missing);
        if (this.#header.length < HEADER_BYTES) return;
        this.#stream = this.#header.readUInt8(0);
        this.#left = this.#header.readUInt32BE(4);
        const isHeader = this.#stream <= STDERR && this.#header.readUIntBE(1, 3) === 0;
        if (!isHeader) {
          this.#stderr(Buffer.concat([this.#header, rest]));
          throw new RangeError("no stream header");
        }
        this.#header = Buffer.alloc(0);
        continue;
      }
      const piece = rest.subarray(0, this.#left);
      this.#left -= piece.length;
      rest = rest.subarray(piece.length);
      if (this.#stream === STDOUT || this.#stream === STDIN) this.#stdout(piece);
      else this.#stderr(piece);
    }
  }
}
