// The audit: who used which credential for what, on the disk before the request leaves.
//
//   N1  `write` resolves once its line is on the disk; lines that come together share one sync. A line that can't be written is a use that does not happen.
//   N2  A line holds names, never a secret: session or caller, credential, origin, path.
//   N3  Each line carries the hash of the one before it: a line that was taken out or changed in the middle shows. Cutting the end does not show.
//   N4  A file that is full is closed and kept; beyond FILES_MAX the oldest goes, and that is logged. A start goes on with the newest one, so that
//       many starts push nothing out.
//   N5  Nothing is written behind half a line: after a failed write, or a crash in the middle of one, the next line begins a new file.

import { createHash } from "node:crypto";
import { write } from "node:fs";
import { constants, type FileHandle, mkdir, open, readdir, readFile, unlink } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";

const FILE_BYTES_MAX = 64 * 1024 * 1024;
const FILES_MAX = 32;
const WAITING_MAX = 10_000;
const START = "0".repeat(64);
/** Where a write can be told to be on the disk when it ends, that saves the way to the disk's thread that a sync of its own takes. */
const SYNCS_ITSELF = process.platform === "linux";
const APPENDING = constants.O_WRONLY | constants.O_APPEND | (SYNCS_ITSELF ? constants.O_DSYNC : 0);

export interface Use {
  /** What was opened. */
  readonly use: "model" | "mcp" | "oauth_refresh" | "oauth_connect" | "validate" | "revoke" | "egress" | "git";
  readonly session?: string;
  readonly fence?: number;
  readonly workspace?: string;
  readonly requestId?: string;
  readonly vault?: string;
  /** A credential's id, `model_key`, or `repository_token`; `none`: what was asked needs none. */
  readonly credential: string;
  readonly origin: string;
  readonly path?: string;
}

/** A use that could not be written down, and so must not happen. */
export class AuditTrouble extends Error {
  override readonly name = "AuditTrouble";
}

interface Waiting {
  readonly use: Use;
  readonly done: () => void;
  readonly failed: (error: AuditTrouble) => void;
}

export class Audit {
  readonly #folder: string;
  readonly #log: Logger;
  readonly #fileBytesMax: number;
  #file: FileHandle;
  #bytes = 0;
  #number: number;
  #last: string;
  #waiting: Waiting[] = [];
  #writing: Promise<void> | null = null;
  /** The newest file ends in half a line. N5 */
  #isTorn: boolean;

  private constructor(folder: string, log: Logger, opened: { newest: Newest; last: string; fileBytesMax: number }) {
    this.#folder = folder;
    this.#log = log;
    this.#file = opened.newest.file;
    this.#number = opened.newest.number;
    this.#bytes = opened.newest.bytes;
    this.#isTorn = opened.newest.isTorn;
    this.#last = opened.last;
    this.#fileBytesMax = opened.fileBytesMax;
  }

