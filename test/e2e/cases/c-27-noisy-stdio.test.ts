// Whatever a child prints that is no frame goes to diagnostics and ends nothing; frames of megabytes in small pieces are read.
//
// azizmazrou/ews-mcp#133, openclaw/openclaw#71793, jwbron/egg#2804

import { afterEach, expect, test } from "vitest";
import { closeHands, FRESH, openCommand, stdio, textOf } from "../../support/mcp/hand.ts";

afterEach(() => closeHands());

test("banners, empty lines and log lines between frames are diagnostics", async () => {
  const { call, logged } = openCommand(stdio("noisy"));
  expect(textOf(await call("echo", { text: "through" }))).toBe("through");
  const lines = logged.filter(({ msg }) => msg === "server.said").map(({ line }) => line);
  expect(lines).toEqual(expect.arrayContaining(["=== Server 1.0 ===", "{not json}", "INFO about to answer"]));
  expect(logged.filter(({ msg }) => msg === "server.connected")).toHaveLength(1);
});

test("a credential of the child's environment is in no diagnostic", async () => {
  const token = "server-token-canary";
  const { call, logged } = openCommand({ ...stdio("noisy"), env: { SERVER_TOKEN: token } });
  expect(textOf(await call("echo", { text: "through" }))).toBe("through");
  const lines = logged.filter(({ msg }) => msg === "server.said").map(({ line }) => line);
  expect(lines).toContain("listening, token ***");
  expect(JSON.stringify(logged)).not.toContain(token);
});

test("a frame of five megabytes comes in pieces of one kilobyte", async () => {
  const { call } = openCommand(stdio("pieces"));
  expect(textOf(await call("big"))).toMatch(/^x{10000}[\s\S]*left out here[\s\S]*x{10000}$/);
});

test.each(["flood", "babble"])("a %s without an end ends the child and its call, in bounded time, and the next call has a new one", async (mode) => {
  const hand = openCommand(stdio(mode), { idleMs: 20_000, totalMs: 60_000 });
  const before = process.memoryUsage().rss;
  expect(textOf(await hand.call("echo", { text: "x" }))).toMatch(/^unknown: MCP server "thing": it sent more than 20000 messages in 10000 ms/);
  expect((process.memoryUsage().rss - before) / 1024 / 1024).toBeLessThan(200);
  expect(hand.logged.filter(({ msg }) => msg === "server.said").length).toBeLessThanOrEqual(21);
  expect(await hand.hand.listTools(FRESH)).toMatchObject({ type: "ready" });
});
