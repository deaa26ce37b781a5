// Containers as hands: what a call costs beside the engine's own command line, and fifty sessions at once that have one each.

import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Logger } from "pino";
import { z } from "zod";
import { LABEL, type Limits, nameOf, removeContainer } from "../../hands/docker/container.ts";
import { dockerDriver } from "../../hands/docker/driver.ts";
import { connect, type Engine, statusOf } from "../../hands/docker/engine.ts";
import { mint } from "../../session-store/ids.ts";
import { ENGINE_SOCKET, isThere } from "../support/real-part.ts";
import { median, print, times } from "./figures.ts";
import { startProduct } from "./product.ts";
import { say, turnIn } from "./turns.ts";

const IMAGE = "manyhands-hand";
const LIMITS: Limits = { memoryMb: 256, pids: 128, cpus: 1, tmpMb: 64 };
const SESSIONS = 50;
const run = promisify(execFile);

/** Why containers can't be measured here; null when they can. */
export async function lackingForContainers(): Promise<string | null> {
  if (!isThere("docker")) return `no container engine at ${ENGINE_SOCKET}`;
  const hasCommand = await run("docker", ["--version"]).then(
    () => true,
    () => false,
  );
  if (!hasCommand) return "no command docker, which the figures are held against";
  try {
    await engine().getImage(IMAGE).inspect();
    return null;
  } catch (error) {
    if (statusOf(error) === 404) return `no image ${IMAGE}: run "npm run image"`;
    return `the container engine does not answer: ${error instanceof Error ? error.message : String(error)}`;
  }
}

const engine = (): Engine => connect({ socketPath: ENGINE_SOCKET });

/** Create and first call, and a warm call, against `docker run` and `docker exec` with the same image and limits. */
export async function measureCalls(n: number, log: Logger): Promise<void> {
  const dataDir = await mkdtemp(join(tmpdir(), "manyhands-bench-hands-"));
  const host = mint("host");
  const driver = await dockerDriver({ engine: engine(), host, image: IMAGE, limits: LIMITS, containersMax: 2, dataDir, log });
  const call = (sandbox: ReturnType<typeof driver.open>) => sandbox.run({ id: mint("call"), tool: "bash", input: { command: "true" } });
  try {
    // Taken in turns: both see the same machine.
    const bare: number[] = [];
    const first = await times(n, async (i) => {
      const from = performance.now();
      await run("docker", ["run", "--rm", ...flags(), IMAGE, "true"]);
      if (i >= 0) bare.push(performance.now() - from);
      const folder = await mkdtemp(join(dataDir, "hand-"));
      const sandbox = driver.open(folder, false);
      const started = performance.now();
      const outcome = await call(sandbox);
      const took = performance.now() - started;
      if (outcome.type !== "done") throw new Error(`The first call in a container came to: ${JSON.stringify(outcome)}`);
      await sandbox.stop("measured");
      return took;
    });

    const folder = await mkdtemp(join(dataDir, "hand-"));
    const sandbox = driver.open(folder, false);
    await call(sandbox);
    const name = nameOf(folder.slice(folder.lastIndexOf("/") + 1));
    const exec = await times(n, async () => {
      await run("docker", ["exec", name, "true"]);
      return undefined;
    });
    const warm = await times(n * 10, async () => {
      await call(sandbox);
      return undefined;
    });
    await sandbox.stop("measured");
    print("A command in a container, through the hand's driver", [
      { name: "docker run --rm, same image and limits", ms: bare },
      { name: "container made, and the first call", ms: first, baseline: { name: "docker run", ms: median(bare) } },
      { name: "docker exec", ms: exec },
      { name: "warm call", ms: warm, baseline: { name: "docker exec", ms: median(exec) } },
    ]);
  } finally {
    await removeAll(host);
    await rm(dataDir, { recursive: true, force: true });
  }
}

