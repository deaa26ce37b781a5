// A hand that is an MCP server, in each era and over each transport.

import { afterEach, expect, test } from "vitest";
import { type EraServer, startHandshake, startOldSse, startStateless } from "../support/mcp/eras.ts";
import { closeHands, FRESH, openCommand, openUrl, stdio, textOf } from "../support/mcp/hand.ts";
import { until } from "../support/until.ts";

const servers: EraServer[] = [];
afterEach(async () => {
  await closeHands();
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

test.each([
  ["a handshake and sessions", startHandshake, "legacy"],
  ["neither", startStateless, "modern"],
  ["the old event stream", startOldSse, "legacy"],
])("a server with %s is listed, called and told of a cancel", async (_, start, era) => {
  const server = await start();
  servers.push(server);
  const { hand, call, logged } = openUrl(server.url);
  const list = await hand.listTools(FRESH);
  expect(list.type === "ready" && list.tools.map(({ name }) => name)).toEqual(["echo", "slow"]);
  expect(logged.filter(({ msg }) => msg === "server.connected").map((line) => line.era)).toEqual([era]);
  expect(await hand.listTools({ ...FRESH, known: list.type === "ready" ? list.hash : null })).toEqual({ type: "same" });
  expect(textOf(await call("echo", { text: "hi" }))).toBe("echo: hi");
  const slow = call("slow", {}, "slow-1");
  await until(() => server.calls.includes("slow"), { what: "the call at the server" });
  hand.cancel("slow-1", "it was cancelled");
  expect(textOf(await slow)).toBe("failed: it was cancelled");
  await until(() => server.cancelled.includes("slow"), { what: "the cancel at the server" });
  expect(textOf(await call("echo", { text: "again" }))).toBe("echo: again");
});

test.each(["plain", "modern"])("a child that speaks the %s way is listed and called", async (mode) => {
  const { hand, call } = openCommand(stdio(mode));
  const list = await hand.listTools(FRESH);
  expect(list.type === "ready" && list.tools.length).toBe(5);
  expect(textOf(await call("echo", { text: "hi" }))).toBe("hi");
});
