// The ids that name things in a log, and how they are made.
//
//   N1  An id is a prefix and an opaque suffix of letters and digits; the suffix of a session is the suffix of its primary thread, that of an
//       outcome the suffix of the event that defined it.
//   N2  Ids made from a key (idempotency) are a hash of it: the same key gives the same ids on every node.

import { createHash, randomFillSync } from "node:crypto";

export type SessionId = string & { readonly brand: "SessionId" };
export type EventId = string & { readonly brand: "EventId" };
/** What a bell can be for that is no session: `<noun>_<id>`. */
export type Topic = string & { readonly brand: "Topic" };
export type Position = number & { readonly brand: "Position" };
export type Fence = number & { readonly brand: "Fence" };

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz";
const SUFFIX_CHARS = 24;
/** Random bytes are drawn for this many ids at once: one draw costs as much as a hundred. */
const DRAWN_IDS = 128;

const drawn = Buffer.alloc(DRAWN_IDS * SUFFIX_CHARS);
let used = drawn.length;

/** A fresh id: `sevt_` + 24 characters (about 136 bits). */
export function mint(prefix: string): string {
  if (used === drawn.length) {
    randomFillSync(drawn);
    used = 0;
  }
  used += SUFFIX_CHARS;
  return `${prefix}_${spell(drawn.subarray(used - SUFFIX_CHARS, used))}`;
}

/** The id that a key stands for: the same on every node, for as long as the key is the same. N2 */
export function mintFrom(prefix: string, ...key: readonly (string | number)[]): string {
  return `${prefix}_${spell(createHash("sha256").update(JSON.stringify(key)).digest().subarray(0, SUFFIX_CHARS))}`;
}

export const mintSession = (): SessionId => mint("sesn") as SessionId;
export const mintEvent = (): EventId => mint("sevt") as EventId;

/** The primary thread of a session. N1 */
export const primaryThread = (id: SessionId): string => `sthr_${id.slice("sesn_".length)}`;

/** The outcome that an event defines. N1 */
export const outcomeOf = (event: EventId): string => `outc_${event.slice("sevt_".length)}`;

/** Reads a session id from outside; null when it can't be one. */
export function parseSessionId(text: string): SessionId | null {
  return /^sesn_[0-9A-Za-z]{1,64}$/.test(text) ? (text as SessionId) : null;
}

export const topic = (text: string): Topic => text as Topic;
export const position = (value: number): Position => value as Position;

function spell(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += ALPHABET[byte % ALPHABET.length];
  return text;
}
