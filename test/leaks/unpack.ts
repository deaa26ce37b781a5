// What bytes hold beside what they show: packed members, texts that were cut into lines, packed members inside base64.
//
//   P1  Bounded: so many members of one piece, so many bytes of each, so deep.

import { brotliDecompressSync, constants, inflateRawSync, inflateSync } from "node:zlib";

const MEMBERS_MAX = 2_000;
const MEMBER_BYTES_MAX = 64 * 1024 * 1024;
/** Forms that have no mark of their own are tried on pieces up to this length. */
const UNMARKED_BYTES_MAX = 4 * 1024 * 1024;
const LOOKED_AT_BYTES = 256;
const GZIP = Buffer.from([0x1f, 0x8b, 0x08]);
const ZLIB = [0x01, 0x5e, 0x9c, 0xda].map((level) => Buffer.from([0x78, level]));
const IN_BASE64 = /(?:H4sI|eJ|eNp|eAE|eF4)[A-Za-z0-9+/_-]{20,}/g;
const BREAKS = /=?(?:\r\n|\n|\r)[ \t]*/g;
const ESCAPED_BREAKS = /=?(?:\\r\\n|\\n|\\r)/g;
const HAS_BREAK = /[\r\n]|\\[rn\\]/;
const OPTIONS = { finishFlush: constants.Z_SYNC_FLUSH, maxOutputLength: MEMBER_BYTES_MAX };

type Open = (bytes: Buffer) => Buffer;
/** Something may follow it, which `gunzipSync` would take for a broken member. */
const gunzip: Open = (bytes) => inflateRawSync(bytes.subarray(headerBytes(bytes)), OPTIONS);
const inflate: Open = (bytes) => inflateSync(bytes, OPTIONS);

/** Everything that was found inside, one level deep. P1 */
export function* unpack(bytes: Buffer): Generator<Buffer> {
  yield* membersOf(bytes, GZIP, gunzip);
  for (const mark of ZLIB) yield* membersOf(bytes, mark, inflate);
  if (bytes.length > UNMARKED_BYTES_MAX) return;
  // Texts are no such thing, and most pieces are texts.
  if (isBinary(bytes.subarray(0, LOOKED_AT_BYTES)))
    for (const open of [inflateRawSync, brotliDecompressSync]) {
      const opened = attempt((all) => open(all, { maxOutputLength: MEMBER_BYTES_MAX }), bytes);
      if (opened !== null) yield opened;
    }
  const text = bytes.toString("latin1");
  for (const [packed] of [...text.matchAll(IN_BASE64)].slice(0, MEMBERS_MAX)) {
    const opened = attempt(packed.startsWith("H4") ? gunzip : inflate, Buffer.from(packed, "base64"));
    if (opened !== null) yield opened;
  }
}

/** The same text in one line, soft breaks taken out and escapes of escapes made simple; null: it is all that already. */
export function inOneLine(bytes: Buffer): Buffer | null {
  const text = bytes.toString("latin1");
  if (!HAS_BREAK.test(text)) return null;
  return Buffer.from(
    text
      .replace(/\\{2,}/g, "\\")
      .replace(BREAKS, "")
      .replace(ESCAPED_BREAKS, ""),
    "latin1",
  );
}

const isBinary = (bytes: Buffer): boolean => bytes.some((byte) => byte > 0x7e || (byte < 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09));

function* membersOf(bytes: Buffer, mark: Buffer, open: Open): Generator<Buffer> {
  let members = 0;
  for (let at = bytes.indexOf(mark); at >= 0 && members < MEMBERS_MAX; at = bytes.indexOf(mark, at + 1)) {
    members += 1;
    const opened = attempt(open, bytes.subarray(at));
    if (opened !== null) yield opened;
  }
}

/** Null: that is not what these bytes are. */
function attempt(open: Open, bytes: Buffer): Buffer | null {
  try {
    const opened = open(bytes);
    return opened.length === 0 ? null : opened;
  } catch {
    return null;
  }
}

/** How long the header of a gzip member is: some parts of it are there if a flag says so. */
function headerBytes(bytes: Buffer): number {
  const flags = bytes[3] ?? 0;
  let at = 10;
  if (flags & 4) at += 2 + (at + 2 <= bytes.length ? bytes.readUInt16LE(at) : 0);
  for (const flag of [8, 16]) if (flags & flag) at = bytes.indexOf(0, at) + 1;
  return flags & 2 ? at + 2 : at;
}
