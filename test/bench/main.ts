// npm run bench: figures of this machine, each beside its baseline in the same run. BENCH_N scales the number of samples (1 by default).

import { mkdtemp, rm } from "node:fs/promises";
import { cpus, loadavg, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { startRedis } from "../support/redis.ts";
import { measureAppends } from "./append.ts";
import { type Figure, median, print } from "./figures.ts";
import { loopbackPost, rawXadd, writeAndSync } from "./primitives.ts";
import { type Product, startProduct } from "./product.ts";
import { createSession, directFirstToken, messageToModel, sendToEcho, timeToFirstToken, turnsPerSecond, warmToolTurn, wholeTurn } from "./turns.ts";

const scale = Number(process.env.BENCH_N ?? "1");
const count = (n: number) => Math.max(10, Math.round(n * scale));
const log = pino({ level: "warn" }, pino.destination(2));
const folder = await mkdtemp(join(tmpdir(), "manyhands-bench-"));

console.log(
  `# Manyhands benchmark\n\nNode ${process.version}, ${cpus().length} × ${cpus()[0]?.model}, ${Math.round(totalmem() / 2 ** 30)} GB, load ${loadavg()[0]?.toFixed(2)}, ${new Date().toISOString()}`,
);

const always = await startRedis({ appendfsync: "always" });
const everysec = await startRedis({ appendfsync: "everysec" });
try {
  const sync = await writeAndSync(folder, count(1000));
  const post = await loopbackPost(count(1000));
  const xaddAlways = await rawXadd(always.url, count(1000));
  const xaddEverysec = await rawXadd(everysec.url, count(1000));
  print("This machine's own limits", [
    { name: "write 1 KB + fdatasync", ms: sync },
    { name: "loopback POST, kept connection", ms: post },
    { name: "raw XADD 1 KB, appendfsync always", ms: xaddAlways },
    { name: "raw XADD 1 KB, appendfsync everysec", ms: xaddEverysec },
  ]);

  const embedded = await measureAppends({ dataDir: join(folder, "store") }, count(1000), log);
  const onAlways = await measureAppends({ dataDir: folder, redisUrl: always.url }, count(1000), log);
  const onEverysec = await measureAppends({ dataDir: folder, redisUrl: everysec.url }, count(1000), log);
  print("Durable append of one 1 KB entry under a lease", [
    { name: "embedded", ms: embedded.one, baseline: { name: "write + fdatasync", ms: median(sync) } },
    { name: "Redis, always", ms: onAlways.one, baseline: { name: "raw XADD always", ms: median(xaddAlways) } },
    { name: "Redis, everysec", ms: onEverysec.one, baseline: { name: "raw XADD everysec", ms: median(xaddEverysec) } },
  ]);
  console.log(
    `\n32 sessions at once, appends a second: embedded ${Math.round(embedded.togetherPerSecond)}, always ${Math.round(onAlways.togetherPerSecond)}, everysec ${Math.round(onEverysec.togetherPerSecond)}.`,
  );
  console.log(`Reading a log of 10,000 entries: embedded ${Math.round(embedded.replayMs)} ms, Redis ${Math.round(onAlways.replayMs)} ms.`);

  for (const [name, url, append] of [
    ["embedded", undefined, median(embedded.one)],
    ["Redis, always", always.url, median(onAlways.one)],
  ] as const) {
    const product = await startProduct(url);
    try {
      await measureProduct(name, product, { append, post: median(post) });
    } finally {
      await product.close();
    }
  }
} finally {
  await Promise.all([always.stop(), everysec.stop()]);
  await rm(folder, { recursive: true, force: true });
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
