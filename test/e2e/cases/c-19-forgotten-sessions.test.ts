// As a client of servers: a session id that a server forgot leads to one fresh handshake and one retry; a second 404 surfaces, and an application's own
// 404 means nothing.
//
// modelcontextprotocol/rust-sdk#733, metatool-ai/metamcp#294, agentgateway/agentgateway#3622

import { afterEach, expect, test } from "vitest";
import { closeHands, openUrl, textOf } from "../../support/mcp/hand.ts";
import { RawServer } from "../../support/mcp/raw.ts";

const started: RawServer[] = [];
const serve = async (options: Parameters<typeof RawServer.start>[0]) => {
  const server = await RawServer.start({ hasSessions: true, ...options });
  started.push(server);
  return server;
};
afterEach(async () => {
  await closeHands();
  await Promise.all(started.splice(0).map((server) => server.close()));
});

test("a server that forgets its sessions after each call is called all the same, without its old id", async () => {
  const server = await serve({});
  const { call } = openUrl(server.url);
  for (const text of ["one", "two", "three"]) {
    expect(textOf(await call("echo", { text }))).toBe(`echo: ${text}`);
    server.sessions.clear();
  }
  expect(server.count("initialize")).toBe(3);
  const handshakes = server.headers.filter((_, at) => server.seen[at]?.method === "initialize");
  expect(handshakes.map((headers) => headers["mcp-session-id"])).toEqual([undefined, undefined, undefined]);
});

test("calls that meet the same forgotten session share one new one", async () => {
  const server = await serve({});
  const { call } = openUrl(server.url);
  await call("echo");
  server.sessions.clear();
  const both = await Promise.all([call("echo", { text: "a" }), call("echo", { text: "b" })]);
  expect(both.map(textOf)).toEqual(["echo: a", "echo: b"]);
  expect(server.count("initialize")).toBeLessThanOrEqual(3);
});

test("a server that always answers 404 is one error, and no loop", async () => {
  const server = await serve({
    script({ rpc, response }) {
      if (rpc.method !== "tools/call") return false;
      response.writeHead(404).end();
      return true;
    },
  });
  const { call } = openUrl(server.url);
  expect(textOf(await call("echo"))).toBe('failed: MCP server "thing": it answered with status 404; it was not run');
  expect([server.count("tools/call"), server.count("initialize")]).toEqual([2, 2]);
});

test("an error of the application with the code 404 renews nothing", async () => {
  const server = await serve({
    script({ rpc, error }) {
      if (rpc.method !== "tools/call") return false;
      error(404, "no such page");
      return true;
    },
  });
  const { call } = openUrl(server.url);
  expect(textOf(await call("echo"))).toContain("no such page");
  expect([server.count("tools/call"), server.count("initialize")]).toEqual([1, 1]);
});
