// Pictures on their way to the model: what the API would refuse becomes a short note, so that one bad picture can't end a session.
//
//   I1  The type is read from the bytes, never believed. What is no whole PNG, JPEG, GIF or WebP, or too large in bytes or pixels, is left out.
//   I2  With many pictures in one request the limit in pixels is stricter.
//   I3  The same log gives the same blocks.
//   I4  Pictures and documents together leave room in a request: beyond a number and a size the oldest are left out.

import { crc32 } from "node:zlib";
import type Anthropic from "@anthropic-ai/sdk";
import type { HarnessSession } from "../harness.ts";

type Entry = ReturnType<HarnessSession["getEvents"]>[number];
type ResultBlock = Extract<Entry, { type: "agent.tool_result" }>["content"][number];
export type Image = Extract<ResultBlock, { type: "image" }>;
type Media = Extract<ResultBlock, { type: "image" | "document" }>;
type MediaType = Anthropic.Base64ImageSource["media_type"];

/** Of the base64 text: 5 MB is what the API takes. */
const BASE64_CHARS_MAX = 5 * 1024 * 1024;
const PIXELS_MAX = 8_000;
const PIXELS_MAX_MANY = 2_000;
const MANY = 20;
/** More than the API takes in one request. I4 */
const IMAGES_MAX = 100;
/** Base64 of one request, which may have 32 MB with everything else in it. I4 */
const MEDIA_CHARS_MAX = 20 * 1024 * 1024;

interface Seen {
  readonly mediaType: MediaType;
  readonly width: number;
  readonly height: number;
}

// Events are immutable: what was read from a picture's bytes stays true as long as it is in memory.
const seen = new WeakMap<object, Seen | string>();

/** Knows what pictures and documents the log holds, and so which limits apply. I2 I4 */
export class MediaBudget {
  readonly #tooOld = new Set<object>();
  #pictures = 0;

  constructor(entries: readonly Entry[]) {
    let chars = 0;
    for (const block of mediaOf(entries).reverse()) {
      // What is left out for itself takes no room.
      if (block.type === "image" && typeof seenOf(block.source) === "string") continue;
      const { source } = block;
      if (source.type === "base64") chars += source.data.length;
      if (block.type === "image") this.#pictures += 1;
      if (chars > MEDIA_CHARS_MAX || this.#pictures > IMAGES_MAX) this.#tooOld.add(source);
    }
  }

  /** Is it one of the oldest of too many? I4 */
  isTooOld({ source }: Media): boolean {
    return this.#tooOld.has(source);
  }

  blockOf(image: Image): Anthropic.ImageBlockParam | Anthropic.TextBlockParam {
    const { source } = image;
    const found = seenOf(source);
    if (typeof found === "string") return note(found);
    if (this.isTooOld(image)) return note("it is one of too many; only the newest are kept");
    if (source.type === "url") return { type: "image", source: { type: "url", url: source.url } };
    if (source.type === "file" || found === null) return note(FILE);
    const limit = this.#pictures > MANY ? PIXELS_MAX_MANY : PIXELS_MAX;
    if (found.width > limit || found.height > limit) return note(`it is ${found.width} by ${found.height} pixels; at most ${limit} are taken`);
    return { type: "image", source: { type: "base64", media_type: found.mediaType, data: source.data } };
  }
}

const FILE = "files by id can't be shown to the model";

/** In the order of the log. */
function mediaOf(entries: readonly Entry[]): Media[] {
  const found: Media[] = [];
  const look = (blocks: readonly (Media | { readonly type: "text" | "search_result" })[]) => {
    for (const block of blocks) if (block.type === "image" || block.type === "document") found.push(block);
  };
  for (const entry of entries) {
    if (entry.type === "agent.tool_result" || entry.type === "agent.mcp_tool_result" || entry.type === "user.custom_tool_result") look(entry.content);
    if (entry.type === "log.received" && "content" in entry.event) look(entry.event.content ?? []);
  }
  return found;
}

/** What the bytes are, or why they are no use; null: they are not here. */
function seenOf(source: Image["source"]): Seen | string | null {
  if (source.type === "url") return null;
  if (source.type === "file") return FILE;
  const found = seen.get(source) ?? look(source.data);
  seen.set(source, found);
  return found;
}

const note = (why: string): Anthropic.TextBlockParam => ({ type: "text", text: `[A picture was left out: ${why}.]` });

/** Reads type and size from the bytes, or says why the picture can't be used. I1 */
function look(base64: string): Seen | string {
  if (base64.length > BASE64_CHARS_MAX) return `it has ${base64.length} characters of base64; at most ${BASE64_CHARS_MAX} are taken`;
  if (base64.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(base64)) return "its data is not valid base64";
  const bytes = Buffer.from(base64, "base64");
  const found = png(bytes) ?? gif(bytes) ?? webp(bytes) ?? jpeg(bytes);
  if (!found || found.width < 1 || found.height < 1) return "its bytes are no PNG, JPEG, GIF or WebP picture, or not a whole one";
  return found;
}

function png(bytes: Buffer): Seen | null {
  if (bytes.length < 24 || bytes.readUInt32BE(0) !== 0x89504e47 || bytes.toString("latin1", 12, 16) !== "IHDR") return null;
  return isWholePng(bytes) ? { mediaType: "image/png", width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) } : null;
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

function gif(bytes: Buffer): Seen | null {
  if (bytes.length < 10 || !/^GIF8[79]a$/.test(bytes.toString("latin1", 0, 6)) || !bytes.includes(0x3b, 10)) return null;
  return { mediaType: "image/gif", width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
}

function webp(bytes: Buffer): Seen | null {
  if (bytes.length < 30 || bytes.toString("latin1", 0, 4) !== "RIFF" || bytes.toString("latin1", 8, 12) !== "WEBP") return null;
  if (bytes.length < 8 + bytes.readUInt32LE(4)) return null;
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

const END_OF_JPEG = Buffer.from("ffd9", "hex");

/** Walks the segments to the frame header, which holds the size. */
function jpeg(bytes: Buffer): Seen | null {
  if (bytes.length < 4 || bytes.readUInt16BE(0) !== 0xffd8 || bytes.lastIndexOf(END_OF_JPEG) < 0) return null;
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
