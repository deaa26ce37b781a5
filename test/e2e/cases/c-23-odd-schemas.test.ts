// One odd schema can't take down a request: its tool is offered in a form that the model's API takes, or left out, and an event names server, tool and
// keyword; all others work.
//
// anthropics/claude-code#45106, #88049, #95504

import { afterAll, beforeAll, expect, test } from "vitest";
import { servers } from "../../harnesses/agents.ts";
import { RawServer } from "../../support/mcp/raw.ts";
import { startNode, type TestNode } from "../node.ts";

const TOOLS = [
  { name: "plain", inputSchema: { type: "object", properties: { text: { type: "string" } } } },
  { name: "any", inputSchema: { anyOf: [{ properties: { text: { type: "string" } } }, { properties: { id: { type: "number" } } }] } },
  {
    name: "all",
    inputSchema: {
      allOf: [
        { if: { properties: { kind: { const: "a" } } }, else: { required: ["a"] } },
        { properties: { kind: { type: "string" } }, required: ["kind"] },
      ],
    },
  },
  { name: "text", inputSchema: { type: "string" } },
  { name: "none" },
  { name: "far", inputSchema: { type: "object", properties: { text: { $ref: "http://127.0.0.1:9/schema.json" } } } },
  { name: "spaced", inputSchema: { type: "object", properties: { "a b": { type: "string" } } } },
  { name: "deep", inputSchema: Array.from({ length: 1_500 }).reduce<object>((inner) => ({ type: "object", properties: { a: inner } }), {}) },
];

let node: TestNode;
let server: RawServer;
beforeAll(async () => {
  node = await startNode();
  await node.work();
  server = await RawServer.start({ hasSessions: true, tools: TOOLS });
});
afterAll(async () => {
  await node.close();
  await server.close();
});

test("eight tools, five of them in a form that the model takes; the event names the rest", async () => {
  const { tools, mcp_servers } = servers({ odd: server.url });
  const session = await node.open(tools, { mcp_servers });
  const inputOf = (name: string) => JSON.stringify({ text: name, ...(name === "all" ? { kind: "a" } : {}) });
  const calls = ["plain", "any", "all", "none", "far"].map((name) => `call mcp__odd__${name}: ${inputOf(name)}`);
  await session.say([...calls, "say: over"].join("\n"));
  await session.idle();
  expect(await session.texts()).toEqual(["over"]);
  expect((await session.results()).map(({ text }) => text)).toEqual(["plain", "any", "all", "none", "far"].map((name) => `${name}: ${name}`));
  expect(node.model.requests().filter(({ rejected }) => rejected)).toEqual([]);
  const offered = node.model.requests()[0]?.body as { tools: { name: string; description: string; input_schema: Record<string, unknown> }[] };
  const byName = new Map(offered.tools.map((tool) => [tool.name, tool]));
  expect([...byName.keys()]).toEqual(["all", "any", "far", "none", "plain"].map((name) => `mcp__odd__${name}`));
  expect(byName.get("mcp__odd__any")?.input_schema).toMatchObject({
    type: "object",
    properties: { text: { type: "string" }, id: { type: "number" } },
  });
  expect(byName.get("mcp__odd__any")?.description).toContain('"anyOf"');
  expect(byName.get("mcp__odd__all")?.input_schema).toMatchObject({ required: ["kind"] });
  const [error, ...more] = (await session.log()).flatMap(({ entry }) => (entry.type === "session.error" ? [entry.error] : []));
  expect(more).toEqual([]);
  expect(error).toMatchObject({ type: "mcp_connection_failed_error", mcp_server_name: "odd" });
  for (const said of [
    '"any" is offered in another form (anyOf)',
    '"text" was left out (type)',
    '"spaced" was left out (properties)',
    '"deep" was left out',
  ])
    expect(error?.message).toContain(said);
  expect(error?.message).not.toContain('"plain"');
});

test("arguments that fit the form that the model was given and not the server's own schema are said to be wrong, and not sent", async () => {
  const { tools, mcp_servers } = servers({ odd: server.url });
  const session = await node.open(tools, { mcp_servers });
  const sent = server.count("tools/call");
  await session.say('call mcp__odd__all: {"kind":"b"}\nsay: over');
  await session.idle();
  expect(await session.results()).toEqual([
    { text: expect.stringMatching(/^MCP server "odd": the arguments do not fit the tool's schema.*"a"/), isError: true },
  ]);
  expect(server.count("tools/call")).toBe(sent);
});
