// What the vault proxy adds to a call of an MCP server: the route that puts a credential in, beside the bare hop to the same server, in one run.
//
// Server and caller are in this process, the proxies are programs: one with its audit on the disk, one with its audit in a memory file system, where a
// sync costs nothing. Without /dev/shm the second one is left out. A byte relay of a few lines stands beside them: the least that any program between
// can add, since the bare hop has no other program in it. Calls take turns between the ways, so that all meet the same machine.

import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Pool } from "undici";
import { type Program, startProgram } from "../support/process.ts";
import { Caller } from "../vault-proxy/mcp-kit.ts";
import { Signer } from "../vault-proxy/signer.ts";
import { median, print } from "./figures.ts";

const MEMORY = "/dev/shm";
const BODY = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "echo", arguments: { text: "a".repeat(900) } } });
const TOGETHER = 32;

interface Way {
  readonly name: string;
  readonly ms: number[];
  call(): Promise<void>;
  readonly pool: Pool;
}

/** `n`: calls of each way, one after the other; as many again at once, 32 at a time. */
export async function measureVault(folder: string, n: number): Promise<void> {
  const server = createServer((req, res) => {
    req.resume();
    req.on("end", () => res.writeHead(200, { "content-type": "application/json" }).end(BODY));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const target = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
  const signer = new Signer();
  await signer.rotate("k1");
  const inMemory = existsSync(MEMORY) ? await mkdtemp(join(MEMORY, "manyhands-bench-")) : null;
  const proxies: Program[] = [];
  const ways: Way[] = [wayTo("bare loopback hop", target, {})];
  try {
    const bytes = startProgram("test/bench/relay-parts", { args: ["bytes", target] });
    proxies.push(bytes);
    ways.push(wayTo("through a byte relay of a few lines, no credential", await bytes.listening(), {}));
    const places: (readonly [string, string])[] = [["through the vault proxy, audit synced to the disk", join(folder, "vault")]];
    if (inMemory !== null) places.push(["through the vault proxy, audit line not synced", inMemory]);
    for (const [name, dataDir] of places) {
      const env = {
        MANYHANDS_DATA_DIR: dataDir,
        MANYHANDS_KEYS_DIR: signer.folder,
        MANYHANDS_INTERNAL_HOSTS: "127.0.0.1",
        MANYHANDS_LOG_LEVEL: "info",
        NODE_ENV: "production",
      };
      const proxy = startProgram("vault-proxy/main", { env });
      proxies.push(proxy);
      const url = await proxy.listening();
      const caller = new Caller(url, signer);
      const grant = await caller.grant([await caller.bearer(target, "a-bearer-token-of-forty-characters-00000")]);
      ways.push(wayTo(name, `${url}/mcp`, { authorization: `Bearer ${grant}`, "x-manyhands-target": target }));
    }
    for (let i = -Math.ceil(n / 10); i < n; i += 1)
      for (const way of ways) {
        const started = performance.now();
        await way.call();
        if (i >= 0) way.ms.push(performance.now() - started);
      }
    const [bare] = ways;
    const baseline = { name: "bare loopback hop", ms: median(bare?.ms ?? []) };
    print(
      "A call of an MCP server, 1 KB each way",
      ways.map((way) => ({ name: way.name, ms: way.ms, ...(way === bare ? {} : { baseline }) })),
    );
    console.log(`\n${TOGETHER} at a time, calls a second: ${(await rates(ways, n)).join(", ")}.`);
  } finally {
    for (const { pool } of ways) await pool.destroy();
    for (const proxy of proxies) await proxy[Symbol.asyncDispose]();
    signer.remove();
    if (inMemory !== null) await rm(inMemory, { recursive: true, force: true });
    server.closeAllConnections();
    server.close();
  }
}

function wayTo(name: string, url: string, headers: Readonly<Record<string, string>>): Way {
  const { origin, pathname } = new URL(url);
  const pool = new Pool(origin, { connections: TOGETHER });
  const call = async () => {
    const answer = await pool.request({ method: "POST", path: pathname, headers: { ...headers, "content-type": "application/json" }, body: BODY });
    const text = await answer.body.text();
    if (answer.statusCode !== 200 || text.length !== BODY.length) throw new Error(`${name}: ${answer.statusCode} ${text.slice(0, 200)}`);
  };
  return { name, ms: [], call, pool };
}

async function rates(ways: readonly Way[], n: number): Promise<readonly string[]> {
  const told: string[] = [];
  for (const { name, call } of ways) {
    let left = n;
    const started = performance.now();
    await Promise.all(
      Array.from({ length: TOGETHER }, async () => {
        while (left-- > 0) await call();
      }),
    );
    told.push(`${name} ${Math.round((n / (performance.now() - started)) * 1_000)}`);
  }
  return told;
}
