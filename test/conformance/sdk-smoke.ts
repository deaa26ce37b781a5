// Runs an acceptance kit that drives a server through the official SDK against this product, as an operator would start it:
// on the embedded store, on Redis, and through two nodes on one Redis and one (test double of a) Vault server behind a round-robin proxy.
//
//   node dist/test/conformance/sdk-smoke.js <kit folder, with its packages installed>
//
// Ends with a line "# sdk-smoke: N passed, N failed, N skipped"; the exit code is 0 when nothing failed. A check that was skipped for another
// reason than ours counts as failed.

import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { freePort } from "../support/free-port.ts";
import { type Program, startNode, startProgram } from "../support/process.ts";
import { startRedis } from "../support/redis.ts";
import { startRoundRobin } from "../support/round-robin.ts";
import { until } from "../support/until.ts";
import { ROOT_TOKEN, startVaultDouble } from "../support/vault-double/server.ts";

/** What the product does not offer yet: most of the kit's level "next". */
const RUNS: readonly Readonly<Record<string, string>>[] = [
  { LEVEL: "core" },
  { LEVEL: "next", ONLY: "previews,threads,system message,self-hosted results" },
];

const API_KEY = "mh_sdk-smoke-api-key-0123456789";
const RUN_MS = 3 * 60_000;
const READY_MS = 60_000;

interface Count {
  passed: number;
  failed: number;
  skipped: number;
}

interface Place {
  readonly folder: string;
  readonly modelUrl: string;
  /** Ended in reverse order. */
  readonly undo: (() => Promise<unknown>)[];
}

const SETUPS: Readonly<Record<string, (place: Place) => Promise<string>>> = {
  "embedded store": async (place) => (await startNodeOfOurs(place, "one", {})).url,
  Redis: async (place) => (await startNodeOfOurs(place, "one", { REDIS_URL: await redisFor(place) })).url,
  "two gateways on one Redis": async (place) => {
    const settings = { REDIS_URL: await redisFor(place), MANYHANDS_KEYS_DIR: join(place.folder, "keys"), ...(await vaultFor(place)) };
    const nodes = await Promise.all(["one", "two"].map((name) => startNodeOfOurs(place, name, settings)));
    const proxy = await startRoundRobin(nodes.map((node) => node.url));
    place.undo.push(() => proxy.close());
    return proxy.url;
  },
};

async function main(kit: string | undefined): Promise<number> {
  if (kit === undefined) {
    process.stderr.write("usage: sdk-smoke <kit folder>\n");
    return 2;
  }
  const total: Count = { passed: 0, failed: 0, skipped: 0 };
  for (const [name, start] of Object.entries(SETUPS)) {
    const count = await tryOut(resolve(kit), name, start);
    process.stdout.write(`## ${name}: ${tell(count)}\n`);
    for (const key of ["passed", "failed", "skipped"] as const) total[key] += count[key];
  }
  process.stdout.write(`# sdk-smoke: ${tell(total)}\n`);
  return total.failed === 0 && total.passed > 0 ? 0 : 1;
}

function tell(count: Count): string {
  return `${count.passed} passed, ${count.failed} failed, ${count.skipped} skipped`;
}

async function tryOut(kit: string, name: string, start: (place: Place) => Promise<string>): Promise<Count> {
  const count: Count = { passed: 0, failed: 0, skipped: 0 };
  const undo: Place["undo"] = [];
  try {
    const folder = await mkdtemp(join(tmpdir(), "manyhands-smoke-"));
    undo.push(() => rm(folder, { recursive: true, force: true }));
    const modelUrl = await startModel(kit, undo);
    const url = await start({ folder, modelUrl, undo });
    for (const run of RUNS) {
      process.stdout.write(`## ${name}: ${JSON.stringify(run)}\n`);
      await runKit(kit, { ...run, BASE_URL: url, API_KEY, MODEL_SERVER_URL: modelUrl }, count);
    }
  } catch (error) {
    count.failed += 1;
    process.stdout.write(`FAIL ${name}: ${error instanceof Error ? error.message : String(error)}\n`);
  } finally {
    for (const each of undo.reverse()) await each().catch((error: unknown) => process.stdout.write(`## clean-up: ${String(error)}\n`));
  }
  return count;
}

