// Headers that repeat arguments of a tool's call, at the door of a hand: held against the body, whichever era the hand is of and whoever approved its tools.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { API_KEY, type Api, startApi } from "../support/api.ts";
import { stateless } from "../support/mcp.ts";
import { json, registerHand, type ScriptedHand, startScriptedHand } from "../support/relay.ts";

const KEY = { authorization: `Bearer ${API_KEY}` };
const MISMATCH = -32_020;
const schema = {
  type: "object",
  properties: {
    region: { type: "string", "x-mcp-header": "Region" },
    shard: { type: "integer", "x-mcp-header": "Shard" },
    inner: { type: "object", properties: { dry: { type: "boolean", "x-mcp-header": "Dry-Run" } } },
    free: { type: "string" },
  },
};
const base64 = (text: string) => `=?base64?${Buffer.from(text).toString("base64")}?=`;
let api: Api;
const hands: Partial<Record<"modern" | "old" | "pinned" | "silent", ScriptedHand>> = {};

/** Lists two tools on two pages, unless it is silent, and does every call. */
async function startHand(era: "handshake" | "stateless", isSilent = false): Promise<ScriptedHand> {
  const hand = await startScriptedHand({ eras: [era] });
  hand.answer(({ body }, response) => {
    const { id, method, params } = body === "" ? { id: undefined, method: "", params: {} } : JSON.parse(body);
    if (id === undefined) return void response.writeHead(body === "" ? 405 : 202).end();
    if (method !== "tools/list") return json(response, { jsonrpc: "2.0", id, result: { content: [] } });
    if (isSilent) return json(response, { jsonrpc: "2.0", id, error: { code: -32_603, message: "not now" } });
    const tools = [{ name: params.cursor === "2" ? "query" : "other", inputSchema: params.cursor === "2" ? schema : { type: "object" } }];
    json(response, { jsonrpc: "2.0", id, result: { tools, ...(params.cursor !== "2" && { nextCursor: "2" }), ttlMs: 0, cacheScope: "private" } });
  });
  return hand;
}

beforeAll(async () => {
  api = await startApi();
  hands.modern = await startHand("stateless");
  hands.old = await startHand("handshake");
  hands.silent = await startHand("stateless", true);
  hands.pinned = await startHand("handshake", true);
  for (const [name, { url }] of Object.entries(hands)) {
    const tools = name === "pinned" ? [{ name: "query", description: "", input_schema: schema, hash: "h" }] : null;
    await registerHand(api.store, { name, url, tools });
  }
});
afterAll(async () => {
  await api.close();
  await Promise.all(Object.values(hands).map((hand) => hand.close()));
});

const called = (hand: keyof typeof hands, method: string) =>
  (hands[hand]?.seen ?? []).filter(({ body }) => body.includes(`"method":"${method}"`)).length;
const ask = (hand: keyof typeof hands, args: object, headers: Readonly<Record<string, string>>, name = "query") =>
  stateless(`${api.url}/mcp/hands/${hand}`, { ...KEY, ...headers }, { id: 1, method: "tools/call", params: { name, arguments: args } });

describe.each(["modern", "old", "pinned"] as const)("at the hand %s", (hand) => {
  test.each([
    ["none that is wanted, and no header", {}, {}],
    ["null", { region: null }, {}],
    ["text", { region: "eu", free: "x" }, { "mcp-param-region": "eu" }],
    ["text in base64", { region: "Zürich\n" }, { "mcp-param-region": base64("Zürich\n") }],
    ["a number", { shard: 42 }, { "mcp-param-shard": "42.0" }],
    ["an inner truth", { inner: { dry: false } }, { "mcp-param-dry-run": "false" }],
    ["text, and a header that no definition names", { region: "eu" }, { "mcp-param-region": "eu", "mcp-param-colour": "red" }],
  ])("arguments that are %s are passed on", async (_, args, headers) => {
    const { status, text } = await ask(hand, args, headers);
    expect(status, text).toBe(200);
  });

  test.each([
    ["another text", { region: "eu" }, { "mcp-param-region": "us" }],
    ["another text in base64", { region: "eu" }, { "mcp-param-region": base64("us") }],
    ["nothing", { region: "eu" }, {}],
    ["another number", { shard: 42 }, { "mcp-param-shard": "42.5" }],
    ["what is no number", { shard: 0 }, { "mcp-param-shard": "" }],
    ["another truth", { inner: { dry: false } }, { "mcp-param-dry-run": "true" }],
    ["something that the body does not say", {}, { "mcp-param-region": "eu" }],
    ["something that the body says is nothing", { region: null }, { "mcp-param-region": "eu" }],
  ])("headers that say %s are refused before the hand hears of the call", async (_, args, headers) => {
    const before = called(hand, "tools/call");
    const { status, messages } = await ask(hand, args, headers);
    expect([status, messages[0]?.id, messages[0]?.error?.code]).toEqual([400, 1, MISMATCH]);
    expect(called(hand, "tools/call")).toBe(before);
  });

  test("its tools are read once for all of that, or not at all where they are approved", () => {
    expect(called(hand, "tools/list")).toBe(hand === "pinned" ? 0 : 2);
  });
});

test("a tool that the list does not have passes, and the hand is not asked for its list with each call", async () => {
  const before = called("modern", "tools/list");
  for (let times = 0; times < 12; times += 1) expect((await ask("modern", { region: "eu" }, {}, "unlisted")).status).toBe(200);
  expect(called("modern", "tools/list") - before).toBeLessThanOrEqual(4);
});

test("a hand that does not say what its tools are is called all the same: it is the one to check", async () => {
  expect((await ask("silent", { region: "eu" }, {})).status).toBe(200);
  expect((await ask("silent", { region: "eu" }, {})).status).toBe(200);
  expect(called("silent", "tools/list")).toBe(1);
});
