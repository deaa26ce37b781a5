// The product as its users meet it: started by its own command, driven over HTTP, its model a scripted one in this process.

import { mkdtemp, readdir, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { freePort } from "../support/free-port.ts";
import { startModel } from "../support/model/server.ts";
import { type Program, startProgram } from "../support/process.ts";
import { until } from "../support/until.ts";

export interface Product {
  readonly client: Anthropic;
  readonly url: string;
  readonly key: string;
  readonly modelUrl: string;
  /** When the model server got the last request that contains `text` (performance.now()). */
  arrival(text: string): Promise<number>;
  /** Resident memory of all its processes, in MB, by role. */
  memory(): Promise<Readonly<Record<string, number>>>;
  newSession(): Promise<string>;
  close(): Promise<void>;
}

const START_MS = 30_000;

export async function startProduct(redisUrl?: string): Promise<Product> {
  const arrivals = new Map<string, number>();
  const model = await startModel({
    play: (request) => {
      const now = performance.now();
      for (const [mark] of JSON.stringify(request.messages.at(-1)).matchAll(/mark-[0-9a-z]+/g)) arrivals.set(mark, now);
      return null;
    },
  });
  const dataDir = await mkdtemp(join(tmpdir(), "manyhands-bench-"));
  const port = await freePort();
  const program = startProgram("gateway/cli", {
    args: ["start"],
    env: {
      NODE_ENV: "production",
      MANYHANDS_PORT: String(port),
      MANYHANDS_DATA_DIR: dataDir,
      ANTHROPIC_API_KEY: "bench-model-key",
      ANTHROPIC_BASE_URL: model.url,
      ...(redisUrl ? { REDIS_URL: redisUrl } : {}),
    },
  });
  const url = `http://127.0.0.1:${port}`;
  await until(async () => (await fetch(`${url}/readyz`).catch(() => null))?.ok === true, { timeoutMs: START_MS, what: "the product to be ready" });
  const key = (await readFile(join(dataDir, "keys", "api.key"), "utf8")).trim();
  const client = new Anthropic({ apiKey: key, baseURL: url, maxRetries: 0 });
  const agent = await client.beta.agents.create({ name: "bench", model: "scripted-model", tools: [{ type: "agent_toolset_20260401" }] });
  const environment = await client.beta.environments.create({ name: "bench" });
  return {
    client,
    url,
    key,
    modelUrl: model.url,
    arrival: (mark) => until(async () => arrivals.get(mark), { timeoutMs: START_MS, what: `the model request with ${mark}` }),
    memory: () => memoryOf(program),
    newSession: async () => (await client.beta.sessions.create({ agent: agent.id, environment_id: environment.id })).id,
    close: async () => {
      program.kill("SIGTERM");
      await program.exit();
      await model.close();
    },
  };
}

/** The launcher and its children, by the file that they run. */
async function memoryOf(program: Program): Promise<Readonly<Record<string, number>>> {
  const found: Record<string, number> = {};
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => ""); // It may have ended by now.
    const [parent, kilobytes] = [/PPid:\s+(\d+)/, /VmRSS:\s+(\d+)/].map((pattern) => Number(pattern.exec(status)?.[1] ?? Number.NaN));
    if (kilobytes === undefined || (Number(pid) !== program.pid && parent !== program.pid)) continue;
    const line = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    const role = Number(pid) === program.pid ? "launcher" : (/dist\/([a-z-]+)\/main\.js/.exec(line)?.[1] ?? "other");
    found[role] = Math.round(kilobytes / 1024);
  }
  return found;
}