async function startModel(kit: string, undo: Place["undo"]): Promise<string> {
  const port = await freePort();
  const model = startNode([join(kit, "model-server.mjs")], { cwd: kit, env: { PORT: String(port) } });
  undo.push(() => model[Symbol.asyncDispose]());
  const url = `http://127.0.0.1:${port}`;
  await until(() => answers(`${url}/__health`), { timeoutMs: READY_MS, what: "the kit's model server" });
  return url;
}

async function startNodeOfOurs(place: Place, name: string, settings: Readonly<Record<string, string>>): Promise<{ url: string; program: Program }> {
  const program = startProgram("gateway/cli", {
    args: ["start"],
    env: {
      MANYHANDS_PORT: "0",
      MANYHANDS_DATA_DIR: join(place.folder, name),
      MANYHANDS_API_KEY: API_KEY,
      ANTHROPIC_BASE_URL: place.modelUrl,
      ANTHROPIC_API_KEY: "sk-scripted",
      ...settings,
    },
  });
  place.undo.push(() => stop(program, name));
  const ready = await program.logged("launcher.ready", { timeoutMs: READY_MS });
  return { url: String(ready.url), program };
}

/** A node must end by itself when it is asked to. */
async function stop(program: Program, name: string): Promise<void> {
  program.kill("SIGTERM");
  try {
    const { code } = await program.exit();
    if (code !== 0) process.stdout.write(`## node ${name} ended with ${code}\n`);
  } finally {
    await program[Symbol.asyncDispose]();
  }
}

async function redisFor(place: Place): Promise<string> {
  const redis = await startRedis();
  place.undo.push(() => redis.stop());
  return redis.url;
}

/** Vault proxies of several nodes share a server. */
async function vaultFor(place: Place): Promise<Readonly<Record<string, string>>> {
  const double = await startVaultDouble();
  place.undo.push(() => double.close());
  const file = join(place.folder, "vault-token");
  await writeFile(file, ROOT_TOKEN, { mode: 0o600 });
  return { VAULT_ADDR: double.url, MANYHANDS_VAULT_TOKEN_FILE: file };
}

/** Runs the kit once; its last line says what came of it. */
async function runKit(kit: string, env: Readonly<Record<string, string>>, count: Count): Promise<void> {
  const child = spawn(process.execPath, ["smoke.mjs"], {
    cwd: kit,
    env: { PATH: process.env.PATH ?? "", HOME: process.env.HOME ?? "", ...env },
    stdio: ["ignore", "pipe", "inherit"],
    timeout: RUN_MS,
    killSignal: "SIGKILL",
  });
  let summary: RegExpExecArray | null = null;
  createInterface({ input: child.stdout }).on("line", (line) => {
    process.stdout.write(`${line}\n`);
    summary = /^# (\d+) passed, (\d+) failed, (\d+) skipped$/.exec(line) ?? summary;
    if (line.startsWith("SKIP ") && !line.endsWith("(asked to skip)")) count.failed += 1;
  });
  const code = await new Promise<number | null>((end) => child.once("close", end));
  const [, passed, failed, skipped] = (summary as RegExpExecArray | null) ?? [];
  if (passed === undefined) throw new Error(`The kit ended with ${code ?? "a signal"} and no result.`);
  count.passed += Number(passed);
  count.failed += Number(failed);
  count.skipped += Number(skipped);
}

async function answers(url: string): Promise<boolean> {
  try {
    return (await fetch(url, { signal: AbortSignal.timeout(2_000) })).ok;
  } catch {
    return false;
  }
}

process.exitCode = await main(process.argv[2]);
