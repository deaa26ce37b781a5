// A call to a trivial server: directly, through a byte relay, through the door of a hand, and through two other gateways from npm, in one run.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { openSync, readFileSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { Pool } from "undici";
import { freePort } from "../support/free-port.ts";
import { ROOT } from "../support/process.ts";
import { putHand } from "../support/relay.ts";
import { until } from "../support/until.ts";
import { median, quantile } from "./figures.ts";

const OTHERS = { "mcp-proxy": "6.7.19", supergateway: "4.0.0" } as const;
const ROUNDS = 3;
const CLIENTS = 32;
const INSTALL_MS = 120_000;
const START_MS = 30_000;
const MS_PER_TICK = 10;
const KEY = "bench-key-of-this-run";
const TEXT = "x".repeat(128);
const CALL = { name: "echo", arguments: { text: TEXT } };
const META = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
const JSON_HEADERS = { accept: "application/json, text/event-stream", "content-type": "application/json" };
type Revision = "2025-11-25" | "2026-07-28";

interface Target {
  readonly name: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly revisions: readonly Revision[];
  /** Null: there is nobody between. */
  readonly pid: number | null;
}

interface Row {
  readonly p50: number[];
  readonly p99: number[];
  readonly perSecond: number[];
  readonly cpuMs: number[];
}

type Call = () => Promise<void>;

export async function measureRelay(folder: string, redisUrl: string, scale: number): Promise<void> {
  const children: ChildProcess[] = [];
  const start = (name: string, args: readonly string[], env: Readonly<Record<string, string>> = {}) => {
    const log = join(folder, `${name}.log`);
    const out = openSync(log, "w");
    const child = spawn(process.execPath, args, {
      cwd: ROOT,
      env: { PATH: process.env.PATH ?? "", NODE_ENV: "production", ...env },
      stdio: ["ignore", out, out],
    });
    children.push(child);
    const url = () => until(() => /"url":"([^"]+)"/.exec(readFileSync(log, "utf8"))?.[1], { timeoutMs: START_MS, what: `${name} to listen` });
    return { pid: child.pid ?? 0, url };
  };
  try {
    const parts = join(ROOT, "dist/test/bench/relay-parts.js");
    const direct = await start("hand", [parts, "hand"]).url();
    const bytes = start("bytes", [parts, "bytes", direct]);
    const gateway = start("gateway", [join(ROOT, "dist/gateway/main.js")], {
      REDIS_URL: redisUrl,
      MANYHANDS_PORT: "0",
      MANYHANDS_DATA_DIR: join(folder, "relay"),
      MANYHANDS_API_KEY: KEY,
      MANYHANDS_MCP_INTERNAL_HOSTS: "127.0.0.1",
    });
    await putHand({ redisUrl }, { name: "trivial", url: direct });
    const both = ["2025-11-25", "2026-07-28"] as const;
    const targets: Target[] = [
      { name: "direct", url: direct, headers: {}, revisions: both, pid: null },
      { name: "byte relay", url: await bytes.url(), headers: {}, revisions: both, pid: bytes.pid },
      {
        name: "Manyhands",
        url: `${await gateway.url()}/mcp/hands/trivial`,
        headers: { authorization: `Bearer ${KEY}` },
        revisions: both,
        pid: gateway.pid,
      },
      ...(await startOthers(folder, parts, start)),
    ];
    for (const revision of both)
      await compare(
        revision,
        targets.filter(({ revisions }) => revisions.includes(revision)),
        scale,
      );
  } finally {
    for (const child of children) child.kill("SIGKILL");
  }
}

async function startOthers(
  folder: string,
  parts: string,
  start: (name: string, args: readonly string[]) => { readonly pid: number },
): Promise<readonly Target[]> {
  const at = join(folder, "others");
  await mkdir(at, { recursive: true });
  const wanted = Object.entries(OTHERS).map(([name, version]) => `${name}@${version}`);
  const installed = spawnSync("npm", ["install", "--prefix", at, "--no-audit", "--no-fund", "--ignore-scripts", ...wanted], {
    timeout: INSTALL_MS,
    stdio: "ignore",
  });
  if (installed.status !== 0) {
    console.log(`\n*** SKIPPED, other gateways: ${wanted.join(" and ")} could not be installed. ***`);
    return [];
  }
  const bin = async (name: string) => {
    const { bin: bins } = JSON.parse(await readFile(join(at, "node_modules", name, "package.json"), "utf8"));
    return join(at, "node_modules", name, typeof bins === "string" ? bins : bins[name]);
  };
  const [proxyPort, superPort] = [await freePort(), await freePort()];
  const proxy = start("mcp-proxy", [
    await bin("mcp-proxy"),
    "--host",
    "127.0.0.1",
    "--port",
    String(proxyPort),
    "--server",
    "stream",
    "--",
    process.execPath,
    parts,
    "stdio",
  ]);
  const supergateway = start("supergateway", [
    await bin("supergateway"),
    "--stdio",
    `${process.execPath} ${parts} stdio`,
    "--outputTransport",
    "streamableHttp",
    "--stateful",
    "--port",
    String(superPort),
  ]);
  const targets: Target[] = [
    {
      name: `mcp-proxy ${OTHERS["mcp-proxy"]}`,
      url: `http://127.0.0.1:${proxyPort}/mcp`,
      headers: {},
      revisions: ["2025-11-25", "2026-07-28"],
      pid: proxy.pid,
    },
    // In the stateless era it starts a process for each request: 150 ms a call, nothing to compare with.
    {
      name: `supergateway ${OTHERS.supergateway}`,
      url: `http://127.0.0.1:${superPort}/mcp`,
      headers: {},
      revisions: ["2025-11-25"],
      pid: supergateway.pid,
    },
  ];
  const alive: Target[] = [];
  for (const target of targets) {
    try {
      await until(
        () =>
          clientOf(target, "2025-11-25", new Pool(new URL(target.url).origin)).then(
            () => true,
            () => false,
          ),
        { timeoutMs: START_MS, pollMs: 200 },
      );
      alive.push(target);
    } catch {
      console.log(`\n*** SKIPPED, ${target.name}: it did not start. ***`);
    }
  }
  return alive;
}