const flags = (): readonly string[] => [
  ...["--network", "none", "--read-only", "--cap-drop", "ALL", "--user", "1000:1000", "--pids-limit", String(LIMITS.pids)],
  ...["--memory", `${LIMITS.memoryMb}m`, "--cpus", String(LIMITS.cpus), "--tmpfs", `/tmp:size=${LIMITS.tmpMb}m`],
];

/** Fifty sessions at once, each with a container of its own: from the first send to the last idle. */
export async function measureManyContainers(): Promise<void> {
  const product = await startProduct(undefined, {
    MANYHANDS_SANDBOX: "docker",
    MANYHANDS_DOCKER_CONTAINERS_MAX: String(SESSIONS),
    MANYHANDS_DOCKER_MEMORY_MB: String(LIMITS.memoryMb),
    MANYHANDS_DOCKER_PIDS: String(LIMITS.pids),
    MANYHANDS_DOCKER_TMP_MB: String(LIMITS.tmpMb),
  });
  const host = await product.handHost();
  try {
    const sessions = await Promise.all(Array.from({ length: SESSIONS }, () => product.newSession()));
    const script = (text: string) => say(`call bash: {"command":"echo ${text} >> said && cat said"}\nsay: ${text} done`);
    const all = async (text: string) => {
      const started = performance.now();
      const ended = await Promise.all(sessions.map((session) => turnIn(product, session, script(text))));
      return { ms: performance.now() - started, ended };
    };
    const first = await all("first");
    const second = await all("second");
    const right = ({ ended }: typeof first, text: string, lines: string) => ended.filter((events) => isRight(events, `${text} done`, lines)).length;
    const memory = await product.memory();
    const containers = await engine().listContainers({ filters: { label: [`${LABEL.host}=${host}`] } });
    console.log(`\n## ${SESSIONS} sessions at once, a container each (embedded store)\n`);
    console.log(
      `Turns that ended with the right result: ${right(first, "first", "first")} + ${right(second, "second", "first\nsecond")} of ${SESSIONS} + ${SESSIONS}.`,
    );
    console.log(`First turns, containers made: ${(first.ms / 1_000).toFixed(1)} s. Second turns, warm: ${(second.ms / 1_000).toFixed(1)} s.`);
    console.log(
      `Containers up: ${containers.length}, their memory ${Math.round((await memoryOf(containers.map(({ Id }) => Id))) / 2 ** 20)} MB by the engine's count.`,
    );
    console.log(
      `Resident memory of the programs: ${Object.entries(memory)
        .map(([role, mb]) => `${role} ${mb} MB`)
        .join(", ")}.`,
    );
  } finally {
    await product.close();
    await removeAll(host);
  }
}

const Content = z.array(z.object({ text: z.string() }));
const Said = z.object({ type: z.literal("agent.message"), content: Content });
const Result = z.object({ type: z.literal("agent.tool_result"), content: Content, is_error: z.literal(false) });

/** The turn's one result is these lines, and its last message this text. */
function isRight(events: readonly unknown[], text: string, lines: string): boolean {
  const textOf = (content: z.infer<typeof Content>) =>
    content
      .map((block) => block.text)
      .join("")
      .trim();
  const results = events.flatMap((event) => Result.safeParse(event).data ?? []);
  const messages = events.flatMap((event) => Said.safeParse(event).data ?? []);
  return results.length === 1 && textOf(results[0]?.content ?? []) === lines && textOf(messages.at(-1)?.content ?? []) === text;
}

/** Bytes, without the page cache where the engine tells it apart. */
async function memoryOf(ids: readonly string[]): Promise<number> {
  const used = await Promise.all(
    ids.map(async (id) => {
      const { memory_stats: memory } = await engine().getContainer(id).stats({ stream: false, "one-shot": true });
      return (memory.usage ?? 0) - (memory.stats?.total_inactive_file ?? memory.stats?.inactive_file ?? 0);
    }),
  );
  return used.reduce((sum, bytes) => sum + bytes, 0);
}

async function removeAll(host: string): Promise<void> {
  for (const { Id } of await engine().listContainers({ all: true, filters: { label: [`${LABEL.host}=${host}`] } }))
    await removeContainer(engine(), Id);
}
