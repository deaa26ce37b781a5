// Every usual way of writing a secret down: how it is planted, and which bytes give it away.
//
//   C1  `needles` of the anchor are what is searched. Needle n of a canary begins where needle n of its anchor does (or ends there, `isBackward`), so
//       that what was found can be told by the bytes that follow.
//   C2  A way of writing that hides its bytes (packed, cut into lines) has no needles: it is unpacked first (unpack.ts).

import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from "node:zlib";

export interface Encoding {
  readonly name: string;
  /** `bytes`: it can't stand where text is wanted, as in an environment or a log line. */
  readonly holds: "text" | "bytes";
  /** It has no mark of its own: it is found where it stands alone, not in the middle of something. */
  readonly isUnmarked?: boolean;
  /** A secret as it would be found. */
  write(secret: string): Buffer;
  /** The bytes by which a secret (or the beginning of one) is found. C1 */
  needles(secret: string): readonly Buffer[];
  readonly isBackward?: boolean;
}

/** Less than an anchor has. */
const CUT_CHARS = 12;
const NOTHING = (): readonly Buffer[] => [];
const latin = (text: string): Buffer => Buffer.from(text, "latin1");
const each = (secret: string, form: (code: number, hex: string) => string, joint = ""): string =>
  [...latin(secret)].map((code) => form(code, code.toString(16).padStart(2, "0"))).join(joint);
const hexOf = (secret: string, joint: string, before = ""): string => each(secret, (_code, hex) => before + hex, joint);
/** In hexadecimal digits of both cases. */
const inBothCases = (form: (digits: (hex: string) => string) => string): readonly Buffer[] => [
  latin(form((hex) => hex)),
  latin(form((hex) => hex.toUpperCase())),
];

/** What the secret alone decides of a base64 text in which it stands `offset` bytes (modulo 3) from the beginning. */
function inBase64(secret: Buffer, offset: number): string {
  const text = Buffer.concat([Buffer.alloc(offset), secret]).toString("base64");
  return text.slice(offset === 0 ? 0 : offset + 1, Math.floor(((offset + secret.length) * 8) / 6));
}
const OFFSETS = [0, 1, 2];
const base64s = (secret: string): string[] => OFFSETS.map((offset) => inBase64(latin(secret), offset));

function text(name: string, write: (secret: string) => string, needles?: (secret: string) => readonly Buffer[]): Encoding {
  return { name, holds: "text", write: (secret) => latin(write(secret)), needles: needles ?? ((secret) => [latin(write(secret))]) };
}
const packed = (name: string, pack: (bytes: Buffer) => Buffer, isUnmarked = false): Encoding => ({
  name,
  isUnmarked,
  holds: "bytes",
  write: (secret) => pack(latin(`packed with something around it: ${secret}, and so on`)),
  needles: NOTHING,
});
const cut = (secret: string, joint: string, chars = CUT_CHARS): string => secret.match(new RegExp(`.{1,${chars}}`, "gs"))?.join(joint) ?? secret;