/** Rounds of all targets in turn, so that what else the machine does hits them alike. */
async function compare(revision: Revision, targets: readonly Target[], scale: number): Promise<void> {
  const rows = new Map<string, Row>(targets.map(({ name }) => [name, { p50: [], p99: [], perSecond: [], cpuMs: [] }]));
  for (let round = 0; round < ROUNDS; round += 1)
    for (const target of targets) {
      const row = rows.get(target.name);
      if (row) await measure(target, revision, scale, row);
    }
  const base = median(rows.get("direct")?.p50 ?? []);
  const floor = median(rows.get("byte relay")?.p50 ?? []) - base;
  console.log(`\n## tools/call of ${revision}, 128 bytes, ${ROUNDS} rounds in turn: medians\n`);
  console.log("| through | p50 ms | p99 ms | added p50 ms | × the byte relay's | calls/s, 32 clients | CPU ms per 1,000 calls |");
  console.log("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
  for (const { name, pid } of targets) {
    const { p50, p99, perSecond, cpuMs } = rows.get(name) ?? { p50: [], p99: [], perSecond: [], cpuMs: [] };
    const added = median(p50) - base;
    const cells = [median(p50).toFixed(2), median(p99).toFixed(2)];
    cells.push(...(name === "direct" ? ["–", "–"] : [added.toFixed(2), (added / floor).toFixed(2)]));
    cells.push(median(perSecond).toFixed(0), pid === null ? "–" : median(cpuMs).toFixed(0));
    console.log(`| ${name} | ${cells.join(" | ")} |`);
  }
}

async function measure(target: Target, revision: Revision, scale: number, row: Row): Promise<void> {
  const pool = new Pool(new URL(target.url).origin, { connections: CLIENTS, pipelining: 1 });
  try {
    const one = await clientOf(target, revision, pool);
    for (let i = 0; i < 300; i += 1) await one();
    const before = cpuOf(target.pid);
    const ms: number[] = [];
    const calls = Math.max(200, Math.round(2_000 * scale));
    for (let i = 0; i < calls; i += 1) {
      const started = performance.now();
      await one();
      ms.push(performance.now() - started);
    }
    row.p50.push(median(ms));
    row.p99.push(quantile(ms, 0.99));
    const clients = await Promise.all(Array.from({ length: CLIENTS }, () => clientOf(target, revision, pool)));
    const each = Math.max(20, Math.round(100 * scale));
    const started = performance.now();
    await Promise.all(
      clients.map(async (call) => {
        for (let i = 0; i < each; i += 1) await call();
      }),
    );
    row.perSecond.push((CLIENTS * each) / ((performance.now() - started) / 1_000));
    row.cpuMs.push((cpuOf(target.pid) - before) / ((calls + CLIENTS * each) / 1_000));
  } finally {
    await pool.destroy();
  }
}

async function clientOf({ url, headers }: Target, revision: Revision, pool: Pool): Promise<Call> {
  let id = 0;
  const { pathname: path } = new URL(url);
  const send = async (message: object, more: Readonly<Record<string, string>>) => {
    const answer = await pool.request({
      path,
      method: "POST",
      headers: { ...JSON_HEADERS, ...headers, ...more },
      body: JSON.stringify({ jsonrpc: "2.0", ...message }),
    });
    return { status: answer.statusCode, session: answer.headers["mcp-session-id"], text: await answer.body.text() };
  };
  const called = async (params: object, more: Readonly<Record<string, string>>) => {
    id += 1;
    const { status, text } = await send({ id, method: "tools/call", params }, more);
    if (status !== 200 || !text.includes(TEXT)) throw new Error(`A call was answered with ${status}: ${text.slice(0, 300)}`);
  };
  if (revision === "2026-07-28") {
    const own = { "mcp-protocol-version": revision, "mcp-method": "tools/call", "mcp-name": CALL.name };
    return () => called({ ...CALL, _meta: META }, own);
  }
  const hello = { protocolVersion: revision, capabilities: {}, clientInfo: { name: "bench", version: "1" } };
  const { status, session, text } = await send({ id: 0, method: "initialize", params: hello }, {});
  if (status !== 200) throw new Error(`initialize was answered with ${status}: ${text.slice(0, 300)}`);
  const own = { "mcp-protocol-version": revision, ...(typeof session === "string" && { "mcp-session-id": session }) };
  await send({ method: "notifications/initialized" }, own);
  return () => called(CALL, own);
}

/** Processor time of a process and its children, in ms. */
function cpuOf(pid: number | null): number {
  if (pid === null) return 0;
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [user = 0, system = 0] = fields.slice(11, 13).map(Number);
  return (user + system) * MS_PER_TICK;
}
