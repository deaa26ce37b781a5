// A call's arguments are judged by the server's own schema before they are sent; and no schema can hold the host up while it is judged by.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { closeHands, FRESH, openUrl, textOf } from "../support/mcp/hand.ts";
import { RawServer, says } from "../support/mcp/raw.ts";

const started: RawServer[] = [];
afterEach(async () => {
  await closeHands();
  await Promise.all(started.splice(0).map((server) => server.close()));
});

async function open(schemas: Readonly<Record<string, unknown>>) {
  const tools = Object.entries(schemas).map(([name, inputSchema]) => ({ name, inputSchema }));
  const server = await RawServer.start({ hasSessions: true, tools, call: (name) => says(`ran ${name}`) });
  started.push(server);
  const hand = openUrl(server.url);
  const list = await hand.hand.listTools(FRESH);
  if (list.type !== "ready") throw new Error(`the list is ${list.type}`);
  return { server, list, call: async (name: string, input: object) => textOf(await hand.call(name, input)) };
}

const text = { type: "string" };
const OBJECT = { type: "object", properties: { text, n: { type: "integer", minimum: 1 } }, required: ["text"], additionalProperties: false };
const WRONG: [string, unknown, object, RegExp][] = [
  ["what is required and not there", OBJECT, {}, /text/],
  ["another type", OBJECT, { text: 7 }, /string/],
  ["a number below its least", OBJECT, { text: "x", n: 0 }, /minimum|less/],
  ["a name too many", OBJECT, { text: "x", other: 1 }, /other|additional/i],
  ["neither of two branches", { anyOf: [{ required: ["a"] }, { required: ["b"] }] }, { c: 1 }, /subschemas|anyOf|match/i],
  [
    "a condition",
    { type: "object", if: { properties: { kind: { const: "a" } }, required: ["kind"] }, else: { required: ["a"] } },
    { kind: "b" },
    /"a"|else/,
  ],
  ["what a reference says", { type: "object", properties: { at: { $ref: "#/$defs/at" } }, $defs: { at: { type: "string" } } }, { at: 1 }, /string/],
  ["the dialect before", { $schema: "http://json-schema.org/draft-07/schema#", type: "object", required: ["a"] }, {}, /"a"/],
];
test.each(WRONG)("%s is said to the model, and not sent", async (_what, schema, input, words) => {
  const { server, call } = await open({ tool: schema });
  const said = await call("tool", input);
  expect(said).toMatch(/^MCP server "thing": the arguments do not fit the tool's schema, and it was not run: /);
  expect(said).toMatch(words);
  expect(server.count("tools/call")).toBe(0);
});

test("null for what may be absent is sent as it was given; for what must be there it is said to be wrong", async () => {
  const { server, call } = await open({ tool: OBJECT });
  await call("tool", { text: "x", n: null });
  expect(server.seen.at(-1)?.params?.arguments).toEqual({ text: "x", n: null });
  expect(await call("tool", { text: null })).toMatch(/was not run/);
  expect(server.count("tools/call")).toBe(1);
});

test("arguments that fit the server's own schema are sent, also where the model was given another form of it", async () => {
  const { call, list } = await open({
    tool: OBJECT,
    any: {
      anyOf: [
        { properties: { a: text }, required: ["a"] },
        { properties: { b: text }, required: ["b"] },
      ],
    },
  });
  expect(list.notes.map(({ tool }) => tool)).toEqual(["any"]);
  expect([await call("tool", { text: "x", n: 1 }), await call("any", { b: "x" }), await call("any", { c: "x" })]).toEqual([
    "ran tool",
    "ran any",
    expect.stringContaining("do not fit"),
  ]);
});

test("what has a default may be absent, however deep, though its schema lists it as required", async () => {
  const inner = { type: "object", properties: { scale: { ...text, default: "css" }, at: text }, required: ["scale", "at"] };
  const schema = {
    type: "object",
    properties: { scale: { ...text, default: "css" }, inner, all: { type: "array", items: inner } },
    required: ["scale"],
  };
  const { call, server } = await open({ tool: schema });
  expect(await call("tool", {})).toBe("ran tool");
  expect(await call("tool", { inner: { at: "x" }, all: [{ at: "y" }] })).toBe("ran tool");
  const sent = server.count("tools/call");
  expect(await call("tool", { all: [{ scale: "css" }] })).toContain("was not run");
  expect(server.count("tools/call")).toBe(sent);
});

test("what can't be judged is sent: the server judges by itself", async () => {
  const odd = {
    none: undefined,
    dialect: { $schema: "urn:my-own", type: "object", required: ["a"] },
    pattern: { type: "object", properties: { a: { type: "string", pattern: "(" } } },
    lost: { type: "object", properties: { a: { $ref: "#/$defs/nowhere" } } },
  };
  const { call } = await open(odd);
  for (const name of Object.keys(odd)) expect(await call(name, { a: "x" })).toBe(`ran ${name}`);
});

/** 2 to the 40th steps for who follows each reference. */
const doubling = () => {
  const $defs: Record<string, object> = { d0: { type: "string" } };
  for (let n = 1; n <= 40; n += 1) $defs[`d${n}`] = { allOf: [{ $ref: `#/$defs/d${n - 1}` }, { $ref: `#/$defs/d${n - 1}` }] };
  return { type: "object", properties: { a: { $ref: "#/$defs/d40" } }, $defs };
};
const nested = (depth: number) => `${'{"type":"object","properties":{"a":'.repeat(depth)}{}${"}}".repeat(depth)}`;
const BOMBS: Record<string, unknown> = {
  "a pattern that never ends": { type: "object", properties: { a: { type: "string", pattern: "^(a+)+$" } } },
  "references that double": doubling(),
  "a root that means itself": { $ref: "#" },
  "two that mean each other": {
    type: "object",
    properties: { a: { $ref: "#/$defs/x" } },
    $defs: { x: { $ref: "#/$defs/y" }, y: { $ref: "#/$defs/x" } },
  },
  "a list of itself": { type: "object", properties: { a: { $ref: "#" }, b: { type: "array", items: { $ref: "#" } } } },
};
test.each(Object.entries(BOMBS))("%s holds nobody up", { timeout: 60_000 }, async (_what, schema) => {
  const { server, list, call } = await open({ bomb: schema, good: OBJECT });
  expect(list.tools.map(({ name }) => name)).toContain("good");
  const from = performance.now();
  const input = { a: `${"a".repeat(40)}!` };
  const [said, good] = await Promise.all([call("bomb", input), call("good", { text: "x" })]);
  expect(good).toBe("ran good");
  expect(said).toMatch(/^ran bomb$|do not fit/);
  // A second time costs nothing more, and others are still judged.
  await call("bomb", input);
  expect(await call("good", {})).toContain("do not fit");
  expect(performance.now() - from).toBeLessThan(30_000);
  expect(server.count("tools/call")).toBeGreaterThanOrEqual(1);
});

test("a schema of a hundred thousand levels is left out, and that is said", async () => {
  const tools = `[{"name":"deep","inputSchema":${nested(100_000)}},{"name":"good","inputSchema":{"type":"object"}}]`;
  const server = await RawServer.start({
    script({ rpc, response }) {
      if (rpc.method !== "tools/list") return false;
      response.writeHead(200, { "content-type": "application/json" }).end(`{"jsonrpc":"2.0","id":${rpc.id},"result":{"tools":${tools}}}`);
      return true;
    },
  });
  started.push(server);
  const list = await openUrl(server.url).hand.listTools(FRESH);
  if (list.type !== "ready") throw new Error(JSON.stringify(list));
  expect(list.tools.map(({ name }) => name)).toEqual(["good"]);
  expect(list.notes).toMatchObject([{ tool: "deep", what: "left_out", says: expect.stringContaining("levels deep") }]);
});

test("nothing is fetched for a schema, when it is listed as when it is judged by", async () => {
  let asked = 0;
  const far = createServer((_request, response) => {
    asked += 1;
    response.end("{}");
  });
  far.on("connection", () => {
    asked += 1;
  });
  await new Promise<void>((resolve) => far.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(far.address() as AddressInfo).port}/schema.json`;
  const { call } = await open({
    property: { type: "object", properties: { a: { $ref: url } } },
    dynamic: { type: "object", properties: { a: { $dynamicRef: `${url}#a` } } },
    based: { $id: url, type: "object", properties: { a: { $ref: "other.json" } } },
    dialect: { $schema: url, type: "object" },
  });
  for (const name of ["property", "dynamic", "based", "dialect"]) expect(await call(name, { a: "x" })).toBe(`ran ${name}`);
  expect(asked).toBe(0);
  await new Promise<void>((resolve) => far.close(() => resolve()));
});
