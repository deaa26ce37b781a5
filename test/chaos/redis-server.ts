// A Redis of the test's own: a port and a folder nobody else has, killed with the test.

import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { until } from "../support/until.ts";

const START_MS = 60_000;
const ANSWER_MS = 1_000;

export type Appendfsync = "always" | "everysec";

export interface RedisServer {
  readonly url: string;
  /** kill -9; resolves when it is gone. */
  kill(): Promise<void>;
  /** Ends it in good order, everything on disk. */
  shutdown(): Promise<void>;
}

export interface RedisOptions {
  readonly dir: string;
  readonly port: number;
  readonly appendfsync: Appendfsync;
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts one and waits until it answers, whatever it has to load first. */
export async function startRedis({ dir, port, appendfsync, env = {} }: RedisOptions): Promise<RedisServer> {
  const settings = {
    port,
    bind: "127.0.0.1",
    dir,
    save: "",
    appendonly: "yes",
    appendfsync,
    "auto-aof-rewrite-percentage": 0,
    "maxmemory-policy": "noeviction",
  };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const child = spawn("redis-server", args, { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, ...env } });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (said = (said + text).slice(-4000)));
  const gone = once(child, "exit");
  // A test that dies leaves no server behind.
  const orphan = () => child.kill("SIGKILL");
  process.once("exit", orphan);
  child.once("exit", () => process.off("exit", orphan));
  const end = async (signal: "SIGKILL" | "SIGTERM") => {
    child.kill(signal);
    await gone;
  };
  try {
    await until(
      async () => {
        if (child.exitCode !== null || child.pid === undefined) throw new Error(`redis-server did not start:\n${said}`);
        return (await ask(port, "PING"))?.startsWith("+PONG");
      },
      { timeoutMs: START_MS, what: () => `an answer of redis-server:\n${said}` },
    );
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
  return { url: `redis://127.0.0.1:${port}`, kill: () => end("SIGKILL"), shutdown: () => end("SIGTERM") };
}

/** One inline command on a connection of its own; null when there is no answer. */
async function ask(port: number, command: string): Promise<string | null> {
  const socket = connect(port, "127.0.0.1");
  socket.setTimeout(ANSWER_MS, () => socket.destroy());
  return new Promise((resolve) => {
    socket.once("connect", () => socket.write(`${command}\r\n`));
    socket.once("data", (answer) => {
      resolve(answer.toString());
      socket.destroy();
    });
    socket.once("error", () => resolve(null));
    socket.once("close", () => resolve(null));
  });
}

/** Below the range that the kernel gives to outgoing connections, so that a port stays free while its server is down. */
const PORT_MIN = 20_000;
const PORT_MAX = 29_999;
const PORT_TRIES = 50;

/** A port that nobody listens on at this moment. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < PORT_TRIES; tries += 1) {
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once("error", () => resolve(false));
      server.listen({ port: randomInt(PORT_MIN, PORT_MAX + 1), host: "127.0.0.1", exclusive: true }, () => resolve(true));
    });
    const address = server.address();
    if (!isFree || address === null || typeof address === "string") continue;
    server.close();
    await once(server, "close");
    return address.port;
  }
  throw new Error("no free port");
}