export const ENCODINGS: readonly Encoding[] = [
  text("as it is", (secret) => secret),
  text("in small letters", (secret) => secret.toLowerCase()),
  text("in capitals", (secret) => secret.toUpperCase()),
  { ...text("backward", (secret) => [...secret].reverse().join("")), isBackward: true },
  ...OFFSETS.map((offset) =>
    text(
      `in base64, ${offset} from its beginning`,
      (secret) => Buffer.from(`${"xyz".slice(0, offset)}${secret}`).toString("base64"),
      offset === 0 ? (secret) => base64s(secret).map(latin) : NOTHING,
    ),
  ),
  text("in base64url", (secret) => Buffer.from(secret).toString("base64url"), NOTHING),
  text(
    "in base64 of base64",
    (secret) => Buffer.from(`me:${Buffer.from(`you:${secret}`).toString("base64")}`).toString("base64"),
    (secret) => base64s(secret).flatMap((once) => OFFSETS.map((offset) => latin(inBase64(latin(once), offset)))),
  ),
  text("in base64, in lines", (secret) => cut(Buffer.from(`x${secret}`).toString("base64"), "\r\n"), NOTHING),
  text(
    "in hex",
    (secret) => hexOf(secret, ""),
    (secret) => inBothCases((digits) => each(secret, (_code, hex) => digits(hex))),
  ),
  text("in capital hex", (secret) => hexOf(secret, "").toUpperCase(), NOTHING),
  text(
    "in hex with blanks",
    (secret) => hexOf(secret, " "),
    (secret) => inBothCases((digits) => each(secret, (_code, hex) => digits(hex), " ")),
  ),
  text(
    "in hex with colons",
    (secret) => hexOf(secret, ":"),
    (secret) => inBothCases((digits) => each(secret, (_code, hex) => digits(hex), ":")),
  ),
  text("percent-encoded where it must be", encodeURIComponent, NOTHING),
  text(
    "percent-encoded",
    (secret) => hexOf(secret, "", "%").toUpperCase(),
    (secret) => inBothCases((digits) => each(secret, (_code, hex) => `%${digits(hex)}`)),
  ),
  text(
    "quoted-printable, in lines",
    (secret) => cut(hexOf(secret, "", "=").toUpperCase(), "=\r\n", 3 * CUT_CHARS),
    (secret) => [latin(hexOf(secret, "", "=").toUpperCase())],
  ),
  text("JSON-escaped where it may be", (secret) => secret.replaceAll("/", "\\/"), NOTHING),
  text(
    "JSON-escaped",
    (secret) => hexOf(secret, "", "\\u00"),
    (secret) => inBothCases((digits) => each(secret, (_code, hex) => `\\u00${digits(hex)}`)),
  ),
  text(
    "escaped as bytes",
    (secret) => hexOf(secret, "", "\\x"),
    (secret) => inBothCases((digits) => each(secret, (_code, hex) => `\\x${digits(hex)}`)),
  ),
  text(
    "HTML-escaped in decimals",
    (secret) => each(secret, (code) => `&#${code};`),
    (secret) => [latin(each(secret, (code) => `&#${code};`))],
  ),
  text(
    "HTML-escaped in hex",
    (secret) => each(secret, (_code, hex) => `&#x${hex};`),
    (secret) => inBothCases((digits) => each(secret, (_code, hex) => `&#x${digits(hex)};`)),
  ),
  text("cut into lines", (secret) => cut(secret, "\n"), NOTHING),
  text("packed with gzip, in base64", (secret) => gzipSync(`packed: ${secret}`).toString("base64"), NOTHING),
  {
    name: "in UTF-16",
    holds: "bytes",
    write: (secret) => Buffer.from(secret, "utf16le"),
    // Without the last byte, so that the order of bytes does not matter.
    needles: (secret) => [Buffer.from(secret, "utf16le").subarray(0, -1)],
  },
  {
    name: "in UTF-16, big end first",
    holds: "bytes",
    write: (secret) => Buffer.from(secret, "utf16le").swap16(),
    needles: NOTHING,
  },
  packed("packed with gzip", (bytes) => gzipSync(bytes)),
  packed("packed with deflate", (bytes) => deflateSync(bytes)),
  packed("packed with raw deflate", (bytes) => deflateRawSync(bytes), true),
  packed("packed with brotli", (bytes) => brotliCompressSync(bytes), true),
];

/** What is found in the middle of other bytes. */
export const MARKED: readonly Encoding[] = ENCODINGS.filter(({ isUnmarked }) => isUnmarked !== true);
export const TEXTS: readonly Encoding[] = ENCODINGS.filter(({ holds }) => holds === "text");
/** What is found where nothing is unpacked and nothing put together: in memory. */
export const IN_MEMORY: readonly Encoding[] = MARKED.filter(
  ({ write, name }) => !name.startsWith("packed") && !/[\r\n]/.test(write("x".repeat(99)).toString("latin1")),
);
export const TEXTS_IN_MEMORY: readonly Encoding[] = IN_MEMORY.filter(({ holds }) => holds === "text");
