// What programs show: their output, their arguments and environments, their memory, what is on their pages, and the files that they leave.

import { readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startNode } from "../../support/process.ts";
import { until } from "../../support/until.ts";
import { IN_MEMORY, TEXTS_IN_MEMORY } from "../encodings.ts";
import { SNAPSHOT_SIGNAL } from "../house.ts";
import { familyOf, HOLDER, memoryOf, readProc } from "../processes.ts";
import type { Piece } from "../search.ts";
import { changedIn, filesIn } from "./files.ts";
import { asBytes, ofBytes, ofText, type Planted, type Scene, type Surface } from "./surface.ts";

const SNAPSHOT_MS = 60_000;
const PRINTER = `process.stdin.on("data", (piece) => { pieces.push(piece); }).on("end", () => {
  const text = Buffer.concat(pieces).toString("latin1");
  console.log(JSON.stringify({ level: 30, msg: "planted", text }));
  console.error(text);
  console.log(text);
  console.log(JSON.stringify({ msg: "done" }));
}); const pieces = [];`;

/** Everything that any program wrote: those that were killed, commands, and what the launcher passed on. */
export const logs: Surface = ofText(
  "logs",
  function* ({ house, beside }) {
    for (const { lines, stdout, stderr } of [...house.programs, ...beside.map(({ program }) => program)]) {
      yield { place: "log lines", bytes: Buffer.from(lines.map((line) => JSON.stringify(line)).join("\n")) };
      yield { place: "standard output", bytes: Buffer.from(stdout) };
      yield { place: "standard error", bytes: Buffer.from(stderr) };
    }
  },
  async (scene, text) => {
    const program = startNode(["-e", PRINTER]);
    scene.beside.push({ role: "printer", program });
    program.type(text);
    program.closePipe();
    await program.logged("done");
  },
);

async function* procOf({ house, beside }: Scene, name: string): AsyncGenerator<Piece> {
  const planted = beside.filter(({ program }) => !program.hasExited).map(({ program }) => program.pid);
  for (const pid of await familyOf(...house.running.map((each) => each.pid), ...planted)) {
    const bytes = await readProc(pid, name);
    if (bytes !== null) yield { place: name, bytes };
  }
}

export const argumentsOf: Surface = ofText(
  "arguments of programs",
  async function* (scene) {
    yield* procOf(scene, "cmdline");
    yield* procOf(scene, "comm");
  },
  async (scene, text) => void (await hold(scene, "arguments", [], ["-e", HOLDER, text])),
);

/** The vault proxy's too: a key that came by a file is in no environment. */
export const environments: Surface = ofText(
  "environments of programs",
  (scene) => procOf(scene, "environ"),
  async (scene, text) => void (await hold(scene, "environment", [], ["-e", HOLDER], { PLANTED: text })),
);

/** A process that has it in its memory, beside the one of that role. */
async function hold(scene: Scene, role: string, planted: readonly Planted[], args = ["-e", HOLDER], env: Record<string, string> = {}) {
  const program = startNode(args, { env });
  scene.beside.push({ role, program });
  scene.endings.push(() => program[Symbol.asyncDispose]());
  program.feed(asBytes(planted));
  await until(() => program.stdout.includes("holding"), { what: "a process that holds what was planted" });
  return program;
}

/** Of each program of the role, and the threads and children that it has. */
export const coreOf = (role: "worker" | "hands" | "launcher"): Surface => ({
  name: `core of the ${role === "hands" ? "hand host" : role}`,
  encodings: IN_MEMORY,
  async *read({ house, beside }) {
    const pids = house.running.filter((each) => each.role === role).map(({ pid }) => pid);
    if (pids.length === 0) throw new Error(`no ${role} runs`);
    for (const { program } of beside.filter((each) => each.role === role)) pids.push(program.pid);
    // What a program started is of its kind, unless it is one of ours: the launcher started the vault proxy.
    const others = new Set(await familyOf(...house.running.filter((each) => each.role !== role && each.role !== "launcher").map(({ pid }) => pid)));
    for (const pid of await familyOf(...pids)) if (!others.has(pid)) yield* memoryOf(pid, role);
  },
  async plant(scene, planted) {
    await hold(scene, role, planted);
  },
});

