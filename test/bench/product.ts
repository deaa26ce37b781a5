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
  /** The same and the processor time that each had since its start. */
  usage(): Promise<Readonly<Record<string, Usage>>>;
  newSession(): Promise<string>;
  /** The id of its hand host, by which its containers are labelled. */
  handHost(): Promise<string>;
  close(): Promise<void>;
}

export interface Usage {
  readonly residentKb: number;
  readonly cpuMs: number;
}

const START_MS = 30_000;
/** Of the kernel's clock: USER_HZ, the same on every Linux. */
const MS_PER_TICK = 10;

/** `env`: settings of its own, which win. */
export async function startProduct(redisUrl?: string, env: Readonly<Record<string, string>> = {}): Promise<Product> {
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
      ...env,
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
    memory: async () =>
      Object.fromEntries(Object.entries(await usageOf(program)).map(([role, { residentKb }]) => [role, Math.round(residentKb / 1024)])),
    usage: () => usageOf(program),
    handHost: async () => String((await program.logged("hand_host.announced")).host),
    newSession: async () => (await client.beta.sessions.create({ agent: agent.id, environment_id: environment.id })).id,
    close: async () => {
      program.kill("SIGTERM");
      await program.exit();
      await model.close();
    },
  };
}

/** The launcher and its children, by the file that they run. */
async function usageOf(program: Program): Promise<Readonly<Record<string, Usage>>> {
  const found: Record<string, Usage> = {};
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
    const read = (file: string) => readFile(`/proc/${pid}/${file}`, "utf8").catch(() => ""); // It may have ended by now.
    const [status, line, stat] = [await read("status"), await read("cmdline"), await read("stat")];
    const [parent, residentKb] = [/PPid:\s+(\d+)/, /VmRSS:\s+(\d+)/].map((pattern) => Number(pattern.exec(status)?.[1] ?? Number.NaN));
    if (residentKb === undefined || (Number(pid) !== program.pid && parent !== program.pid)) continue;
    // The name of the program may hold anything: fields are counted from its closing bracket.
    const [user = 0, system = 0] = stat
      .slice(stat.lastIndexOf(")") + 2)
      .split(" ")
      .slice(11, 13)
      .map(Number);
    const role = Number(pid) === program.pid ? "launcher" : (/dist\/([a-z-]+)\/main\.js/.exec(line)?.[1] ?? "other");
    found[role] = { residentKb, cpuMs: (user + system) * MS_PER_TICK };
  }
  return found;
}
