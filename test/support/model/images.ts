// What the real endpoint looks at in an image before it accepts it.

import { crc32 } from "node:zlib";

const IMAGE_BYTES_MAX = 5 * 1024 * 1024;
const PIXELS_MAX = 8_000;
/** With more images than MANY in a request each may be smaller only. */
const MANY = 20;
const MANY_PIXELS_MAX = 2_000;

export interface Picture {
  readonly path: string;
  readonly mediaType: string;
  readonly data: string;
}

interface Seen {
  readonly mediaType: string;
  readonly width: number;
  readonly height: number;
}

/** What is wrong with the images of one request; null if nothing is. */
export function refusePictures(pictures: readonly Picture[]): string | null {
  for (const { path, mediaType, data } of pictures) {
    const bytes = readBase64(data);
    if (bytes === null) return `${path}.source.base64.data: invalid base64 data`;
    if (bytes.length === 0) return `${path}.source.base64.data: image data is empty`;
    if (bytes.length > IMAGE_BYTES_MAX) return `${path}.source.base64: image exceeds 5 MB maximum: ${bytes.length} bytes > ${IMAGE_BYTES_MAX} bytes`;
    const seen = look(bytes);
    if (seen === null || seen.width === 0 || seen.height === 0) return `${path}: Could not process image`;
    if (seen.mediaType !== mediaType) {
      return `${path}: Image does not match the provided media type ${mediaType}: it appears to be ${seen.mediaType}`;
    }
    const longest = Math.max(seen.width, seen.height);
    if (longest > PIXELS_MAX) return `${path}: At least one of the image dimensions exceed max allowed size: ${PIXELS_MAX} pixels`;
    if (pictures.length > MANY && longest > MANY_PIXELS_MAX) {
      return `${path}: At least one of the image dimensions exceed max allowed size for many-image requests: ${MANY_PIXELS_MAX} pixels`;
    }
  }
  return null;
}

/** Bytes of strict base64 (alphabet, length, padding); null if it isn't. */
export function readBase64(data: string): Buffer | null {
  return data.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(data) ? Buffer.from(data, "base64") : null;
}

/** The true media type and size by the first bytes. */
function look(bytes: Buffer): Seen | null {
  if (bytes.length >= 24 && bytes.subarray(0, 8).equals(Buffer.from("\x89PNG\r\n\x1a\n", "latin1"))) {
    return isWholePng(bytes) ? { mediaType: "image/png", width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) } : null;
  }
  if (bytes.length >= 10 && /^GIF8[79]a/.test(bytes.toString("latin1", 0, 6))) {
    return { mediaType: "image/gif", width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
  }
  if (bytes.length >= 30 && bytes.toString("latin1", 0, 4) === "RIFF" && bytes.toString("latin1", 8, 12) === "WEBP") return lookWebp(bytes);
  if (bytes.length >= 4 && bytes.readUInt16BE(0) === 0xffd8) return lookJpeg(bytes);
  return null;
}

function lookWebp(bytes: Buffer): Seen | null {
  const mediaType = "image/webp";
  switch (bytes.toString("latin1", 12, 16)) {
    case "VP8 ":
      return { mediaType, width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff };
    case "VP8L": {
      const bits = bytes.readUInt32LE(21);
      return { mediaType, width: (bits & 0x3fff) + 1, height: ((bits >> 14) & 0x3fff) + 1 };
    }
    case "VP8X":
      return { mediaType, width: bytes.readUIntLE(24, 3) + 1, height: bytes.readUIntLE(27, 3) + 1 };
    default:
      return null;
  }
}

/** Every chunk is there, with its checksum, up to the last one. */
function isWholePng(bytes: Buffer): boolean {
  for (let at = 8; at + 12 <= bytes.length; ) {
    const end = at + 12 + bytes.readUInt32BE(at);
    if (end > bytes.length || crc32(bytes.subarray(at + 4, end - 4)) !== bytes.readUInt32BE(end - 4)) return false;
    if (bytes.toString("latin1", at + 4, at + 8) === "IEND") return true;
    at = end;
  }
  return false;
}

/** Walks the segments to the start of a frame, which has the size; the end must be there. */
function lookJpeg(bytes: Buffer): Seen | null {
  if (!bytes.includes(Buffer.from("ffd9", "hex"))) return null;
  let at = 2;
  while (at + 9 < bytes.length) {
    if (bytes[at] !== 0xff) return null;
    const marker = bytes[at + 1] ?? 0;
    if (marker === 0xff) {
      at += 1; // A fill byte.
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
    if (isFrame) return { mediaType: "image/jpeg", width: bytes.readUInt16BE(at + 7), height: bytes.readUInt16BE(at + 5) };
    at += 2 + bytes.readUInt16BE(at + 2);
  }
  return null;
}
