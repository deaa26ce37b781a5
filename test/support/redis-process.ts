// A Redis of a test's own: real, on loopback, durable as this project asks for it.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { type AddressInfo, connect, createServer } from "node:net";
import { until } from "./until.ts";

const READY_MS = 15_000;
const STOP_MS = 10_000;

export interface RedisProcess {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  stop(): Promise<void>;
}

/** Starts redis-server over `dir`, which is made if need be; the same port again continues where it was. */
export async function startRedis(dir: string, port?: number): Promise<RedisProcess> {
  await mkdir(dir, { recursive: true });
  const at = port ?? (await freePort());
  const settings = { port: String(at), bind: "127.0.0.1", dir, appendonly: "yes", appendfsync: "always", save: "", "maxmemory-policy": "noeviction" };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  const child = spawn("redis-server", args, { stdio: ["ignore", "ignore", "inherit"] });
  const failed = new Promise<never>((_, reject) => child.once("error", reject));
  await Promise.race([failed, until(() => accepts(at), { timeoutMs: READY_MS, what: `redis-server on port ${at}` })]);
  return { url: `redis://127.0.0.1:${at}`, port: at, pid: child.pid ?? 0, stop: () => stop(child) };
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
  await gone;
  clearTimeout(timer);
}
