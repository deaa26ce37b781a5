// The power cut: a store under load loses its power at a random moment, again and again, and must have what it acknowledged.
//
//   P1  Embedded: the writer with the store in it is killed, the files are cut. Redis: the server is killed, its files are cut; the writer lives on
//       for a moment and is killed too. What the writer had said on its stdout by then is what was acknowledged.
//   P2  A fresh process reads. Lost: an acknowledged entry that is not in its place with its content. Doubled: an entry that stands twice.
//       Broken: positions, times, fences or records that contradict each other, or a session that does not come to rest.
//   P3  A store that only seems to be durable must lose something under the same cuts; otherwise the cut is blind and proves nothing.
//   P4  SQLite's files are cut at any block that was not synced, in any order. Redis's append-only file loses a tail: file systems let a file grow in
//       order, and Redis promises nothing about a hole in it (it refuses to start until redis-check-aof has been there).

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Stored } from "../../session-store/entry.ts";
import type { SessionId } from "../../session-store/ids.ts";
import { disagreementOf, disorderOf, doubledOf, lostOf } from "../chaos/checkers.ts";
import type { Appendfsync } from "../chaos/redis-server.ts";
import { freePort, startRedis } from "../chaos/redis-server.ts";
import type { Chance } from "../chaos/seed.ts";
import { until } from "../support/until.ts";
import { cutPower, markedEnv } from "./cut.ts";
import type { Line } from "./power-cut-program.ts";

const WRITER_MS_MIN = 200;
const WRITER_MS_MAX = 1_200;
const FIRST_LINE_MS = 90_000;
const READER_MS = 120_000;
/** How long a Redis writer may still hear answers that had left before the cut. */
const LAST_ANSWERS_MS = 200;

export interface CutSetting {
  readonly chance: Chance;
  readonly cuts: number;
  readonly shim: string;
  /** Folder of built JavaScript. */
  readonly dist: string;
  /** A folder of the test's own. */
  readonly work: string;
}

export interface CutRow {
  readonly store: "embedded" | "redis";
  readonly setting: string;
  readonly cuts: number;
  readonly acknowledged: number;
  readonly lost: number;
  readonly doubled: number;
  readonly cutsWithLoss: number;
  /** What was wrong, the first of each cut; empty on a store that keeps its promises. */
  readonly faults: readonly string[];
}

/** Cuts the embedded store's power. `setting` names how `dist` is set. */
export async function cutEmbedded(setting: string, options: CutSetting): Promise<CutRow> {
  const root = await mkdtemp(join(options.work, "embedded-"));
  return cutAgain("embedded", setting, options, async (name) => {
    const marks = await freshMarks(root);
    const data = join(root, "data");
    await mkdir(data, { recursive: true });
    const writer = startWriter(options.dist, [data, name], markedEnv(options.shim, data, marks));
    await writer.run(options.chance.between(WRITER_MS_MIN, WRITER_MS_MAX));
    const said = await writer.kill();
    await cutPower(data, marks, anyBlock(options.chance));
    return { said, found: await readBack(options.dist, [data, name]) };
  });
}

/** Cuts a Redis server's power. */
export async function cutRedis(appendfsync: Appendfsync, options: CutSetting): Promise<CutRow> {
  const root = await mkdtemp(join(options.work, "redis-"));
  const [data, port] = [join(root, "data"), await freePort()];
  await mkdir(data);
  return cutAgain("redis", appendfsync, options, async (name) => {
    const marks = await freshMarks(root);
    const server = await startRedis({ dir: data, port, appendfsync, env: markedEnv(options.shim, data, marks) });
    const writer = startWriter(options.dist, [root, name, server.url], {});
    try {
      await writer.run(options.chance.between(WRITER_MS_MIN, WRITER_MS_MAX));
    } finally {
      await server.kill();
    }
    await new Promise((resolve) => setTimeout(resolve, LAST_ANSWERS_MS));
    const said = await writer.kill();
    await cutPower(data, marks, tailOf(options.chance));
    const restarted = await startRedis({ dir: data, port, appendfsync: "always" });
    try {
      return { said, found: await readBack(options.dist, [root, name, restarted.url]) };
    } finally {
      await restarted.shutdown();
    }
  });
}

interface Cut {
  readonly said: readonly Line[];
  readonly found: readonly Line[];
}

async function cutAgain(store: CutRow["store"], setting: string, options: CutSetting, cutOnce: (name: string) => Promise<Cut>): Promise<CutRow> {
  const sum = { acknowledged: 0, lost: 0, doubled: 0, cutsWithLoss: 0 };
  const faults: string[] = [];
  for (let cut = 1; cut <= options.cuts; cut += 1) {
    const { said, found } = await cutOnce(`cut ${cut} of ${options.chance.seed}`);
    const verdict = judge(said, found);
    sum.acknowledged += verdict.acknowledged;
    sum.lost += verdict.lost.length;
    sum.doubled += verdict.doubled.length;
    if (verdict.lost.length > 0) sum.cutsWithLoss += 1;
    const first = [...verdict.lost, ...verdict.doubled, ...verdict.broken][0];
    if (first !== undefined) faults.push(`cut ${cut}: ${first}`);
  }
  return { store, setting, cuts: options.cuts, ...sum, faults };
}

