// The leak scan: an installation of real programs plays the scenario with canaries for secrets, and then every surface is searched for them.
//
//   L1  Something is planted on every surface, in every encoding that can stand there, before anything is read. It is found by the same reading as
//       a leak would be; a plant that is not found means that the scan counts for nothing.
//   L2  What is told of findings has names in it, never a canary.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { LABEL } from "../../hands/docker/container.ts";
import { until } from "../support/until.ts";
import { isPlant, plantName } from "./canaries.ts";
import type { Kind } from "./house.ts";
import { ARRIVALS } from "./outside.ts";
import { play, type Run } from "./scenario.ts";
import { type Finding, Search } from "./search.ts";
import * as hands from "./surfaces/hands.ts";
import * as programs from "./surfaces/programs.ts";
import * as stores from "./surfaces/stores.ts";
import type { Scene, Surface } from "./surfaces/surface.ts";
import * as wire from "./surfaces/wire.ts";

/** After the last secret passed the gateway, its heap is looked at. */
const AFTER_MS = 60_000;

const EVERYWHERE: readonly Surface[] = [
  hands.environment,
  hands.processes,
  hands.files,
  hands.repositories,
  hands.engine,
  hands.memory,
  stores.toolInputs,
  stores.toolResults,
  stores.sessionLog,
  wire.urls,
  wire.headers,
  wire.bodies,
  wire.streams,
  wire.mcp,
  wire.errors,
  wire.lines,
  programs.logs,
  programs.pages,
  programs.argumentsOf,
  programs.environments,
  programs.coreOf("hands"),
  programs.dataFolder,
  programs.vaultFolder,
  programs.temporaryFiles,
];

const SURFACES: Readonly<Record<Kind, readonly Surface[]>> = {
  apart: [...EVERYWHERE, hands.layers, stores.appendOnlyFiles, stores.keyspace, stores.redisTraffic, programs.coreOf("worker"), programs.heap],
  "npm start": [...EVERYWHERE, stores.embedded, programs.coreOf("launcher")],
};

export interface Scanned {
  /** Canaries that did not come where they should have: then nothing was tried. */
  readonly unused: readonly string[];
  readonly leaks: readonly Finding[];
  /** What was planted and not found. */
  readonly missed: readonly string[];
  readonly planted: number;
  readonly surfaces: number;
  readonly bytes: number;
}

export async function scan(run: Run, kind: Kind): Promise<Scanned> {
  const startedAt = Date.now();
  const played = await play(run);
  const container = await containerOf(played.main);
  const { house, outside, canaries } = run;
  const endings: Scene["endings"] = [];
  const scene: Scene = {
    ...run,
    played,
    startedAt,
    container,
    images: [],
    beside: [],
    taps: [...house.taps],
    origins: [house.own],
    endings,
  };
  const surfaces = SURFACES[kind];
  try {
    for (const surface of surfaces) {
      await plantOn(scene, surface);
      run.tell(`planted: ${surface.name}`);
    }
    const search = new Search(canaries);
    for (const surface of surfaces.filter((each) => each !== programs.heap)) {
      await look(search, scene, surface);
      run.tell(`read: ${surface.name}, ${search.looked.get(surface.name)} bytes`);
    }
    if (surfaces.includes(programs.heap)) {
      await until(() => performance.now() > played.givenAt + AFTER_MS, { timeoutMs: 2 * AFTER_MS, pollMs: 500 });
      await look(search, scene, programs.heap);
      run.tell("read: heap of the gateway");
    }
    const blind = surfaces.filter(({ name }) => (search.looked.get(name) ?? 0) === 0);
    if (blind.length > 0) throw new Error(`Nothing was read on: ${blind.map(({ name }) => name).join(", ")}`);
    const found = new Map(surfaces.map(({ name }) => [name, search.namesOn(name)]));
    const names = surfaces.flatMap(({ name, encodings }) => encodings.map((encoding) => [name, plantName(name, encoding.name)] as const));
    return {
      unused: ARRIVALS.filter((each) => !outside.arrived.has(each)),
      leaks: search.findings.filter(({ canary }) => !isPlant(canary)),
      missed: names.filter(([surface, name]) => !found.get(surface)?.has(name)).map(([, name]) => name),
      planted: names.length,
      surfaces: surfaces.length,
      bytes: [...search.looked.values()].reduce((sum, bytes) => sum + bytes, 0),
    };
  } finally {
    for (const end of endings) await end();
  }
}

/** L1 */
async function plantOn(scene: Scene, { name, encodings, plant }: Surface): Promise<void> {
  const planted = encodings.map((encoding) => {
    const secret = scene.canaries.of(plantName(name, encoding.name));
    return { encoding: encoding.name, secret, bytes: encoding.write(secret) };
  });
  await plant(scene, planted);
}

async function look(search: Search, scene: Scene, surface: Surface): Promise<void> {
  for await (const piece of surface.read(scene)) search.look(surface.name, piece);
}

async function containerOf(session: string): Promise<string> {
  const { stdout } = await promisify(execFile)("docker", ["ps", "-q", "--no-trunc", "--filter", `label=${LABEL.session}=${session}`]);
  const [id] = stdout.trim().split("\n");
  if (id === undefined || id === "") throw new Error("the session's hand is gone");
  return id;
}
