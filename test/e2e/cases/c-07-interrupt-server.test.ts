// C-07 with a call of an MCP server, through the API: an interrupt stops it within seconds, its server is told, the call is closed for good.
//
// anthropics/anthropic-sdk-go#393, anthropics/anthropic-sdk-python#1750

import { afterAll, beforeAll, expect, test } from "vitest";
import { RawServer, says } from "../../support/mcp/raw.ts";
import { until } from "../../support/until.ts";
import { errorsOf, Stage, stopsOf } from "./stage.ts";

const STOPPED_MS = 5_000;

let stage: Stage;
let server: RawServer;
beforeAll(async () => {
  server = await RawServer.start({ hasSessions: true, call: (_, { text }) => (text === "quick" ? says("quick") : undefined) });
  stage = await Stage.open({ env: { MANYHANDS_MCP_INTERNAL_HOSTS: `127.0.0.1:${server.port}` } });
});
afterAll(async () => {
  await stage.close();
  await server.close();
});

test("a call of a server is stopped, closed and not offered again, also not after everything was started again", async () => {
  const { agents, environments, sessions } = stage.client.beta;
  const agent = await agents.create({
    name: "Case",
    model: "scripted-model",
    mcp_servers: [{ type: "url", name: "docs", url: server.url }],
    tools: [{ type: "mcp_toolset", mcp_server_name: "docs", default_config: { permission_policy: { type: "always_allow" } } }],
  });
  const environment = await environments.create({ name: "with-servers" });
  const { id } = await sessions.create({ agent: agent.id, environment_id: environment.id });
  const session = stage.known(id);
  await session.say('call mcp__docs__echo: {"text":"quick"}\ncall mcp__docs__echo: {"text":"slow"}\n---\nsay: never');
  await session.has("agent.mcp_tool_result");
  await until(() => server.count("tools/call") === 2, { what: "the second call at the server" });
  const from = performance.now();
  await session.interrupt();
  const events = await session.settled();
  expect(performance.now() - from).toBeLessThan(STOPPED_MS);
  await until(() => server.count("notifications/cancelled") === 1, { what: "the cancel at the server" });
  const uses = events.filter(({ type }) => type === "agent.mcp_tool_use");
  const results = events.filter(({ type }) => type === "agent.mcp_tool_result");
  expect(uses.map((event) => [event.mcp_server_name, event.name])).toEqual([
    ["docs", "echo"],
    ["docs", "echo"],
  ]);
  expect(results.map((event) => event.mcp_tool_use_id)).toEqual(uses.map((event) => event.id));
  expect(results.map((event) => event.is_error)).toEqual([false, true]);
  expect([stopsOf(events).at(-1), errorsOf(events)]).toEqual(["end_turn", []]);
  await stage.restart("node");
  expect(await session.turn("say: next")).toBe("next");
  expect(server.count("tools/call")).toBe(2);
});
