// A hand host as a process of its own, from the built programs, and a client for it.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { pino } from "pino";
import { type HandsClient, makeHands } from "../../hands/client.ts";

const MAIN = fileURLToPath(new URL("../../dist/hands/main.js", import.meta.url));
export const HAND_KEY = "a-hand-key";

export interface HostProcess {
  readonly url: string;
  readonly id: string;
  readonly boot: number;
  readonly child: ChildProcess;
  /** The lines of its log, parsed. */
  readonly lines: readonly Record<string, unknown>[];
  /** Sends a signal and waits for the end; gives the exit code. */
  end(signal: NodeJS.Signals): Promise<number | null>;
}

export interface Place {
  readonly dataDir: string;
  start(port?: number): Promise<HostProcess>;
  /** The process started last. */
  last(): HostProcess;
  /** A client that finds the process started last. */
  client(handLostMs?: number): HandsClient;
  clean(): Promise<void>;
}

/** `settings`: the host's own, beside those that it needs; virtual sandboxes unless they say otherwise. */
export function makePlace(settings: Readonly<Record<string, string>> = {}): Place {
  const dataDir = mkdtempSync(join(tmpdir(), "hands-"));
  mkdirSync(join(dataDir, "keys"));
  writeFileSync(join(dataDir, "keys", "hand.key"), `${HAND_KEY}\n`);
  const started: HostProcess[] = [];
  const clients: HandsClient[] = [];
  const last = (): HostProcess => {
    const host = started.at(-1);
    if (host === undefined) throw new Error("no hand host was started");
    return host;
  };
  return {
    dataDir,
    last,
    async start(port = 0) {
      const host = await startHost(dataDir, port, settings);
      started.push(host);
      return host;
    },
    client(handLostMs) {
      const local = {
        get url() {
          return last().url;
        },
      };
      const options = { resolve: async () => last(), local, handKey: HAND_KEY, log: pino({ level: "silent" }) };
      const client = makeHands(handLostMs === undefined ? options : { ...options, handLostMs });
      clients.push(client);
      return client;
    },
    async clean() {
      await Promise.all(clients.map((client) => client.close()));
      await Promise.all(started.map((host) => host.end("SIGKILL")));
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

async function startHost(dataDir: string, port: number, settings: Readonly<Record<string, string>>): Promise<HostProcess> {
  const own = { MANYHANDS_DATA_DIR: dataDir, MANYHANDS_HANDS_PORT: String(port), MANYHANDS_PARENT_PIPE: "1" };
  const env = { PATH: process.env.PATH, MANYHANDS_SANDBOX: "virtual", ...settings, ...own };
  const child = spawn(process.execPath, [MAIN], { env, stdio: ["pipe", "pipe", "inherit"] });
  const lines: Record<string, unknown>[] = [];
  const ended = new Promise<number | null>((resolve) => child.once("exit", (code) => resolve(code)));
  const up = new Promise<void>((resolve, reject) => {
    createInterface(child.stdout).on("line", (line) => {
      lines.push(JSON.parse(line));
      if (lines.at(-1)?.msg === "process.listening") resolve();
    });
    void ended.then((code) => reject(new Error(`the hand host ended with ${code} before it listened`)));
  });
  await up;
  const said = lines.at(-1);
  return {
    url: String(said?.url),
    id: String(said?.id),
    boot: Number(said?.boot),
    child,
    lines,
    end(signal) {
      child.kill(signal);
      return ended;
    },
  };
}

/** Waits until something is true, for at most ten seconds. */
export async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!(await isTrue())) {
    if (Date.now() > deadline) throw new Error("the condition did not come true in time");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
