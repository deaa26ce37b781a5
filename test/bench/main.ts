// npm run bench: figures of this machine, each beside its baseline in the same run.
//
//   BENCH_N         scales the number of samples (1 by default)
//   BENCH_SECTIONS  only these, by name, with commas: log, product, taking, first-token, idle, relay, containers

import { mkdtemp, rm } from "node:fs/promises";
import { cpus, loadavg, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { startRedis } from "../support/redis.ts";
import { measureAppends } from "./append.ts";
import { lackingForContainers, measureCalls, measureManyContainers } from "./containers.ts";
import { type Figure, median, print } from "./figures.ts";
import { measureFirstToken } from "./first-token.ts";
import { measureIdle } from "./idle.ts";
import { loopbackPost, rawXadd, writeAndSync } from "./primitives.ts";
import { type Product, startProduct } from "./product.ts";
import { measureRelay } from "./relay.ts";
import { measureTaking } from "./taking.ts";
import { createSession, directFirstToken, messageToModel, sendToEcho, timeToFirstToken, turnsPerSecond, warmToolTurn, wholeTurn } from "./turns.ts";

const SECTIONS = ["log", "product", "taking", "first-token", "idle", "relay", "containers"] as const;

const scale = Number(process.env.BENCH_N ?? "1");
const wanted = process.env.BENCH_SECTIONS?.split(",") ?? SECTIONS;
const unknown = wanted.filter((name) => !SECTIONS.some((section) => section === name));
if (unknown.length > 0) throw new Error(`There is no section ${unknown.join(", ")}; there are ${SECTIONS.join(", ")}.`);
const has = (section: (typeof SECTIONS)[number]) => wanted.includes(section);
const count = (n: number) => Math.max(10, Math.round(n * scale));
const log = pino({ level: "warn" }, pino.destination(2));
const folder = await mkdtemp(join(tmpdir(), "manyhands-bench-"));
const load = () => loadavg()[0]?.toFixed(2);

console.log(
  `# Manyhands benchmark\n\nNode ${process.version}, ${cpus().length} × ${cpus()[0]?.model}, ${Math.round(totalmem() / 2 ** 30)} GB, load ${load()}, ${new Date().toISOString()}`,
);
try {
  if (has("log") || has("product")) await withRedis((always) => withRedis((everysec) => measureLog(always, everysec), "everysec"));
  if (has("taking")) await withRedis(measureTakes);
  if (has("first-token")) await measureFirstToken(folder, scale, log);
  if (has("idle")) {
    const sessions = Math.max(100, Math.round(1_000 * Math.min(1, scale)));
    await withProduct(undefined, (product) => measureIdle("embedded", product, sessions));
    await withRedis((url) => withProduct(url, (product) => measureIdle("Redis, always", product, sessions)));
  }
  if (has("relay")) await withRedis((url) => measureRelay(folder, url, scale), "everysec");
  if (has("containers")) {
    const lacking = await lackingForContainers();
    if (lacking === null) {
      await measureCalls(count(20), log);
      await measureManyContainers();
    } else console.log(`\n*** SKIPPED, everything about containers: ${lacking}. ***`);
  }
  console.log(`\nLoad at the end: ${load()}.`);
} finally {
  await rm(folder, { recursive: true, force: true });
}

async function withRedis(measure: (url: string) => Promise<void>, appendfsync: "always" | "everysec" = "always"): Promise<void> {
  const redis = await startRedis({ appendfsync });
  try {
    await measure(redis.url);
  } finally {
    await redis.stop();
  }
}

async function withProduct(redisUrl: string | undefined, measure: (product: Product) => Promise<void>): Promise<void> {
  const product = await startProduct(redisUrl);
  try {
    await measure(product);
  } finally {
    await product.close();
  }
}

/** The log, and the product on top of it, which is held against the log's figures. */
async function measureLog(always: string, everysec: string): Promise<void> {
  const sync = await writeAndSync(folder, count(1000));
  const post = await loopbackPost(count(1000));
  const xaddAlways = await rawXadd(always, count(1000));
  const xaddEverysec = await rawXadd(everysec, count(1000));
  print("This machine's own limits", [
    { name: "write 1 KB + fdatasync", ms: sync },
    { name: "loopback POST, kept connection", ms: post },
    { name: "raw XADD 1 KB, appendfsync always", ms: xaddAlways },
    { name: "raw XADD 1 KB, appendfsync everysec", ms: xaddEverysec },
  ]);

  const embedded = await measureAppends({ dataDir: join(folder, "store") }, count(1000), log);
  const onAlways = await measureAppends({ dataDir: folder, redisUrl: always }, count(1000), log);
  const onEverysec = await measureAppends({ dataDir: folder, redisUrl: everysec }, count(1000), log);
  print("Durable append of one 1 KB entry under a lease", [
    { name: "embedded", ms: embedded.one, baseline: { name: "write + fdatasync", ms: median(sync) } },
    { name: "Redis, always", ms: onAlways.one, baseline: { name: "raw XADD always", ms: median(xaddAlways) } },
    { name: "Redis, everysec", ms: onEverysec.one, baseline: { name: "raw XADD everysec", ms: median(xaddEverysec) } },
  ]);
  console.log(
    `\n32 sessions at once, appends a second: embedded ${Math.round(embedded.togetherPerSecond)}, always ${Math.round(onAlways.togetherPerSecond)}, everysec ${Math.round(onEverysec.togetherPerSecond)}.`,
  );
  console.log(`Reading a log of 10,000 entries: embedded ${Math.round(embedded.replayMs)} ms, Redis ${Math.round(onAlways.replayMs)} ms.`);

  if (!has("product")) return;
  const parts = { post: median(post) };
  await withProduct(undefined, (product) => measureProduct("embedded", product, { ...parts, append: median(embedded.one) }));
  await withProduct(always, (product) => measureProduct("Redis, always", product, { ...parts, append: median(onAlways.one) }));
}

async function measureTakes(redisUrl: string): Promise<void> {
  const embedded = await measureTaking("embedded", { dataDir: join(folder, "taking") }, count(30), log);
  const redis = await measureTaking("Redis, always", { dataDir: folder, redisUrl }, count(30), log);
  print("From a message to the harness that thinks", [...embedded.figures, ...redis.figures]);
  console.log(`\nA worker keeps of the long session ${(embedded.keptBytes / 2 ** 20).toFixed(1)} MiB, as it counts them.`);
}

async function measureProduct(name: string, product: Product, parts: { append: number; post: number }): Promise<void> {
  // POST in, append + due + bell, take (a durable step too), POST out through the vault proxy (two hops).
  const floor = parts.post + 2 * parts.append + 2 * parts.post;
  const script = "wait: 100\nsay: hello there, this is the answer";
  const direct = await directFirstToken(product, count(50), script);
  const through = await timeToFirstToken(product, count(50), script);
  const figures: Figure[] = [
    { name: "create session", ms: await createSession(product, count(200)) },
    {
      name: "user message → model request",
      ms: await messageToModel(product, count(200)),
      baseline: { name: "sum of its measured parts", ms: floor },
    },
    { name: "time to first token, model waits 100 ms", ms: through, baseline: { name: "the model called directly", ms: median(direct) } },
    { name: "send → its echo on the stream", ms: await sendToEcho(product, count(200)) },
    { name: "whole turn, model at zero latency", ms: await wholeTurn(product, count(200)) },
    { name: "whole turn with one bash call, warm sandbox", ms: await warmToolTurn(product, count(50)) },
  ];
  print(`The product, ${name}`, figures);
  console.log(`\nAdded to the model's own time to first token: ${(median(through) - median(direct)).toFixed(1)} ms.`);
  console.log(`50 sessions at once: ${(await turnsPerSecond(product, 50, Math.max(2, Math.round(5 * scale)))).toFixed(0)} turns a second.`);
  const memory = await product.memory();
  const total = Object.values(memory).reduce((sum, mb) => sum + mb, 0);
  console.log(
    `Resident memory after that: ${total} MB (${Object.entries(memory)
      .map(([role, mb]) => `${role} ${mb}`)
      .join(", ")}).`,
  );
}
