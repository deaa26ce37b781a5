// A real container engine for tests: the image, drivers over it, and a door in between that can make its answers go wrong.

import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Duplex } from "node:stream";
import { pino } from "pino";
import { LABEL, type Limits, nameOf } from "../../hands/docker/container.ts";
import { dockerDriver } from "../../hands/docker/driver.ts";
import { connect, type Engine, statusOf } from "../../hands/docker/engine.ts";
import { buildImage } from "../../hands/docker/image.ts";
import type { SandboxDriver } from "../../hands/sandbox.ts";
import { mint } from "../../session-store/ids.ts";
import { ENGINE_SOCKET } from "./real-part.ts";

export const IMAGE = "manyhands-hand";
/** Making it reads some thousand files of this machine. */
export const IMAGE_MS = 600_000;
const BUILT = new URL("../../dist/hands/", import.meta.url);

export const engine: Engine = connect({ socketPath: ENGINE_SOCKET });

/** The image that `npm run image` makes; made if it isn't there. */
export async function ensureImage(): Promise<void> {
  try {
    await engine.getImage(IMAGE).inspect();
  } catch (error) {
    if (statusOf(error) !== 404) throw error;
    await buildImage(engine, IMAGE);
  }
}

export interface Rig {
  readonly driver: SandboxDriver;
  /** The owner of its containers. */
  readonly host: string;
  /** A new, empty folder of a hand. */
  folder(): Promise<string>;
  /** The containers of a hand's folder, or of all. */
  containers(folder?: string): Promise<readonly { readonly Id: string; readonly State: string }[]>;
  /** Removes every container and folder of this rig. */
  clean(): Promise<void>;
}

export interface RigOptions {
  readonly socketPath?: string;
  readonly limits?: Partial<Limits>;
  readonly containersMax?: number;
  readonly image?: string;
  /** The vault proxy, through which its sandboxes go out. */
  readonly vaultUrl?: string;
}

/** A driver with an owner of its own, so that tests beside each other don't meet. */
export async function makeRig(options: RigOptions = {}): Promise<Rig> {
  const root = await mkdtemp(join(tmpdir(), "hands-docker-"));
  const host = mint("host");
  const limits = { memoryMb: 512, pids: 128, cpus: 2, tmpMb: 64, ...options.limits };
  const driver = await dockerDriver({
    engine: options.socketPath === undefined ? engine : connect({ socketPath: options.socketPath }),
    host,
    image: options.image ?? IMAGE,
    limits,
    containersMax: options.containersMax ?? 8,
    dataDir: root,
    log: pino({ level: "silent" }),
    vaultUrl: options.vaultUrl ?? null,
    built: BUILT,
  });
  const list = (labels: string[]) => engine.listContainers({ all: true, filters: { label: labels } });
  return {
    driver,
    host,
    folder: () => mkdtemp(join(root, "hand-")),
    containers: (folder) => list([`${LABEL.host}=${host}`, ...(folder === undefined ? [] : [`${LABEL.hand}=${basename(folder)}`])]),
    async clean() {
      await removeAll(host);
      await rm(root, { recursive: true, force: true });
    },
  };
}

/** Removes every container of an owner. */
export async function removeAll(host: string): Promise<void> {
  for (const { Id } of await engine.listContainers({ all: true, filters: { label: [`${LABEL.host}=${host}`] } }))
    await engine.getContainer(Id).remove({ force: true, v: true });
}

/** The container of a hand's folder. */
export const containerOf = (folder: string) => engine.getContainer(nameOf(basename(folder)));

/** What becomes of a request: it passes, is refused, or is carried out and then answered with an error. */
type Fate = "pass" | "refuse" | "fail-after";

export interface EngineDoor {
  readonly socketPath: string;
  /** Decides about every request from now on. */
  decide: (method: string, path: string) => Fate;
  /** "METHOD /path" of all that came, without the API's version and the query. */
  readonly seen: string[];
  close(): Promise<void>;
}

export async function openEngineDoor(): Promise<EngineDoor> {
  const folder = await mkdtemp(join(tmpdir(), "engine-door-"));
  const socketPath = join(folder, "engine.sock");
  const door: EngineDoor = {
    socketPath,
    decide: () => "pass",
    seen: [],
    close: async () => {
      for (const socket of upgraded) socket.destroy();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(folder, { recursive: true, force: true });
    },
  };
  const upgraded = new Set<Duplex>();
  const fateOf = (asked: IncomingMessage): Fate => {
    const path = (asked.url ?? "").replace(/\?.*$/, "").replace(/^\/v[\d.]+/, "");
    door.seen.push(`${asked.method} ${path}`);
    return door.decide(asked.method ?? "", path);
  };
  const server = createServer((asked, answer) => {
    const fate = fateOf(asked);
    if (fate === "refuse") return void refuse(answer);
    const onward = request({ socketPath: ENGINE_SOCKET, method: asked.method, path: asked.url, headers: asked.headers }, (said) => {
      if (fate === "fail-after") {
        said.resume();
        said.on("end", () => refuse(answer));
        return;
      }
      answer.writeHead(said.statusCode ?? 500, said.headers);
      said.pipe(answer);
    });
    onward.on("error", () => answer.destroy());
    asked.pipe(onward);
  });
  server.on("upgrade", (asked, inside, head) => {
    if (fateOf(asked) !== "pass") return void inside.destroy();
    const outside = createConnection(ENGINE_SOCKET);
    for (const socket of [inside, outside]) upgraded.add(socket);
    const headers = asked.rawHeaders.flatMap((name, index, all) => (index % 2 === 0 ? [`${name}: ${all[index + 1]}`] : []));
    outside.write(`${asked.method} ${asked.url} HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n`);
    outside.write(head);
    inside.pipe(outside).pipe(inside);
    for (const [one, other] of [
      [inside, outside],
      [outside, inside],
    ] as const) {
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
    }
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return door;
}

function refuse(answer: ServerResponse): void {
  answer.writeHead(500, { "content-type": "application/json" });
  answer.end(JSON.stringify({ message: "the engine is busy" }));
}
