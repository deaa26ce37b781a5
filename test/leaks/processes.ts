// What the kernel shows of a process: its arguments, its environment, its memory. Memory is read whole, as a core file would have it: every page that
// the process may write to.
//
//   M1  Other users' processes (a container's) and other processes' memory are readable for root alone.

import { type FileHandle, open, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { OVERLAP_BYTES, type Piece } from "./search.ts";

const BLOCK_BYTES = 1024 * 1024;
const ZEROS = Buffer.alloc(BLOCK_BYTES);

/** A program that keeps in its memory what comes on its standard input, as bytes and as a text, and says when it has it. */
export const HOLDER = `const pieces = [];
process.stdin.on("data", (piece) => pieces.push(piece)).on("end", () => {
  globalThis.kept = [Buffer.concat(pieces), Buffer.concat(pieces).toString("latin1")];
  console.log("holding");
});
setTimeout(() => {}, 600_000);`;

/** Whether the memory of other processes can be read here. M1 */
export const isRoot = (): boolean => process.getuid?.() === 0;

/** Null: it is gone, or hidden. */
export async function readProc(pid: number, name: string): Promise<Buffer | null> {
  try {
    return await readFile(`/proc/${pid}/${name}`);
  } catch {
    return null;
  }
}

/** These processes and all that came of them and lives. */
export async function familyOf(...pids: readonly number[]): Promise<readonly number[]> {
  const children = new Map<number, number[]>();
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const stat = (await readProc(Number(name), "stat"))?.toString("latin1");
    // The second field, in brackets, is a name that may hold anything.
    const parent = Number(stat?.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
    children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
  }
  const family = new Set(pids);
  for (const each of family) for (const child of children.get(each) ?? []) family.add(child);
  return [...family];
}

/** Everything that a process has in memory of its own. Yields blocks that overlap. */
export async function* memoryOf(pid: number, place: string): AsyncGenerator<Piece> {
  const maps = (await readProc(pid, "maps"))?.toString("latin1") ?? "";
  const memory = await open(`/proc/${pid}/mem`, "r").catch((error: unknown) => {
    // It ended meanwhile, and its memory with it.
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw error;
  });
  if (memory === null) return;
  try {
    for (const line of maps.split("\n")) {
      const range = /^([0-9a-f]+)-([0-9a-f]+) rw.p \S+ \S+ \S+\s*(.*)$/.exec(line);
      if (range === null || range[3] === "[vvar]") continue;
      yield* regionOf(memory, place, Number.parseInt(range[1] ?? "", 16), Number.parseInt(range[2] ?? "", 16));
    }
  } finally {
    await memory.close();
  }
}

async function* regionOf(memory: FileHandle, place: string, from: number, to: number): AsyncGenerator<Piece> {
  let kept: Buffer = Buffer.alloc(0);
  for (let at = from; at < to; at += BLOCK_BYTES) {
    const block = Buffer.allocUnsafe(Math.min(to - at, BLOCK_BYTES));
    const read = await readAt(memory, block, at);
    const got = block.subarray(0, read);
    if (read === 0 || got.equals(ZEROS.subarray(0, read))) {
      kept = Buffer.alloc(0);
      continue;
    }
    yield { place, bytes: kept.length === 0 ? got : Buffer.concat([kept, got]), isPlain: true };
    kept = Buffer.from(got.subarray(Math.max(0, got.length - OVERLAP_BYTES)));
  }
}

async function readAt(memory: FileHandle, block: Buffer, at: number): Promise<number> {
  try {
    return (await memory.read(block, 0, block.length, at)).bytesRead;
  } catch (error) {
    // The process gave the region back meanwhile, or is gone.
    if (error instanceof Error && "code" in error && ["EIO", "EFAULT", "ESRCH"].includes(String(error.code))) return 0;
    throw error;
  }
}

/** What a process would let its own children see: the folders of its world, seen from outside. */
export const rootOf = (pid: number): string => join("/proc", String(pid), "root");
