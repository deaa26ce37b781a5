// Masks a credential in what comes back from the door it opened.
//
//   B1  Wherever the credential stands whole - as it is, in base64 at any alignment, base64url, hex, percent, form or JSON escapes, these also
//       where they stand in another JSON text - it is masked, in headers and in bodies, however the body was cut into pieces.
//   B2  A mask is as long as what it hides, so that a stated content-length stays true.
//   B3  Nothing is held back but the end of a piece that may be the beginning of the credential.

/** A shorter credential is not masked: it would be found everywhere. */
const SCRUBBED_CHARS_MIN = 8;
const MASK = "*".charCodeAt(0);
const NOTHING = Buffer.alloc(0);

export class Scrubber {
  readonly #patterns: readonly Buffer[];
  readonly #shortest: number;

  constructor(...credentials: readonly string[]) {
    const long = credentials.filter((credential) => credential.length >= SCRUBBED_CHARS_MIN);
    this.#patterns = [...new Set(long.flatMap(spellings))].map((text) => Buffer.from(text, "latin1"));
    this.#shortest = Math.min(...this.#patterns.map(({ length }) => length));
  }

  /** Masks a header's value. */
  header(value: string): string {
    if (value.length < this.#shortest) return value;
    return this.#mask(Buffer.from(value, "latin1")).toString("latin1");
  }

  /** Masks a body that is all there. */
  whole(bytes: Buffer): Buffer {
    return this.#mask(bytes);
  }

  /** Starts a body. `push` gives what can go on, `end` what was held back. */
  body(): { push(piece: Buffer): Buffer; end(): Buffer } {
    let held = NOTHING;
    return {
      push: (piece) => {
        const bytes = this.#mask(held.length === 0 ? piece : Buffer.concat([held, piece]));
        const kept = this.#beginningAtEnd(bytes);
        held = kept === 0 ? NOTHING : Buffer.from(bytes.subarray(bytes.length - kept));
        return kept === 0 ? bytes : bytes.subarray(0, bytes.length - kept);
      },
      end: () => held,
    };
  }

  /** The same bytes if nothing is to be masked, otherwise a masked copy. */
  #mask(bytes: Buffer): Buffer {
    let masked = bytes;
    for (const pattern of this.#patterns) {
      // What one spelling masks must stay visible to the others (they may overlap), so it is always the given bytes that are searched.
      for (let at = bytes.indexOf(pattern); at >= 0; at = bytes.indexOf(pattern, at + 1)) {
        if (masked === bytes) masked = Buffer.from(bytes);
        masked.fill(MASK, at, at + pattern.length);
      }
    }
    return masked;
  }

  /** How many bytes at the end may be the beginning of a spelling. B3 */
  #beginningAtEnd(bytes: Buffer): number {
    let longest = 0;
    for (const pattern of this.#patterns) {
      const first = pattern[0];
      for (let at = Math.max(0, bytes.length - pattern.length + 1); at < bytes.length - longest; at++) {
        if (bytes[at] === first && pattern.compare(bytes, at, bytes.length, 0, bytes.length - at) === 0) longest = bytes.length - at;
      }
    }
    return longest;
  }
}

/** Every way of writing the credential that is looked for, each once. B1 */
function spellings(credential: string): string[] {
  const bytes = Buffer.from(credential, "utf8");
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0"));
  const upper = hex.map((pair) => pair.toUpperCase());
  const all = [
    credential,
    inJson(credential),
    inJson(inJson(credential)), // A tool's text is often JSON itself, inside the JSON of its result.
    credential.replaceAll("/", "\\/"),
    credential.replaceAll("/", "\\\\/"),
    ...[encodeURIComponent(credential), formEncoded(credential)].flatMap((text) => [text, text.replace(/%../g, (pair) => pair.toLowerCase())]),
    ...[hex, upper].flatMap((pairs) => [
      pairs.join(""),
      pairs.map((pair) => `%${pair}`).join(""),
      ...["\\", "\\\\"].flatMap((slash) => [pairs.map((pair) => `${slash}u00${pair}`).join(""), pairs.map((pair) => `${slash}x${pair}`).join("")]),
    ]),
    ...[0, 1, 2].flatMap((offset) => [inBase64(bytes, offset, "base64"), inBase64(bytes, offset, "base64url")]),
  ];
  return [...new Set(all)].filter((text) => text.length >= SCRUBBED_CHARS_MIN);
}

/** As a form has it: more characters are escaped than in an address. */
export const formEncoded = (text: string): string => new URLSearchParams({ a: text }).toString().slice(2);

const inJson = (text: string): string => JSON.stringify(text).slice(1, -1);

/** The characters that the credential alone decides when it stands `offset` bytes (modulo 3) into what was encoded. */
function inBase64(bytes: Buffer, offset: number, encoding: "base64" | "base64url"): string {
  const before = Buffer.alloc(offset);
  const encoded = Buffer.concat([before, bytes]).toString(encoding);
  const total = offset + bytes.length;
  const undecided = offset === 0 ? 0 : offset + 1;
  return encoded.slice(undecided, Math.floor((total * 8) / 6));
}
