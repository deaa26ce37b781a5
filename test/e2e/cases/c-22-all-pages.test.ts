// Every list is followed to its last page and never for ever; tools are counted once.
//
// vercel/ai#19240, github/copilot-cli#4006, DeusData/codebase-memory-mcp#1247

import { afterEach, expect, test } from "vitest";
import { closeHands, FRESH, openUrl } from "../../support/mcp/hand.ts";
import { RawServer, tool } from "../../support/mcp/raw.ts";
import { until } from "../../support/until.ts";

const started: RawServer[] = [];
afterEach(async () => {
  await closeHands();
  await Promise.all(started.splice(0).map((server) => server.close()));
});

/** A server whose pages a function makes. */
async function paged(page: (cursor: string | undefined) => { tools: object[]; nextCursor?: string }): Promise<RawServer> {
  const server = await RawServer.start({
    hasSessions: true,
    script({ rpc, result }) {
      if (rpc.method !== "tools/list") return false;
      const cursor = rpc.params?.cursor;
      result(page(typeof cursor === "string" ? cursor : undefined));
      return true;
    },
  });
  started.push(server);
  return server;
}

const some = (from: number, count: number) => Array.from({ length: count }, (_, at) => tool(`t${from + at}`));

async function listed(server: RawServer) {
  const list = await openUrl(server.url).hand.listTools(FRESH);
  if (list.type !== "ready") throw new Error(JSON.stringify(list));
  return list;
}

test("50 + 50 + 1 tools are 101", async () => {
  const pages = [some(0, 50), some(50, 50), some(100, 1)];
  const server = await paged((cursor) => {
    const at = Number(cursor ?? "0");
    return { tools: pages[at] ?? [], ...(at < 2 ? { nextCursor: String(at + 1) } : {}) };
  });
  const { tools, notes } = await listed(server);
  expect([tools.length, new Set(tools.map(({ name }) => name)).size, notes]).toEqual([101, 101, []]);
});

test("the same cursor for ever is its tools once and one warning, at once", async () => {
  const server = await paged(() => ({ tools: some(0, 8), nextCursor: "again" }));
  const from = performance.now();
  const { tools, notes } = await listed(server);
  expect(performance.now() - from).toBeLessThan(1_000);
  expect(tools).toHaveLength(8);
  expect(notes.map(({ keyword }) => keyword)).toEqual(["nextCursor"]);
  expect(server.count("tools/list")).toBe(2);
});

test("cursors and tools without an end come to a bounded list, and that is said", async () => {
  let page = 0;
  const server = await paged(() => {
    page += 1;
    return { tools: some(page * 100, 100), nextCursor: `c${page}` };
  });
  const { tools, notes } = await listed(server);
  expect(tools).toHaveLength(1_000);
  expect(notes.map(({ keyword }) => keyword)).toEqual(["tools"]);
});

test("a list that changes is read again when the server says so", async () => {
  let count = 1;
  const server = await paged(() => ({ tools: some(0, count) }));
  const { hand } = openUrl(server.url);
  expect(await hand.listTools(FRESH)).toMatchObject({ tools: [{ name: "t0" }] });
  await until(() => server.listeners === 1, { what: "the client listens" });
  count = 2;
  server.tell("notifications/tools/list_changed");
  await until(async () => {
    const list = await hand.listTools({ ...FRESH, isFresh: false });
    return list.type === "ready" && list.tools.length === 2;
  });
});
