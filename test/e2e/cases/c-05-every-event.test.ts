// The official SDK's stream and its lists show the same events, in the same order, whatever types they have and however they are paged.
//
// anthropics/anthropic-sdk-python#1357, google/adk-python#3613, superduck-ai/open-managed-agents#285

import { afterAll, beforeAll, expect, test } from "vitest";
import { mint } from "../../../session-store/ids.ts";
import { RawServer, says, tool } from "../../support/mcp/raw.ts";
import { Stage } from "./stage.ts";

const EVENTS_MIN = 300;
const PAGE = 20;
const TURN = [
  "think: how to go about it",
  'call bash: {"command":"true"}',
  "---",
  'call mcp__notes__look: {"text":"x"}',
  "---",
  'call mcp__notes__broken: {"text":"x"}',
  "say: done",
].join("\n");

let stage: Stage;
let server: RawServer;
beforeAll(async () => {
  stage = await Stage.open({ env: { MANYHANDS_MCP_INTERNAL_HOSTS: "*" } });
  server = await RawServer.start({ tools: [tool("look"), tool("broken")], call: (name) => says(`${name} says so`, name === "broken") });
});
afterAll(async () => {
  await stage.close();
  await server.close();
});

test("of a session with thinking, tools of a hand and of a server, and errors, stream and pages give the same ids", async () => {
  const { agents, environments, sessions } = stage.client.beta;
  const allowed = { permission_policy: { type: "always_allow" as const } };
  const [agent, environment] = await Promise.all([
    agents.create({
      name: "Case",
      model: "scripted-model",
      mcp_servers: [
        { type: "url", name: "notes", url: server.url },
        { type: "url", name: "away", url: "http://127.0.0.1:9/mcp" },
      ],
      tools: [
        { type: "agent_toolset_20260401" },
        { type: "mcp_toolset", mcp_server_name: "notes", default_config: allowed },
        { type: "mcp_toolset", mcp_server_name: "away", default_config: allowed },
      ],
    }),
    environments.create({ name: mint("case") }),
  ]);
  const { id } = await sessions.create({ agent: agent.id, environment_id: environment.id });
  const session = stage.known(id);
  const streamed: { readonly id: string; readonly type: string }[] = [];
  const stream = await sessions.events.stream(id);
  const reading = (async () => {
    for await (const event of stream) if ("id" in event) streamed.push({ id: event.id, type: event.type });
  })();
  for (let events = 0; events < EVENTS_MIN; events = (await session.events()).length) await session.turn(TURN);

  const all = (await session.events()).map(({ id: each }) => each);
  const paged: string[] = [];
  for await (const event of sessions.events.list(id, { limit: PAGE })) paged.push(event.id);
  expect(paged).toEqual(all);
  await expect.poll(() => streamed.length, { timeout: 10_000 }).toBeGreaterThanOrEqual(all.length);
  // A message is shown when it arrives and again when it is processed: the last time is its place.
  const places = streamed.map(({ id: each }) => each);
  expect(places.filter((each, at) => places.lastIndexOf(each) === at)).toEqual(all);
  const types = new Set(streamed.map(({ type }) => type));
  for (const type of ["agent.thinking", "agent.tool_use", "agent.tool_result", "agent.mcp_tool_use", "agent.mcp_tool_result", "session.error"])
    expect(types).toContain(type);
  stream.controller.abort();
  await reading;
});

test.each([
  ["a query parameter", "made_up", (id: string) => ["GET", `/v1/sessions/${id}/events?made_up=1`, undefined] as const],
  ["a field", "made_up", (id: string) => ["POST", `/v1/sessions/${id}`, { made_up: 1 }] as const],
])("%s that nobody knows is refused by its name", async (_what, name, ask) => {
  const session = await stage.session();
  const [method, path, body] = ask(session.id);
  const headers = {
    "x-api-key": stage.installation.apiKey,
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "managed-agents-2026-04-01",
    "content-type": "application/json",
  };
  const response = await fetch(`${stage.installation.url}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) });
  expect(response.status).toBe(400);
  expect(await response.text()).toContain(name);
});
