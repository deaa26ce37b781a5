// Secrets that exist for one run and may be in one place each. All of them begin with the same letters, the anchor, so that a search of gigabytes looks
// for one word in every spelling, and tells afterwards whose it was. What is planted has an anchor of its own: of a piece it is known which it is of.
//
//   K1  A canary is as long as every other one, and holds what encoders change: letters of both cases, digits, and `/ + = % ~ .`.
//   K2  A planted canary is worth nothing: it is there to be found. Which one was found says where it was planted, and in which spelling.

import { randomBytes } from "node:crypto";

const LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ";
const ANCHOR_CHARS = 14;
const NAME_CHARS = 6;
const TAIL_CHARS = 12;

function randomLetters(count: number): string {
  return [...randomBytes(count)].map((byte) => LETTERS[byte % LETTERS.length]).join("");
}

/** With letters of both cases at fixed places, so that no spelling of it is another one. */
const newAnchor = (): string => `q${randomLetters(ANCHOR_CHARS - 3)}Zk`;

export class Canaries {
  readonly anchor = newAnchor();
  readonly plantAnchor = newAnchor();
  readonly #byName = new Map<string, string>();

  /** The secret of this name; made when it is asked for first. K1 */
  of(name: string): string {
    const known = this.#byName.get(name);
    if (known !== undefined) return known;
    const number = String(this.#byName.size).padStart(NAME_CHARS, "0");
    const made = `${isPlant(name) ? this.plantAnchor : this.anchor}${number}/+${randomLetters(TAIL_CHARS)}.~%=`;
    this.#byName.set(name, made);
    return made;
  }

  /** As much of a secret as no other one begins with: letters and digits, which few encoders change. */
  beginningOf(secret: string): string {
    return secret.slice(0, ANCHOR_CHARS + NAME_CHARS);
  }

  get all(): ReadonlyMap<string, string> {
    return this.#byName;
  }
}

const PLANT = "planted";

/** The name of what is planted on a surface in an encoding. K2 */
export const plantName = (surface: string, encoding: string): string => `${PLANT}: ${surface}: ${encoding}`;
export const isPlant = (name: string): boolean => name.startsWith(`${PLANT}: `);
