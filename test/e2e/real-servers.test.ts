// Servers of other people, each doing one real thing in a session: everything (HTTP), files and memory (children), a browser (a child, Debian's Chromium).

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { ConfiguredServer } from "../../hands/servers/configured.ts";
import { servers } from "../harnesses/agents.ts";
import { freePort } from "../support/free-port.ts";
import { ROOT } from "../support/process.ts";
import { needs } from "../support/real-part.ts";
import { startNode, type TestNode, until } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const CHROMIUM = "/usr/bin/chromium";
const entry = (name: string, file: string): string => join(ROOT, "node_modules", name, file);
const command = (args: readonly string[], env: Readonly<Record<string, string>> = {}): ConfiguredServer => ({
  type: "command",
  command: { command: process.execPath, args: [...args], env: { ...env }, cwd: folder },
});

let node: TestNode;
let folder: string;
const ends: (() => void | Promise<void>)[] = [];

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "real-"));
  const browser = ["--headless", "--no-sandbox", "--isolated", "--executable-path", CHROMIUM];
  const configured = new Map<string, ConfiguredServer>([
    ["files", command([entry("@modelcontextprotocol/server-filesystem", "dist/index.js"), folder])],
    ["memory", command([entry("@modelcontextprotocol/server-memory", "dist/index.js")], { MEMORY_FILE_PATH: join(folder, "memory.json") })],
    ["browser", command([entry("@playwright/mcp", "cli.js"), ...browser])],
  ]);
  node = await startNode({ servers: { configured, environment: { PATH: process.env.PATH ?? "", HOME: folder } } });
  await node.work();
});
afterAll(async () => {
  await node.close();
  for (const end of ends) await end();
  rmSync(folder, { recursive: true, force: true });
});

/** A session with these servers, whose tools it knows. */
async function open(urls: Readonly<Record<string, string>>) {
  const { tools, mcp_servers } = servers(urls);
  const session = await node.open(tools, { mcp_servers });
  // A cold start of a child may take longer than a first request waits; a later one has its tools.
  await until(async () => {
    await session.say("say: ready");
    await session.idle();
    return (await session.log()).some(({ entry: found }) => found.type === "log.tools");
  }, "the server's tools");
  return session;
}

test("server-everything adds over Streamable HTTP", async () => {
  const port = await freePort();
  // It has no setting for the address that it listens on: a preload binds it to loopback.
  const preload = join(folder, "loopback.cjs");
  writeFileSync(
    preload,
    'const net=require("node:net");const l=net.Server.prototype.listen;net.Server.prototype.listen=function(p,...r){return l.call(this,p,"127.0.0.1",...r.filter((x)=>typeof x==="function"))};',
  );
  const program = spawn(
    process.execPath,
    ["--require", preload, entry("@modelcontextprotocol/server-everything", "dist/index.js"), "streamableHttp"],
    {
      env: { PATH: process.env.PATH, PORT: String(port) },
      stdio: "ignore",
    },
  );
  ends.push(() => void program.kill("SIGKILL"));
  await until(
    () =>
      fetch(`http://127.0.0.1:${port}/mcp`).then(
        () => true,
        () => false,
      ),
    "the server listens",
    20_000,
  );
  const session = await open({ all: `http://127.0.0.1:${port}/mcp` });
  await session.say('call mcp__all__get-sum: {"a":40,"b":2}\necho: sum');
  await session.idle();
  expect((await session.texts()).at(-1)).toContain("42");
});

test("server-filesystem writes a file and reads it", async () => {
  const session = await open({ files: "hand:files" });
  const path = join(folder, "note.txt");
  await session.say(
    `call mcp__files__write_file: ${JSON.stringify({ path, content: "by hand" })}\n---\ncall mcp__files__read_text_file: ${JSON.stringify({ path })}\necho: read`,
  );
  await session.idle();
  expect(readFileSync(path, "utf8")).toBe("by hand");
  expect((await session.texts()).at(-1)).toContain("by hand");
});

test("server-memory keeps what another session finds", async () => {
  const entities = [{ name: "Ada", entityType: "person", observations: ["writes programs"] }];
  const first = await open({ memory: "hand:memory" });
  await first.say(`call mcp__memory__create_entities: ${JSON.stringify({ entities })}\nsay: kept`);
  await first.idle();
  const second = await open({ memory: "hand:memory" });
  await second.say('call mcp__memory__search_nodes: {"query":"Ada"}\necho: found');
  await second.idle();
  expect((await second.texts()).at(-1)).toContain("writes programs");
});

needs("chromium")("a browser", () => {
  test("@playwright/mcp opens a page, clicks, reads, and gives a picture", async () => {
    const page: Server = createServer((_, response) =>
      response.writeHead(200, { "content-type": "text/html" }).end("<title>Door</title><button onclick=\"this.textContent='opened'\">knock</button>"),
    );
    await new Promise<void>((resolve) => page.listen(0, "127.0.0.1", resolve));
    ends.push(() => void page.close());
    const url = `http://127.0.0.1:${(page.address() as AddressInfo).port}/`;
    const session = await open({ browser: "hand:browser" });
    await session.say(`call mcp__browser__browser_navigate: ${JSON.stringify({ url })}\n---\ncall mcp__browser__browser_snapshot: {}\necho: page`);
    await session.idle();
    const shown = (await session.results()).at(-1)?.text ?? "";
    const ref = /button "knock".*?\[ref=(\w+)\]/.exec(shown)?.[1];
    expect(ref, shown).toBeDefined();
    const click = JSON.stringify({ element: "the button", target: ref });
    await session.say(
      `call mcp__browser__browser_click: ${click}\n---\ncall mcp__browser__browser_snapshot: {}\n---\ncall mcp__browser__browser_take_screenshot: {}\nsay: seen`,
    );
    await session.idle();
    const log = await session.log();
    const results = log.flatMap(({ entry: found }) => (found.type === "agent.mcp_tool_result" ? [found] : []));
    expect(results.map(({ is_error }) => is_error)).toEqual([false, false, false, false, false]);
    expect(JSON.stringify(results.at(-2)?.content)).toContain("opened");
    expect(results.at(-1)?.content.some(({ type }) => type === "image")).toBe(true);
  });
});
