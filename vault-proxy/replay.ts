// A request's body on its way: passed as it comes, its beginning kept so that a short one can be sent once more.
//
//   P1  At most KEPT_BYTES_MAX are kept, and only until the answer is known. A longer body can't be sent again.
//   P2  Whoever waits for a body hears of its caller's leaving, also of one that happened before.

import type { IncomingMessage } from "node:http";

const KEPT_BYTES_MAX = 256 * 1024;
const SHORT_BYTES_MAX = 65_536;

export class TooLarge extends Error {
  override readonly name = "TooLarge";
}

export class Replay {
  readonly #req: IncomingMessage;
  readonly #bytesMax: number;
  #kept: Buffer[] | null;
  bytes = 0;

  /** `mayRepeat`: false keeps nothing. */
  constructor(req: IncomingMessage, bytesMax: number, mayRepeat: boolean) {
    this.#req = req;
    this.#bytesMax = bytesMax;
    this.#kept = mayRepeat ? [] : null;
  }

  /** A body that says that it is short, whole; null: it goes as it comes. P2 */
  short(): Promise<Buffer> | null {
    const req = this.#req;
    if (!(Number(req.headers["content-length"] ?? Number.NaN) <= SHORT_BYTES_MAX)) return null;
    return new Promise((resolve, reject) => {
      const left = () => reject(new Error("the caller left"));
      // A request that is over says so no more.
      if (req.destroyed) return left();
      const pieces: Buffer[] = [];
      req
        .on("data", (piece: Buffer) => pieces.push(piece))
        .once("end", () => {
          const [first, second] = pieces;
          const whole = first && !second ? first : Buffer.concat(pieces);
          this.bytes = whole.length;
          if (this.#kept !== null) this.#kept = [whole];
          resolve(whole);
        })
        .once("error", reject)
        .once("close", left);
    });
  }

  /** For the first sending. */
  async *first(): AsyncGenerator<Buffer> {
    for await (const piece of this.#pieces()) yield piece;
  }

  /** The whole body, for one more sending; null: it was too long to be kept. P1 */
  async again(): Promise<Buffer | null> {
    for await (const _ of this.#pieces()) if (this.#kept === null) return null;
    return this.#kept === null ? null : Buffer.concat(this.#kept);
  }

  /** It will not be sent again. */
  forget(): void {
    this.#kept = null;
  }

  async *#pieces(): AsyncGenerator<Buffer> {
    if (this.#req.readableEnded) return;
    // The request itself stays whole when its reader leaves: the answer goes back over the same connection.
    for await (const piece of this.#req.iterator({ destroyOnReturn: false })) {
      this.bytes += piece.length;
      if (this.bytes > this.#bytesMax) throw new TooLarge();
      if (this.#kept !== null && this.bytes <= KEPT_BYTES_MAX) this.#kept.push(piece);
      else this.#kept = null;
      yield piece;
    }
  }
}
