// Puts credentials where their placeholders stand.
//
//   W1  Only the placeholders that are given are known: everything else, another session's placeholder too, passes as it is.
//   W2  In headers a placeholder is found as it is, and inside the name and password of `Basic` credentials. Headers that frame a message or name its
//       host are never looked at, and no address is.
//   W3  In a body a value is written as the body's kind wants it: escaped in JSON and in forms, as it is elsewhere.
//   W4  Nothing is held back of a stream but an end that may be the beginning of a placeholder.

import { PLACEHOLDER_LENGTH, PLACEHOLDER_PREFIX } from "./authority.ts";
import type { Pair } from "./headers.ts";
import { Denied } from "./says.ts";
import type { Secret } from "./secrets.ts";

const NEVER = new Set(["host", "content-length", "content-type", "content-encoding"]);
const PREFIX = Buffer.from(PLACEHOLDER_PREFIX, "latin1");
const NOTHING = Buffer.alloc(0);
const PLACEHOLDERS = new RegExp(`${PLACEHOLDER_PREFIX}[0-9a-f]{${PLACEHOLDER_LENGTH - PLACEHOLDER_PREFIX.length}}`, "g");
/** What Node, and HTTP, let stand in a header's value. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Collects what was used. */
export type Used = Set<Secret>;

/** W2 */
export function swapHeaders(headers: readonly Pair[], secrets: readonly Secret[], used: Used): readonly Pair[] {
  const known = byPlaceholder(secrets.filter(({ inHeader }) => inHeader));
  if (known.size === 0) return headers;
  return headers.map(([name, value]) => {
    if (NEVER.has(name.toLowerCase())) return [name, value];
    const swapped = swapBasic(value, known, used) ?? swapText(value, known, used, headerText);
    if (swapped !== value && !HEADER_VALUE.test(swapped)) throw new Denied("bad_secret");
    return [name, swapped];
  });
}

/** Null: no `Basic` credentials that hold a placeholder. */
function swapBasic(value: string, known: ReadonlyMap<string, Secret>, used: Used): string | null {
  const [, scheme = "", encoded] = /^(basic +)([A-Za-z0-9+/=_-]+) *$/i.exec(value) ?? [];
  if (encoded === undefined) return null;
  const plain = Buffer.from(encoded, "base64").toString("latin1");
  const swapped = swapText(plain, known, used, (secret) => Buffer.from(secret, "utf8").toString("latin1"));
  return swapped === plain ? null : scheme + Buffer.from(swapped, "latin1").toString("base64");
}

function swapText(text: string, known: ReadonlyMap<string, Secret>, used: Used, written: (value: string) => string): string {
  if (!text.includes(PLACEHOLDER_PREFIX)) return text;
  return text.replace(PLACEHOLDERS, (each) => {
    const secret = known.get(each);
    if (secret === undefined) return each;
    used.add(secret);
    return written(secret.value);
  });
}

const headerText = (value: string): string => Buffer.from(value, "utf8").toString("latin1");

/** Swaps in the pieces of a body. W3 W4 */
export class BodySwap {
  readonly #known: ReadonlyMap<string, Secret>;
  readonly #written: (value: string) => string;
  readonly #used: Used;
  #held: Buffer = NOTHING;

  constructor(secrets: readonly Secret[], contentType: string, used: Used) {
    this.#known = byPlaceholder(secrets.filter(({ inBody }) => inBody));
    this.#written = writerFor(contentType);
    this.#used = used;
  }

  get isIdle(): boolean {
    return this.#known.size === 0;
  }

  push(piece: Buffer): Buffer {
    const bytes = this.#held.length === 0 ? piece : Buffer.concat([this.#held, piece]);
    const parts: Buffer[] = [];
    let from = 0;
    let kept = bytes.length;
    for (let at = bytes.indexOf(PREFIX); at >= 0; at = bytes.indexOf(PREFIX, at + 1)) {
      if (at < from) continue;
      if (at + PLACEHOLDER_LENGTH > bytes.length) {
        kept = at;
        break;
      }
      const secret = this.#known.get(bytes.toString("latin1", at, at + PLACEHOLDER_LENGTH));
      if (secret === undefined) continue;
      this.#used.add(secret);
      parts.push(bytes.subarray(from, at), Buffer.from(this.#written(secret.value), "utf8"));
      from = at + PLACEHOLDER_LENGTH;
    }
    if (kept === bytes.length) kept -= beginningAtEnd(bytes, from);
    parts.push(bytes.subarray(from, kept));
    this.#held = kept === bytes.length ? NOTHING : Buffer.from(bytes.subarray(kept));
    return Buffer.concat(parts);
  }

  end(): Buffer {
    const held = this.#held;
    this.#held = NOTHING;
    return held;
  }
}

/** How many bytes at the end may begin the prefix. */
function beginningAtEnd(bytes: Buffer, from: number): number {
  for (let length = Math.min(PREFIX.length - 1, bytes.length - from); length > 0; length -= 1)
    if (PREFIX.compare(bytes, bytes.length - length, bytes.length, 0, length) === 0) return length;
  return 0;
}

function writerFor(contentType: string): (value: string) => string {
  const kind = contentType.split(";")[0]?.trim().toLowerCase() ?? "";
  if (/[/+]json$|^application\/x-ndjson$|^application\/json-seq$/.test(kind)) return (value) => JSON.stringify(value).slice(1, -1);
  return kind === "application/x-www-form-urlencoded" ? encodeURIComponent : (value) => value;
}

const byPlaceholder = (secrets: readonly Secret[]): ReadonlyMap<string, Secret> => new Map(secrets.map((secret) => [secret.placeholder, secret]));
