// The cut: turns a folder into what a disk would hold after the power went, from the marks that syncmark.c kept.
//
//   V1  What was written before a file's last successful sync stays; each block written since is lost or kept as the coin falls.
//   V2  Memory that was shared through a file (`-shm`) is gone.

import { execFile } from "node:child_process";
import { readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const BLOCK_BYTES = 4096;
const RECORD_HEAD_BYTES = 24;
const COMPILE_MS = 60_000;

/** Compiles the shim into `folder` and gives its path. */
export async function compileSyncmark(folder: string): Promise<string> {
  const shim = join(folder, "syncmark.so");
  const source = fileURLToPath(new URL("./syncmark.c", import.meta.url));
  await promisify(execFile)("gcc", ["-O2", "-shared", "-fPIC", "-pthread", "-o", shim, source, "-ldl"], { timeout: COMPILE_MS });
  return shim;
}

/** Environment of a process whose files below `root` are to be cut. `marks` is an empty folder outside of it. */
export const markedEnv = (shim: string, root: string, marks: string) => ({ LD_PRELOAD: shim, SYNCMARK_ROOT: `${root}/`, SYNCMARK_DIR: marks });

/** Cuts every marked file below `root`; `isLost` decides for each block that was not synced. Gives how many bytes of files it changed. */
export async function cutPower(root: string, marks: string, isLost: () => boolean): Promise<number> {
  const names = await readdir(marks);
  let lost = 0;
  for (const path of await filesBelow(root)) {
    if (path.endsWith("-shm")) {
      await rm(path);
      continue;
    }
    const inode = (await stat(path)).ino;
    if (!names.includes(`${inode}.size`)) continue;
    const size = Number(await readFile(join(marks, `${inode}.size`), "utf8"));
    const undo = names
      .map((name) => new RegExp(`^${inode}\\.(\\d+)\\.undo$`).exec(name)?.[1])
      .filter((number) => number !== undefined)
      .sort((one, other) => Number(other) - Number(one));
    const logs: Buffer[] = [];
    for (const number of undo) logs.push(await readFile(join(marks, `${inode}.${number}.undo`)));
    const now = await readFile(path);
    const cut = cutFile(now, size, logs.map(recordsOf), isLost);
    if (cut.equals(now)) continue;
    lost += Math.abs(now.length - cut.length) || 1;
    await writeFile(path, cut);
  }
  return lost;
}

interface UndoRecord {
  readonly offset: number;
  readonly count: number;
  readonly old: Buffer;
}

/** Reads an undo log; a torn record at its end is one whose write never began. */
function recordsOf(log: Buffer): readonly UndoRecord[] {
  const records: UndoRecord[] = [];
  for (let at = 0; at + RECORD_HEAD_BYTES <= log.length; ) {
    const [offset, count, kept] = [log.readBigUInt64LE(at), log.readBigUInt64LE(at + 8), log.readBigUInt64LE(at + 16)].map(Number);
    if (offset === undefined || count === undefined || kept === undefined) break;
    at += RECORD_HEAD_BYTES + kept;
    if (at > log.length) break;
    records.push({ offset, count, old: log.subarray(at - kept, at) });
  }
  return records;
}

/** One file after the cut. `logs`: newest first. V1 */
export function cutFile(now: Buffer, syncedSize: number, logs: readonly (readonly UndoRecord[])[], isLost: () => boolean): Buffer {
  const records = logs.flatMap((log) => log.toReversed());
  const end = records.reduce((most, record) => Math.max(most, record.offset + record.old.length), Math.max(now.length, syncedSize));
  const synced = Buffer.alloc(end);
  now.copy(synced);
  const touched = new Set<number>();
  for (const { offset, count, old } of records) {
    old.copy(synced, offset);
    for (let block = Math.floor(offset / BLOCK_BYTES); block * BLOCK_BYTES < offset + count; block += 1) touched.add(block);
  }
  const cut = Buffer.alloc(end);
  synced.copy(cut, 0, 0, syncedSize);
  let size = syncedSize;
  for (const block of [...touched].sort((one, other) => one - other)) {
    const from = block * BLOCK_BYTES;
    if (from >= now.length || isLost()) continue;
    const to = Math.min(from + BLOCK_BYTES, now.length);
    now.copy(cut, from, from, to);
    size = Math.max(size, to);
  }
  return cut.subarray(0, size);
}

async function filesBelow(root: string): Promise<readonly string[]> {
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}