  /** Goes on with the newest file, chained to the last whole line. N4 N5 */
  static async open(folder: string, log: Logger, fileBytesMax = FILE_BYTES_MAX): Promise<Audit> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const numbers = await numbersIn(folder);
    let last = START;
    for (const number of [...numbers].reverse()) {
      const found = lastHash(await readFile(pathOf(folder, number), "utf8"));
      if (found === null) continue;
      last = found;
      break;
    }
    const audit = new Audit(folder, log, { newest: await newestOf(folder, numbers), last, fileBytesMax });
    await audit.#dropOldest();
    return audit;
  }

  /** N1 */
  write(use: Use): Promise<void> {
    return new Promise((done, failed) => {
      if (this.#waiting.length >= WAITING_MAX) return failed(new AuditTrouble("too many lines wait"));
      this.#waiting.push({ use, done, failed });
      this.#writing ??= this.#drain();
    });
  }

  async close(): Promise<void> {
    await this.#writing;
    await this.#file.close();
  }

  async #drain(): Promise<void> {
    while (this.#waiting.length > 0) {
      const lines = this.#waiting;
      this.#waiting = [];
      let text = "";
      let hash = this.#last;
      for (const { use } of lines) {
        const line = JSON.stringify({ at: new Date().toISOString(), ...use, before: hash });
        hash = hashOf(line);
        text += `${line}\n`;
      }
      try {
        const bytes = Buffer.byteLength(text);
        if (this.#isTorn || (this.#bytes > 0 && this.#bytes + bytes > this.#fileBytesMax)) await this.#next();
        this.#isTorn = true;
        await append(this.#file, Buffer.from(text));
        this.#isTorn = false;
        this.#bytes += bytes;
        this.#last = hash;
        for (const { done } of lines) done();
      } catch (error) {
        const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
        this.#log.error({ code }, "audit.failed");
        for (const { failed } of lines) failed(new AuditTrouble(code));
      }
    }
    this.#writing = null;
  }

  async #next(): Promise<void> {
    const file = await begin(this.#folder, this.#number + 1);
    const before = this.#file;
    this.#file = file;
    this.#number += 1;
    this.#bytes = 0;
    this.#isTorn = false;
    await before.close();
    await this.#dropOldest();
  }

  /** N4 */
  async #dropOldest(): Promise<void> {
    const numbers = await numbersIn(this.#folder);
    for (const number of numbers.slice(0, Math.max(0, numbers.length - FILES_MAX))) {
      await unlink(pathOf(this.#folder, number));
      this.#log.warn({ file: pathOf("", number) }, "audit.dropped");
    }
  }
}

/** The number of the first line that does not follow the one before it; null: the chain holds. `texts`: the files in their order. N3 */
export function firstBreak(texts: readonly string[]): number | null {
  const lines = texts.flatMap((text) => text.split("\n").filter((line) => isWhole(line)));
  for (const [index, line] of lines.entries()) {
    const before = lines[index - 1];
    if (before !== undefined && JSON.parse(line).before !== hashOf(before)) return index + 1;
  }
  return null;
}

const hashOf = (line: string): string => createHash("sha256").update(line).digest("hex");
const pathOf = (folder: string, number: number): string => join(folder, `audit-${String(number).padStart(8, "0")}.jsonl`);

async function numbersIn(folder: string): Promise<number[]> {
  const names = await readdir(folder);
  return names
    .flatMap((name) => /^audit-(\d{8})\.jsonl$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((one, other) => one - other);
}

interface Newest {
  readonly file: FileHandle;
  readonly number: number;
  readonly bytes: number;
  readonly isTorn: boolean;
}

async function newestOf(folder: string, numbers: readonly number[]): Promise<Newest> {
  const number = numbers.at(-1);
  if (number === undefined) return { file: await begin(folder, 1), number: 1, bytes: 0, isTorn: false };
  const path = pathOf(folder, number);
  const text = await readFile(path, "utf8");
  return { file: await open(path, APPENDING), number, bytes: Buffer.byteLength(text), isTorn: text !== "" && !text.endsWith("\n") };
}

/** By the file's number: the way through its handle's own `write` costs as much again. A closed file has none. */
function written(fd: number, bytes: Buffer, at: number): Promise<number> {
  return new Promise((resolve, reject) => write(fd, bytes, at, (error, count) => (error ? reject(error) : resolve(count))));
}

/** On the disk when it resolves. N1 */
async function append(file: FileHandle, bytes: Buffer): Promise<void> {
  for (let at = 0; at < bytes.length; ) at += await written(file.fd, bytes, at);
  if (!SYNCS_ITSELF) await file.datasync();
}

async function begin(folder: string, number: number): Promise<FileHandle> {
  const file = await open(pathOf(folder, number), APPENDING | constants.O_CREAT | constants.O_EXCL, 0o600);
  const place = await open(folder, "r");
  try {
    await place.sync();
  } finally {
    await place.close();
  }
  return file;
}

/** A line that a crash cut in two is none. */
function isWhole(line: string): boolean {
  try {
    return typeof JSON.parse(line).before === "string";
  } catch {
    return false;
  }
}

function lastHash(text: string): string | null {
  const line = text.split("\n").findLast((each) => isWhole(each));
  return line === undefined ? null : hashOf(line);
}
