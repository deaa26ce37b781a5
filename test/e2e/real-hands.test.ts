// Other people's servers at doors of their own, each doing one real thing for a client of either era.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client as NewClient, StreamableHTTPClientTransport as NewTransport } from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { peoplesServers } from "../support/mcp/people.ts";
import { needs } from "../support/real-part.ts";
import { Stage } from "./cases/stage.ts";

const SLOW_MS = 60_000;
const Result = z.object({ content: z.array(z.looseObject({ type: z.string(), text: z.string().optional() })), isError: z.boolean().optional() });

interface Used {
  call(tool: string, args?: object): Promise<string>;
  close(): Promise<void>;
}

let stage: Stage;
let folder: string;
let page: Server;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-people-"));
  stage = await Stage.open({ env: { MANYHANDS_MCP_SERVERS_FILE: await peoplesServers(folder) } });
  page = createServer((_, response) =>
    response.writeHead(200, { "content-type": "text/html" }).end("<title>Door</title><button onclick=\"this.textContent='opened'\">knock</button>"),
  );
  await new Promise<void>((resolve) => page.listen(0, "127.0.0.1", resolve));
});
afterAll(async () => {
  await stage.close();
  page.close();
  await rm(folder, { recursive: true, force: true });
});

const eras: readonly (readonly [string, (hand: string) => Promise<Used>])[] = [
  ["handshake", openOld],
  ["stateless", openNew],
];

describe.each(eras)("a client of the %s era", (era, open) => {
  test("adds with server-everything", async () => {
    const hand = await open("everything");
    expect(await hand.call("get-sum", { a: 40, b: 2 })).toContain("42");
    await hand.close();
  });

  test("writes and reads a file with server-filesystem", async () => {
    const hand = await open("files");
    const path = join(folder, `${era}.txt`);
    await hand.call("write_file", { path, content: `by hand, ${era}` });
    expect(await readFile(path, "utf8")).toBe(`by hand, ${era}`);
    expect(await hand.call("read_text_file", { path })).toContain(`by hand, ${era}`);
    await hand.close();
  });

  test("keeps and finds with server-memory", async () => {
    const hand = await open("memory");
    await hand.call("create_entities", { entities: [{ name: `Ada ${era}`, entityType: "person", observations: ["writes programs"] }] });
    expect(await hand.call("search_nodes", { query: `Ada ${era}` })).toContain("writes programs");
    await hand.close();
  });
});

needs("chromium")("a browser", () => {
  test.each(eras)(
    "opens a page, clicks, reads, and gives a picture, for a client of the %s era",
    async (_era, open) => {
      const hand = await open("browser");
      await hand.call("browser_navigate", { url: `http://127.0.0.1:${(page.address() as AddressInfo).port}/` });
      const shown = await hand.call("browser_snapshot");
      const target = /button "knock".*?\[ref=(\w+)\]/.exec(shown)?.[1];
      expect(target, shown).toBeDefined();
      await hand.call("browser_click", { element: "the button", target });
      expect(await hand.call("browser_snapshot")).toContain("opened");
      expect(await hand.call("browser_take_screenshot")).toContain("<image>");
      await hand.close();
    },
    SLOW_MS,
  );
});

const urlOf = (hand: string): URL => new URL(`${stage.installation.url}/mcp/hands/${hand}`);
const withKey = () => ({ requestInit: { headers: { authorization: `Bearer ${stage.installation.apiKey}` } } });

function textOf(given: unknown): string {
  const { content, isError } = Result.parse(given);
  const text = content.map((block) => block.text ?? `<${block.type}>`).join("\n");
  expect(isError ?? false, text).toBe(false);
  return text;
}

async function openOld(hand: string): Promise<Used> {
  const client = new Client({ name: "old", version: "1" });
  const transport = new StreamableHTTPClientTransport(urlOf(hand), withKey());
  await client.connect(transport);
  return {
    call: async (name, args = {}) => textOf(await client.callTool({ name, arguments: { ...args } })),
    close: async () => {
      await transport.terminateSession();
      await client.close();
    },
  };
}

/** Each of its requests stands for itself: that a page stays open from call to call is the work of the door. */
async function openNew(hand: string): Promise<Used> {
  const client = new NewClient({ name: "new", version: "1" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  await client.connect(new NewTransport(urlOf(hand), withKey()));
  return { call: async (name, args = {}) => textOf(await client.callTool({ name, arguments: { ...args } })), close: () => client.close() };
}
