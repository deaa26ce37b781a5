// What a hand is: its processes, its files, its repositories, the layers of its image, and what is said to it.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { IN_MEMORY, MARKED } from "../encodings.ts";
import { HOLDER, memoryOf, readProc, rootOf } from "../processes.ts";
import { OVERLAP_BYTES, type Piece } from "../search.ts";
import { filesIn } from "./files.ts";
import { asBytes, ofBytes, ofText, type Planted, type Scene, type Surface } from "./surface.ts";

const run = promisify(execFile);
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;
const PLANTED_S = "600";
/** Folders of a hand that hold more than its image does. */
const FOLDERS = ["workspace", "tmp", "run", "etc", "mnt", "home", "root", "var", "opt", "dev/shm"];

async function docker(args: readonly string[], input?: Buffer, host?: string): Promise<Buffer> {
  const child = spawn("docker", [...(host === undefined ? [] : ["-H", host]), ...args], { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.on("error", () => {});
  child.stdin.end(input);
  const pieces: Buffer[] = [];
  child.stdout.on("data", (piece: Buffer) => pieces.push(piece));
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`docker ${args[0]} ended with ${code}`);
  return Buffer.concat(pieces);
}

/** The ids, on this machine, of all that runs in the hand. */
async function processesOf({ container }: Scene): Promise<readonly number[]> {
  const { stdout } = await run("docker", ["top", container, "-eo", "pid"]);
  return stdout
    .split("\n")
    .slice(1)
    .filter((line) => line.trim() !== "")
    .map(Number);
}

/** The user whom the hand's repository belongs to. */
async function ownerOf(scene: Scene): Promise<string> {
  const [first] = await processesOf(scene);
  const { uid, gid } = await stat(join(rootOf(first ?? 0), "workspace/repo"));
  return `${uid}:${gid}`;
}

/** A file for each. */
async function tarOf({ house }: Scene, planted: readonly Planted[]): Promise<Buffer> {
  const folder = await mkdtemp(join(house.folder, "planted-"));
  for (const [at, { bytes }] of planted.entries()) await writeFile(join(folder, `planted-${at}`), bytes);
  const names = planted.map((_each, at) => `planted-${at}`);
  const { stdout } = await run("tar", ["-C", folder, "-cf", "-", ...names], { encoding: "buffer", maxBuffer: OUTPUT_BYTES_MAX });
  await rm(folder, { recursive: true });
  return stdout;
}

async function* procOf(scene: Scene, names: readonly string[]): AsyncGenerator<Piece> {
  for (const pid of await processesOf(scene))
    for (const name of names) {
      const bytes = await readProc(pid, name);
      if (bytes !== null) yield { place: `/proc/*/${name}`, bytes };
    }
}

export const environment: Surface = ofText(
  "a hand's environment",
  async function* (scene) {
    yield* procOf(scene, ["environ"]);
    yield { place: "what the engine knows", bytes: await docker(["inspect", scene.container]) };
  },
  async ({ container }, text) => {
    await docker(["exec", "-d", "-e", `PLANTED=${text}`, container, "sleep", PLANTED_S]);
  },
);

export const processes: Surface = ofText(
  "a hand's processes",
  (scene) => procOf(scene, ["cmdline", "comm", "status", "mountinfo"]),
  async ({ container }, text) => {
    await docker(["exec", "-d", container, "sh", "-c", `sleep ${PLANTED_S}; true`, text]);
  },
);

export const files: Surface = ofBytes(
  "a hand's files",
  async function* (scene) {
    const [first] = await processesOf(scene);
    if (first === undefined) throw new Error("the hand is gone");
    for (const folder of FOLDERS) yield* filesIn({ name: folder, folder: join(rootOf(first), folder) });
  },
  async (scene, planted) => void (await docker(["exec", "-i", scene.container, "tar", "-x", "-C", "/tmp"], await tarOf(scene, planted))),
);

/** Files of the repository, and its objects unpacked. */
export const repositories: Surface = {
  name: "a hand's .git",
  encodings: MARKED,
  async *read(scene) {
    const hands = join(scene.house.data, "hands/sandboxes");
    let seen = 0;
    for (const hand of await readdir(hands)) {
      const folder = join(hands, hand, "workspace/repo/.git");
      const args = ["-c", "safe.directory=*", "-C", folder, "cat-file", "--batch-all-objects", "--batch"];
      const objects = await run("git", args, { encoding: "buffer", maxBuffer: OUTPUT_BYTES_MAX }).catch(() => null);
      if (objects === null) continue;
      seen += 1;
      yield { place: "objects", bytes: objects.stdout };
      yield* filesIn({ name: ".git", folder });
    }
    if (seen === 0) throw new Error("no hand has a repository");
  },
  async plant(scene, planted) {
    const store = "mkdir /tmp/objects && tar -x -C /tmp/objects && git hash-object -w /tmp/objects/*";
    const command = ["exec", "-i", "-u", await ownerOf(scene), "-w", "/workspace/repo", scene.container, "sh", "-c", store];
    await docker(command, await tarOf(scene, planted));
  },
};

/** What `docker save` writes of the image, and the container's own layer over it. */
export const layers: Surface = {
  name: "layers of a hand's image",
  encodings: MARKED,
  async *read(scene) {
    const image = (await docker(["inspect", "-f", "{{.Image}}", scene.container])).toString().trim();
    for (const each of [image, ...scene.images]) {
      yield { place: "what the engine knows", bytes: await docker(["image", "inspect", each]) };
      yield* streamOf(["save", each], "layers");
    }
  },
  async plant(scene, planted) {
    const name = `manyhands-planted-${process.pid}-${scene.container.slice(0, 12)}`;
    scene.endings.push(() => docker(["image", "rm", "-f", name]));
    await docker(["import", "-", name], await tarOf(scene, planted));
    scene.images.push(name);
  },
};

async function* streamOf(args: readonly string[], place: string): AsyncGenerator<Piece> {
  const child = spawn("docker", args, { stdio: ["ignore", "pipe", "inherit"] });
  let kept: Buffer[] = [];
  let bytes = 0;
  for await (const piece of child.stdout as AsyncIterable<Buffer>) {
    kept.push(piece);
    bytes += piece.length;
    if (bytes < STREAM_PIECE_BYTES) continue;
    const all = Buffer.concat(kept);
    yield { place, bytes: all, isPlain: true };
    kept = [Buffer.from(all.subarray(bytes - OVERLAP_BYTES))];
    bytes = OVERLAP_BYTES;
  }
  // The end of a small image is all of it: it is looked into.
  yield { place, bytes: Buffer.concat(kept) };
}
const STREAM_PIECE_BYTES = 4 * 1024 * 1024;

/** What hand host and engine say to each other: the hands' standard input and output among it. */
export const engine: Surface = {
  name: "what is said to a hand",
  encodings: MARKED,
  *read({ house }) {
    for (const tap of house.taps.filter(({ name }) => name === "hand host and engine")) {
      yield* tap.bytes();
      for (const { bodies } of tap.messages()) yield* bodies.map((piece) => ({ ...piece, bytes: unframed(piece.bytes) }));
    }
  },
  async plant({ house, container }, planted) {
    await docker(["exec", "-i", container, "cat"], asBytes(planted), `unix://${join(house.folder, "engine.sock")}`);
  },
};

/** The engine's frames put together; other bytes as they are. */
function unframed(bytes: Buffer): Buffer {
  const pieces: Buffer[] = [];
  let at = 0;
  while (at + 8 <= bytes.length && (bytes[at] ?? 9) <= 2 && bytes.readUIntBE(at + 1, 3) === 0) {
    const length = bytes.readUInt32BE(at + 4);
    pieces.push(bytes.subarray(at + 8, at + 8 + length));
    at += 8 + length;
  }
  return pieces.length === 0 ? bytes : Buffer.concat(pieces);
}

/** Memory of everything that runs in the hand, the runner's first of all. */
export const memory: Surface = {
  name: "core of a hand's processes",
  encodings: IN_MEMORY,
  async *read(scene) {
    for (const pid of await processesOf(scene)) yield* memoryOf(pid, "a process in the hand");
  },
  async plant(scene, planted) {
    const child = spawn("docker", ["exec", "-i", scene.container, "node", "-e", HOLDER], { stdio: ["pipe", "pipe", "inherit"] });
    scene.endings.push(() => child.kill("SIGKILL"));
    child.stdin.end(asBytes(planted));
    await once(child.stdout, "data");
  },
};
