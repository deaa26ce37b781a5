// Pictures on their way to the model: what the API would refuse becomes a short note, so that one bad picture can't end a session.
//
//   I1  The type is read from the bytes, never believed. What is no PNG, JPEG, GIF or WebP, or too large in bytes or pixels, is left out.
//   I2  With many pictures in one request the limit in pixels is stricter.
//   I3  The same log gives the same blocks.

import type Anthropic from "@anthropic-ai/sdk";
import type { HarnessSession } from "../harness.ts";

type Entry = ReturnType<HarnessSession["getEvents"]>[number];
type ResultBlock = Extract<Entry, { type: "agent.tool_result" }>["content"][number];
export type Image = Extract<ResultBlock, { type: "image" }>;
type MediaType = Anthropic.Base64ImageSource["media_type"];

/** Of the base64 text: 5 MB is what the API takes. */
const BASE64_CHARS_MAX = 5 * 1024 * 1024;
const PIXELS_MAX = 8_000;
const PIXELS_MAX_MANY = 2_000;
const MANY = 20;
/** More than the API takes in one request; the oldest are left out first. */
const IMAGES_MAX = 100;

interface Seen {
  readonly mediaType: MediaType;
  readonly width: number;
  readonly height: number;
}

// Events are immutable: what was read from a picture's bytes stays true as long as it is in memory.
const seen = new WeakMap<object, Seen | string>();

/** Knows how many pictures the log holds, and so which limit applies. I2 */
export class ImageBudget {
  readonly #total: number;
  #passed = 0;

  constructor(entries: readonly Entry[]) {
    let total = 0;
    const count = (blocks: readonly { readonly type: string }[]) => {
      for (const block of blocks) if (block.type === "image") total += 1;
    };
    for (const entry of entries) {
      if (entry.type === "agent.tool_result" || entry.type === "user.custom_tool_result") count(entry.content);
      if (entry.type === "log.received" && "content" in entry.event) count(entry.event.content ?? []);
    }
    this.#total = total;
  }

  blockOf(image: Image): Anthropic.ImageBlockParam | Anthropic.TextBlockParam {
    this.#passed += 1;
    if (this.#total - this.#passed >= IMAGES_MAX) return note("it is one of too many; only the newest are kept");
    const { source } = image;
    if (source.type === "url") return { type: "image", source: { type: "url", url: source.url } };
    if (source.type === "file") return note("files by id can't be shown to the model");
    const found = seen.get(source) ?? look(source.data);
    seen.set(source, found);
    if (typeof found === "string") return note(found);
    const limit = this.#total > MANY ? PIXELS_MAX_MANY : PIXELS_MAX;
    if (found.width > limit || found.height > limit) return note(`it is ${found.width} by ${found.height} pixels; at most ${limit} are taken`);
    return { type: "image", source: { type: "base64", media_type: found.mediaType, data: source.data } };
  }
}

const note = (why: string): Anthropic.TextBlockParam => ({ type: "text", text: `[A picture was left out: ${why}.]` });

/** Reads type and size from the bytes, or says why the picture can't be used. I1 */
function look(base64: string): Seen | string {
  if (base64.length > BASE64_CHARS_MAX) return `it has ${base64.length} characters of base64; at most ${BASE64_CHARS_MAX} are taken`;
  if (base64.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(base64)) return "its data is not valid base64";
  const bytes = Buffer.from(base64, "base64");
  const found = png(bytes) ?? gif(bytes) ?? webp(bytes) ?? jpeg(bytes);
  if (!found || found.width < 1 || found.height < 1) return "its bytes are no PNG, JPEG, GIF or WebP picture";
  return found;
}

function png(bytes: Buffer): Seen | null {
  if (bytes.length < 24 || bytes.readUInt32BE(0) !== 0x89504e47 || bytes.toString("latin1", 12, 16) !== "IHDR") return null;
  return { mediaType: "image/png", width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) };
}

function gif(bytes: Buffer): Seen | null {
  if (bytes.length < 10 || !/^GIF8[79]a$/.test(bytes.toString("latin1", 0, 6))) return null;
  return { mediaType: "image/gif", width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
}

function webp(bytes: Buffer): Seen | null {
  if (bytes.length < 30 || bytes.toString("latin1", 0, 4) !== "RIFF" || bytes.toString("latin1", 8, 12) !== "WEBP") return null;
  const size = (width: number, height: number): Seen => ({ mediaType: "image/webp", width, height });
  switch (bytes.toString("latin1", 12, 16)) {
    case "VP8 ":
      return size(bytes.readUInt16LE(26) & 0x3fff, bytes.readUInt16LE(28) & 0x3fff);
    case "VP8L": {
      const bits = bytes.readUInt32LE(21);
      return size((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1);
    }
    case "VP8X":
      return size(bytes.readUIntLE(24, 3) + 1, bytes.readUIntLE(27, 3) + 1);
    default:
      return null;
  }
}

/** Walks the segments to the frame header, which holds the size. */
function jpeg(bytes: Buffer): Seen | null {
  if (bytes.length < 4 || bytes.readUInt16BE(0) !== 0xffd8) return null;
  let at = 2;
  while (at + 9 < bytes.length) {
    if (bytes[at] !== 0xff) return null;
    const marker = bytes[at + 1] ?? 0;
    if (marker === 0xff) {
      at += 1;
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
    if (isFrame) return { mediaType: "image/jpeg", width: bytes.readUInt16BE(at + 7), height: bytes.readUInt16BE(at + 5) };
    const isBare = marker === 0x01 || (marker >= 0xd0 && marker <= 0xd8);
    at += isBare ? 2 : 2 + bytes.readUInt16BE(at + 2);
  }
  return null;
}
