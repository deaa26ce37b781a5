// Pictures: what a file is by its bytes, and whether a model can take it.
//
//   I1  The type is read from the bytes, never from the name. What is broken, too large or too wide becomes a note: one bad picture in a log
//       would have every later request of its session refused.

import { crc32 } from "node:zlib";

const BASE64_CHARS_MAX = 5 * 1024 * 1024;
const SIDE_PIXELS_MAX = 8_000;

export type Picture = { readonly mediaType: string } & (
  | { readonly type: "good"; readonly data: string }
  | { readonly type: "bad"; readonly why: string }
);

interface Size {
  readonly width: number;
  readonly height: number;
}

const KINDS: readonly { mediaType: string; is: (bytes: Buffer) => boolean; size: (bytes: Buffer) => Size | null }[] = [
  { mediaType: "image/png", is: (bytes) => bytes.subarray(0, 8).equals(Buffer.from("89504e470d0a1a0a", "hex")), size: png },
  { mediaType: "image/jpeg", is: (bytes) => bytes.subarray(0, 3).equals(Buffer.from("ffd8ff", "hex")), size: jpeg },
  { mediaType: "image/gif", is: (bytes) => /^GIF8[79]a$/.test(bytes.toString("latin1", 0, 6)), size: gif },
  { mediaType: "image/webp", is: (bytes) => /^RIFF.{4}WEBP$/s.test(bytes.toString("latin1", 0, 12)), size: webp },
];

/** Null: no picture. I1 */
export function pictureOf(bytes: Buffer): Picture | null {
  const kind = KINDS.find(({ is }) => is(bytes));
  if (kind === undefined) return null;
  const { mediaType } = kind;
  const bad = (why: string): Picture => ({ mediaType, type: "bad", why });
  const size = sizeOf(kind, bytes);
  if (size === null || size.width < 1 || size.height < 1) return bad("the file is broken or cut off");
  if (size.width > SIDE_PIXELS_MAX || size.height > SIDE_PIXELS_MAX)
    return bad(`it is ${size.width}×${size.height} pixels; at most ${SIDE_PIXELS_MAX} a side can be shown`);
  if (Math.ceil(bytes.length / 3) * 4 > BASE64_CHARS_MAX)
    return bad(`it has ${bytes.length} bytes; at most ${(BASE64_CHARS_MAX / 4) * 3} can be shown`);
  return { mediaType, type: "good", data: bytes.toString("base64") };
}

/** Reading past the end of a cut-off file is a RangeError of Buffer, and means: broken. */
function sizeOf(kind: (typeof KINDS)[number], bytes: Buffer): Size | null {
  try {
    return kind.size(bytes);
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

/** Every chunk is whole, its checksum right, and the last one is IEND. */
function png(bytes: Buffer): Size | null {
  let size: Size | null = null;
  for (let at = 8; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    const type = bytes.toString("latin1", at + 4, at + 8);
    if (crc32(bytes.subarray(at + 4, at + 8 + length)) !== bytes.readUInt32BE(at + 8 + length)) return null;
    if (type === "IHDR" && length === 13) size = { width: bytes.readUInt32BE(at + 8), height: bytes.readUInt32BE(at + 12) };
    if (type === "IEND") return size;
    at += 12 + length;
  }
  return null;
}

/** The first frame header gives the size; an end marker must follow somewhere. */
function jpeg(bytes: Buffer): Size | null {
  if (bytes.lastIndexOf(Buffer.from("ffd9", "hex")) < 0) return null;
  for (let at = 2; at < bytes.length; ) {
    if (bytes.readUInt8(at) !== 0xff) return null;
    const marker = bytes.readUInt8(at + 1);
    if (marker === 0xff) {
      at += 1;
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
    if (isFrame) return { height: bytes.readUInt16BE(at + 5), width: bytes.readUInt16BE(at + 7) };
    if (marker === 0xda || marker === 0xd9) return null;
    const hasNoLength = marker === 0x01 || (marker >= 0xd0 && marker <= 0xd7);
    at += hasNoLength ? 2 : 2 + bytes.readUInt16BE(at + 2);
  }
  return null;
}

function gif(bytes: Buffer): Size | null {
  if (bytes.readUInt8(bytes.length - 1) !== 0x3b) return null;
  return { width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
}

function webp(bytes: Buffer): Size | null {
  if (bytes.length < 8 + bytes.readUInt32LE(4)) return null;
  switch (bytes.toString("latin1", 12, 16)) {
    case "VP8 ":
      return { width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff };
    case "VP8L": {
      const bits = bytes.readUInt32LE(21);
      return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
    }
    case "VP8X":
      return { width: bytes.readUIntLE(24, 3) + 1, height: bytes.readUIntLE(27, 3) + 1 };
    default:
      return null;
  }
}
