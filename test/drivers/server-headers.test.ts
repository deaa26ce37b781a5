// Arguments in headers, against the official server of the stateless era, which refuses a call whose headers and body don't agree.

import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler, fromJsonSchema, McpServer } from "@modelcontextprotocol/server";
import { afterEach, beforeEach, expect, test } from "vitest";
import { closeHands, FRESH, type OpenHand, openUrl, textOf } from "../support/mcp/hand.ts";

const INPUT = {
  type: "object" as const,
  properties: {
    region: { type: "string", "x-mcp-header": "Region" },
    at: { type: "object", properties: { shard: { type: "integer", "x-mcp-header": "Shard" } } },
    dry: { type: "boolean", "x-mcp-header": "Dry-Run" },
    text: { type: "string" },
  },
};

/** The package's type of a schema knows no words of the protocol. */
let schema: object = INPUT;
let headers: IncomingHttpHeaders[] = [];
let calls = 0;
let close: () => Promise<void>;
let hand: OpenHand;
beforeEach(async () => {
  schema = INPUT;
  headers = [];
  calls = 0;
  const handler = createMcpHandler(
    () => {
      const made = new McpServer({ name: "checks", version: "1" });
      made.registerTool(
        "put",
        { description: "Puts it there.", inputSchema: fromJsonSchema(schema as Parameters<typeof fromJsonSchema>[0]) },
        async (input) => {
          calls += 1;
          return { content: [{ type: "text", text: JSON.stringify(input) }] };
        },
      );
      return made;
    },
    { legacy: "reject" },
  );
  const listener = toNodeHandler(handler);
  const http = createServer((request, response) => {
    headers.push(request.headers);
    const { method = "GET", url = "/", headers: given } = request;
    void listener({ method, url, headers: given, [Symbol.asyncIterator]: () => request[Symbol.asyncIterator]() }, response);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  close = async () => {
    const closed = new Promise<void>((resolve) => http.close(() => resolve()));
    http.closeAllConnections();
    await closed;
  };
  hand = openUrl(`http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`);
});
afterEach(async () => {
  await closeHands();
  await close();
});

const INPUTS: [string, object, Record<string, string>][] = [
  [
    "plain values",
    { region: "eu", at: { shard: 7 }, dry: true, text: "x" },
    { "mcp-param-region": "eu", "mcp-param-shard": "7", "mcp-param-dry-run": "true" },
  ],
  ["a text that no header holds", { region: "Zürich\n", text: "x" }, { "mcp-param-region": "=?base64?WsO8cmljaAo=?=" }],
  ["a text that looks encoded", { region: "=?base64?eA==?=" }, { "mcp-param-region": "=?base64?PT9iYXNlNjQ/ZUE9PT89?=" }],
  ["none of them", { text: "x" }, {}],
];
test.each(INPUTS)("%s are told, and the server is content", async (_what, input, told) => {
  await hand.hand.listTools(FRESH);
  expect(JSON.parse(textOf(await hand.call("put", input)))).toEqual(input);
  const last = headers.at(-1) ?? {};
  expect(Object.fromEntries(Object.entries(last).filter(([name]) => name.startsWith("mcp-param-")))).toEqual(told);
});

test("a call of a hand that has not read the list yet, or an old one, is sent again with what the server wants", async () => {
  expect(JSON.parse(textOf(await hand.call("put", { region: "eu" })))).toEqual({ region: "eu" });
  schema = { ...INPUT, properties: { ...INPUT.properties, text: { type: "string", "x-mcp-header": "Text" } } };
  expect(JSON.parse(textOf(await hand.call("put", { region: "eu", text: "new" })))).toEqual({ region: "eu", text: "new" });
  expect(calls).toBe(2);
  expect(headers.at(-1)).toMatchObject({ "mcp-param-text": "new" });
});

test("a tool that asks wrongly is left out, and it is said why", async () => {
  schema = { type: "object", properties: { a: { type: "number", "x-mcp-header": "A" } } };
  const list = await hand.hand.listTools(FRESH);
  expect(list).toMatchObject({
    type: "ready",
    tools: [],
    notes: [{ tool: "put", keyword: "x-mcp-header", what: "left_out", says: expect.stringContaining("a string, an integer or a boolean") }],
  });
});