/** The heap of a process as V8 writes it down, its strings in full. */
async function snapshotOf(pid: number, folder: string): Promise<Piece> {
  const before = new Set(await readdir(folder));
  process.kill(pid, SNAPSHOT_SIGNAL);
  const text = await until(
    async () => {
      const name = (await readdir(folder)).find((each) => each.endsWith(".heapsnapshot") && !before.has(each));
      const written = name === undefined ? "" : await readFile(join(folder, name), "utf8");
      if (name === undefined || !written.trimEnd().endsWith("}")) return null;
      await rm(join(folder, name));
      return written;
    },
    { timeoutMs: SNAPSHOT_MS, pollMs: 200, what: "a heap snapshot" },
  );
  const { strings } = JSON.parse(text) as { strings: readonly string[] };
  return { place: "a string", bytes: Buffer.from(strings.join("\n")), isPlain: true };
}

export const heap: Surface = {
  name: "heap of the gateway",
  encodings: TEXTS_IN_MEMORY,
  async *read({ house, beside }) {
    const folder = join(house.folder, "snapshots");
    const pids = house.running.filter(({ role }) => role === "gateway").map(({ pid }) => pid);
    if (pids.length === 0) throw new Error("no gateway runs");
    for (const { program } of beside.filter(({ role }) => role === "heap")) pids.push(program.pid);
    for (const pid of pids) yield await snapshotOf(pid, folder);
  },
  async plant(scene, planted) {
    await hold(scene, "heap", planted, [...scene.house.snapshotFlags, "-e", HOLDER]);
  },
};

const PAGES = ["/metrics", "/healthz", "/readyz", "/openapi.json"];

/** What is there without a key, metrics among it. */
export const pages: Surface = ofText(
  "metrics and open pages",
  async function* ({ origins }) {
    for (const origin of origins)
      for (const path of PAGES) {
        const answer = await fetch(`${origin}${path}`);
        yield { place: path, bytes: Buffer.from(await answer.arrayBuffer()) };
      }
  },
  async (scene, text) => {
    const server = createServer((_req, res) => res.end(text));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("no address");
    scene.origins.push(`http://127.0.0.1:${address.port}`);
    scene.endings.push(() => server.close());
  },
);

const plantFiles = async (folder: string, planted: readonly Planted[]): Promise<void> => {
  for (const [at, { bytes }] of planted.entries()) await writeFile(join(folder, `planted-${at}`), bytes);
};

/** The vault proxy's own folder: it rests sealed there. */
export const vaultFolder: Surface = ofBytes(
  "the vault at rest",
  ({ house }) => filesIn({ name: "vault", folder: join(house.data, "vault") }),
  ({ house }, planted) => plantFiles(join(house.data, "vault"), planted),
);

/** Keys, the hand host's ledger and folders, whatever else is kept. The store and the vault are surfaces of their own. */
export const dataFolder: Surface = ofBytes(
  "data folder",
  ({ house }) =>
    filesIn({ name: "data", folder: house.data, isLeftOut: (path) => ["vault", "session-store"].some((name) => path === join(house.data, name)) }),
  ({ house }, planted) => plantFiles(join(house.data, "hands"), planted),
);

/** The programs' own, and what came into this machine's since the run began. */
export const temporaryFiles: Surface = ofBytes(
  "temporary files",
  async function* ({ house, startedAt }) {
    yield* filesIn({ name: "tmp", folder: join(house.folder, "tmp") });
    for (const folder of new Set([tmpdir(), "/tmp", "/var/tmp", "/dev/shm"])) yield* changedIn(folder, startedAt, house.folder);
  },
  ({ house }, planted) => plantFiles(join(house.folder, "tmp"), planted),
);
