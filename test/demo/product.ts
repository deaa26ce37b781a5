// The product as its user starts it: one command, a data folder, a port. Whatever happens, what was started is stopped.

import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";

const READY_MS = 60_000;
const POLL_MS = 100;
const ANSWER_MS = 2_000;
const STOP_MS = 8_000;
const LINES_KEPT = 20;

/** Settings that would make the demo something else than a fresh installation on this machine. */
const NOT_PASSED = ["REDIS_URL", "MANYHANDS_KEYS_DIR", "MANYHANDS_API_KEY", "MANYHANDS_HOST", "MANYHANDS_VAULT_URL", "MANYHANDS_HANDS_URL"];

export interface Product {
  readonly url: string;
  readonly apiKey: string;
  /** Rejects if it ends while we still need it. */
  readonly ended: Promise<never>;
}

/** `started` gets what stops it before anything else can go wrong. */
export async function startProduct(
  dataDir: string,
  extra: Readonly<Record<string, string>>,
  started: (stop: () => Promise<void>) => void,
): Promise<Product> {
  const port = await freePort();
  const env: NodeJS.ProcessEnv = { ...process.env, ...extra, MANYHANDS_DATA_DIR: dataDir, MANYHANDS_PORT: String(port) };
  for (const name of NOT_PASSED) delete env[name];
  const child = spawn(process.execPath, [join(import.meta.dirname, "../../gateway/cli.js"), "start"], { env, stdio: ["ignore", "pipe", "pipe"] });
  started(() => stop(child));
  const lines: string[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream }).on("line", (line) => {
      lines.push(line);
      if (lines.length > LINES_KEPT) lines.shift();
    });
  }
  const lastWords = () => `Its last words:\n${lines.map((line) => `  ${line}`).join("\n")}`;
  const ended = new Promise<never>((_, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => reject(new Error(`The product ended by itself (${code ?? signal}). ${lastWords()}`)));
  });
  // Raced wherever somebody waits; in between nobody has to listen.
  ended.catch(() => {});
  const url = `http://127.0.0.1:${port}`;
  await Promise.race([untilReady(url, lastWords), ended]);
  return { url, apiKey: readFileSync(join(dataDir, "keys", "api.key"), "utf8").trim(), ended };
}

async function untilReady(url: string, lastWords: () => string): Promise<void> {
  const deadline = performance.now() + READY_MS;
  let last = "";
  while (performance.now() < deadline) {
    try {
      const answer = await request(`${url}/readyz`, { headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS });
      await answer.body.dump();
      if (answer.statusCode === 200) return;
      last = `status ${answer.statusCode}`;
    } catch (error) {
      last = error instanceof Error ? error.message : String(error);
    }
    await sleep(POLL_MS);
  }
  throw new Error(`The product was not ready within ${READY_MS / 1000} s: ${url}/readyz: ${last}. ${lastWords()}`);
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  child.kill("SIGTERM");
  const kill = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
  await gone;
  clearTimeout(kill);
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => (typeof address === "object" && address !== null ? resolve(address.port) : reject(new Error("no port"))));
    });
  });
}