/** P2 */
function judge(said: readonly Line[], found: readonly Line[]) {
  const acknowledged = new Map<SessionId, Stored[]>();
  for (const line of said)
    if (line.type === "acknowledged") acknowledged.set(line.session, [...(acknowledged.get(line.session) ?? []), ...line.stored]);
  const logs = new Map(found.flatMap((line) => (line.type === "found" ? ([[line.record.id, line]] as const) : [])));
  const drained = found.find((line) => line.type === "drained");
  const lost = [...acknowledged].flatMap(([id, stored]) => lostOf(stored, logs.get(id)?.log ?? []).map((fault) => `${id}: ${fault}`));
  const each = (check: (line: Extract<Line, { type: "found" }>) => readonly string[]) =>
    [...logs].flatMap(([id, line]) => check(line).map((fault) => `${id}: ${fault}`));
  return {
    acknowledged: [...acknowledged.values()].reduce((sum, stored) => sum + stored.length, 0),
    lost,
    doubled: each(({ log }) => doubledOf(log)),
    broken: [
      ...each(({ log }) => disorderOf(log)),
      ...each(({ record, log }) => disagreementOf(record, log)),
      ...(drained ? drained.stuck.map((id) => `${id} did not come to rest`) : ["the reader did not get to its end"]),
    ],
  };
}

/** Half of the cuts lose every block that was not synced, half of them each block by a coin. */
function anyBlock(chance: Chance): () => boolean {
  if (chance.next() < 0.5) return () => true;
  return () => chance.next() < 0.5;
}

/** P4: from the first lost block on all are lost. */
function tailOf(chance: Chance): () => boolean {
  const lost = anyBlock(chance);
  let isOver = false;
  return () => {
    isOver ||= lost();
    return isOver;
  };
}

async function freshMarks(root: string): Promise<string> {
  const marks = join(root, "marks");
  await rm(marks, { recursive: true, force: true });
  await mkdir(marks);
  return marks;
}

const programOf = (dist: string) => join(dist, "test", "proof", "power-cut-program.js");

function startWriter(dist: string, args: readonly string[], env: Readonly<Record<string, string>>) {
  const child = spawn(process.execPath, [programOf(dist), "write", ...args], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...env },
  });
  const said: Line[] = [];
  const ended = linesOf(child, (line) => said.push(line));
  return {
    /** Lets it write for so long, counted from its first acknowledgement. */
    run: async (ms: number) => {
      await until(
        () => {
          if (child.exitCode !== null || child.signalCode !== null) throw new Error("the writer ended by itself");
          return said.length > 0;
        },
        { timeoutMs: FIRST_LINE_MS, what: "a first acknowledgement" },
      );
      await new Promise((resolve) => setTimeout(resolve, ms));
    },
    kill: async () => {
      child.kill("SIGKILL");
      await ended;
      return said;
    },
  };
}

async function readBack(dist: string, args: readonly string[]): Promise<readonly Line[]> {
  const child = spawn(process.execPath, [programOf(dist), "read", ...args], { stdio: ["ignore", "pipe", "inherit"] });
  const found: Line[] = [];
  try {
    await within(
      linesOf(child, (line) => found.push(line)),
      READER_MS,
      "the reader did not end",
    );
  } finally {
    child.kill("SIGKILL");
  }
  if (child.exitCode !== 0) throw new Error(`the reader ended with ${child.exitCode ?? child.signalCode}`);
  return found;
}

/** Calls `hear` for each whole line; resolves when the child is gone and its output read. A line that the kill tore is none. */
async function linesOf(child: ChildProcess, hear: (line: Line) => void): Promise<void> {
  if (child.stdout === null) throw new Error("the child has no stdout");
  const gone = once(child, "close");
  let rest = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) hear(JSON.parse(line) as Line);
  });
  await gone;
}

async function within<T>(promise: Promise<T>, ms: number, otherwise: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => (timer = setTimeout(() => reject(new Error(otherwise)), ms)));
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The rows as a table for people. */
export function tableOf(rows: readonly CutRow[]): string {
  const head = ["store", "setting", "cuts", "acknowledged", "lost", "doubled", "cuts with loss"];
  const lines = [
    head,
    ...rows.map((row) => [row.store, row.setting, row.cuts, row.acknowledged, row.lost, row.doubled, row.cutsWithLoss].map(String)),
  ];
  const widths = head.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines.map((line) => line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")).join("\n");
}
