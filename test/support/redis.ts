// A private, real redis-server for a test: its own port, its own folder, gone when the test is over.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./free-port.ts";
import { isThere } from "./real-part.ts";

const START_MAX_MS = 10_000;
const STOP_MAX_MS = 5_000;

export interface RedisOptions {
  readonly appendfsync?: "always" | "everysec" | "no";
  /** More of redis-server's own arguments, like `--maxmemory 10mb`. */
  readonly args?: readonly string[];
}

export interface TestRedis {
  readonly url: string;
  readonly port: number;
  /** kill -9; resolves when the process is gone. */
  kill(): Promise<void>;
  /** Starts it again on the same port and data. */
  restart(): Promise<void>;
  pause(): void;
  resume(): void;
  /** One command in Redis's inline form, as text; for what a test does to the server itself. */
  command(line: string): Promise<string>;
  stop(): Promise<void>;
}

export async function startRedis({ appendfsync = "always", args = [] }: RedisOptions = {}): Promise<TestRedis> {
  if (!isThere("redis-server")) throw new Error("redis-server is not on PATH: install it (Debian: apt-get install redis-server) to run this.");
  const dir = await mkdtemp(join(tmpdir(), "manyhands-redis-"));
  const port = await freePort();
  const all = ["--port", `${port}`, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", appendfsync, ...args];
  let child = await start(all, port);

  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    kill: () => end(child),
    restart: async () => {
      await end(child);
      child = await start(all, port);
    },
    pause: () => void child.kill("SIGSTOP"),
    resume: () => void child.kill("SIGCONT"),
    command: (line) => inline(port, line),
    stop: async () => {
      await end(child);
      await rm(dir, { recursive: true, force: true });
    },
  };
}

async function start(args: readonly string[], port: number): Promise<ChildProcess> {
  const child = spawn("redis-server", args, { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk) => (said = `${said}${chunk}`.slice(-4_000)));
  // A test that dies leaves no server behind.
  const orphan = () => child.kill("SIGKILL");
  process.once("exit", orphan);
  child.once("exit", () => process.off("exit", orphan));
  const deadline = Date.now() + START_MAX_MS;
  while (child.exitCode === null && child.signalCode === null) {
    // A server that wants a password is up as well.
    if (/^(\+PONG|-NOAUTH)/.test(await inline(port, "PING").catch(() => ""))) return child;
    if (Date.now() > deadline) break;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await end(child);
  throw new Error(`redis-server did not start on port ${port}:\n${said}`);
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit", { signal: AbortSignal.timeout(STOP_MAX_MS) });
  child.kill("SIGKILL");
  await gone;
}

/** The first line of the answer. */
function inline(port: number, line: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createConnection(port, "127.0.0.1", () => socket.write(`${line}\r\n`));
    socket.setTimeout(STOP_MAX_MS, () => socket.destroy(new Error("redis-server does not answer")));
    socket.once("data", (chunk) => {
      resolve(`${chunk}`.split("\r\n")[0] ?? "");
      socket.destroy();
    });
    socket.once("error", reject);
    socket.once("close", () => reject(new Error("redis-server closed the connection")));
  });
}
