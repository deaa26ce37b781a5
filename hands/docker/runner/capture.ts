// What one stream of a command printed: counted, its ends kept, the rest on the disk.
//
//   O1  Memory is bounded however much is printed: up to HELD_BYTES_MAX are held, all else goes to a file without a name, up to SPOOL_BYTES_MAX.
//   O2  Bytes are never changed on their way to the disk; decoding is for what the model reads.

import { randomBytes } from "node:crypto";
import { closeSync, mkdirSync, openSync, readSync, unlinkSync, writeSync } from "node:fs";
import { PREVIEW_CHARS } from "../../tools/cap.ts";
import { codeOf } from "../../tools/places.ts";

/** More than any text that is given whole can have. */
const HELD_BYTES_MAX = 512 * 1024;
const SPOOL_BYTES_MAX = 256 * 1024 * 1024;
const COPY_BYTES = 256 * 1024;
const NEWLINE = 0x0a;
const REPLACEMENT = "\ufffd";

export class Capture {
  readonly #folder: string;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #held: Buffer[] = [];
  #spool: number | undefined;
  #spoolBroke = "";
  #stored = 0;
  #lastByte = -1;
  #hasNul = false;
  #hasOdd = false;
  bytes = 0;
  chars = 0;
  /** Its first and last characters; the whole text while that is shorter. */
  head = "";
  tail = "";

  /** `folder`: where a long output waits. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  add(chunk: Buffer): void {
    if (chunk.length === 0) return;
    this.bytes += chunk.length;
    this.#lastByte = chunk[chunk.length - 1] ?? -1;
    this.#hasNul ||= chunk.includes(0);
    this.#note(this.#decoder.decode(chunk, { stream: true }));
    this.#store(chunk);
  }

  /** Nothing more comes. */
  end(): void {
    this.#note(this.#decoder.decode());
  }

  get isBinary(): boolean {
    return this.#hasNul && this.#hasOdd;
  }

  get endsWithNewline(): boolean {
    return this.#lastByte === NEWLINE;
  }

  /** All of it, unless it is on the disk, which means that it is over every limit for text. */
  whole(): string | null {
    return this.#spool === undefined ? new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.concat(this.#held)) : null;
  }

  /** Why the disk doesn't have all of it; empty: it has. */
  get lack(): string {
    if (this.#spoolBroke !== "") return `only the first ${this.#stored} of ${this.bytes} bytes could be stored: ${this.#spoolBroke}`;
    return this.#stored < this.bytes ? `only the first ${this.#stored} of ${this.bytes} bytes were stored` : "";
  }

  /** Writes what was kept to a file, without its last `less` bytes. */
  copyTo(file: number, less = 0): void {
    const end = this.#stored - (this.#stored === this.bytes ? less : 0);
    if (this.#spool === undefined) {
      writeAll(file, Buffer.concat(this.#held).subarray(0, end));
      return;
    }
    const piece = Buffer.alloc(COPY_BYTES);
    for (let at = 0; at < end; ) {
      const read = readSync(this.#spool, piece, 0, Math.min(COPY_BYTES, end - at), at);
      if (read === 0) return;
      writeAll(file, piece.subarray(0, read));
      at += read;
    }
  }

  close(): void {
    if (this.#spool !== undefined) closeSync(this.#spool);
    this.#spool = undefined;
    this.#held = [];
  }

  #note(text: string): void {
    this.chars += text.length;
    this.#hasOdd ||= text.includes(REPLACEMENT);
    if (this.head.length < PREVIEW_CHARS) this.head += text.slice(0, PREVIEW_CHARS - this.head.length);
    this.tail = (this.tail + text).slice(-PREVIEW_CHARS - 1);
  }

  /** O1 O2 */
  #store(chunk: Buffer): void {
    if (this.#spoolBroke !== "") return;
    const fits = chunk.subarray(0, Math.max(0, SPOOL_BYTES_MAX - this.#stored));
    if (this.#spool === undefined && this.#stored + fits.length <= HELD_BYTES_MAX) {
      this.#held.push(fits);
      this.#stored += fits.length;
      return;
    }
    try {
      if (this.#spool === undefined) {
        this.#spool = openNameless(this.#folder);
        for (const held of this.#held) writeAll(this.#spool, held);
        this.#held = [];
      }
      writeAll(this.#spool, fits);
      this.#stored += fits.length;
    } catch (error) {
      this.#spoolBroke = codeOf(error) || "the disk refused it";
    }
  }
}

/** A file that nobody else can find, and that is gone with this process. */
function openNameless(folder: string): number {
  mkdirSync(folder, { recursive: true });
  const path = `${folder}/.${randomBytes(8).toString("hex")}`;
  const file = openSync(path, "wx+", 0o600);
  unlinkSync(path);
  return file;
}

export function writeAll(file: number, bytes: Buffer): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at);
}
