// What is hidden of each credential in what comes back: the tokens that were sent lately, also on a stream that began before the newest of them.
//
//   H1  A stream that is open hides tokens that were sent after it began: a server may say on one what it heard on another.

import { Scrubber } from "./scrub.ts";

const CREDENTIALS_MAX = 1_000;
/** Of one credential: as many as a long stream may see renewed in an hour. */
const TOKENS_MAX = 8;

export class Mask {
  #tokens: readonly string[] = [];
  #scrubber = new Scrubber();

  hide(token: string): void {
    if (this.#tokens.at(-1) === token) return;
    this.#tokens = [...this.#tokens.filter((each) => each !== token), token].slice(-TOKENS_MAX);
    this.#scrubber = new Scrubber(...this.#tokens);
  }

  readonly header = (value: string): string => this.#scrubber.header(value);

  whole(bytes: Buffer): Buffer {
    return this.#scrubber.whole(bytes);
  }

  /** Starts a body. H1 */
  body(): { push(piece: Buffer): Buffer; end(): Buffer } {
    let scrubber = this.#scrubber;
    let body = scrubber.body();
    return {
      push: (piece) => {
        if (scrubber === this.#scrubber) return body.push(piece);
        const held = body.end();
        scrubber = this.#scrubber;
        body = scrubber.body();
        return body.push(Buffer.concat([held, piece]));
      },
      end: () => body.end(),
    };
  }
}

/** By credential. The one that was used longest ago leaves first. */
export class Masks {
  readonly #masks = new Map<string, Mask>();

  /** The credential's mask, which hides this token as well. */
  of(credential: string, token: string): Mask {
    const mask = this.#masks.get(credential) ?? new Mask();
    mask.hide(token);
    this.#masks.delete(credential);
    this.#masks.set(credential, mask);
    const oldest = this.#masks.keys().next();
    if (this.#masks.size > CREDENTIALS_MAX && !oldest.done) this.#masks.delete(oldest.value);
    return mask;
  }
}
