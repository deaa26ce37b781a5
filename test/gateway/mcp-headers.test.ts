// What the stateless era says twice, in headers and in the body, has to agree; and no header is taken for another one.

import { request } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { handshake, STATELESS, stateless } from "../support/mcp.ts";
import { type Doors, FIRST, openDoors } from "../support/mcp-door.ts";
import { probe } from "../support/mcp-surface.ts";

const MISMATCH = -32_020;
const META = {
  "io.modelcontextprotocol/protocolVersion": STATELESS,
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};

const tools = probe();
let doors: Doors;
let url: string;
beforeAll(async () => {
  doors = await openDoors(tools.surface);
  url = doors.urls[0] ?? "";
});
afterAll(() => doors.close());

type Given = Readonly<Record<string, string | string[]>>;

/** One request with exactly these headers beside those that any needs; a list is the same header several times. */
async function ask(method: string, params: object, headers: Given, key: Given = FIRST) {
  const answer = await request(url, {
    method: "POST",
    headers: { accept: "application/json, text/event-stream", "content-type": "application/json", ...key, ...headers },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: META } }),
  });
  const text = await answer.body.text();
  return { status: answer.statusCode, code: Number(/"code":(-\d+)/.exec(text)?.[1] ?? 0), text };
}

const base64 = (text: string) => `=?base64?${Buffer.from(text).toString("base64")}?=`;
const call = { name: "echo", arguments: { text: "x" } };
const right = { "mcp-protocol-version": STATELESS, "mcp-method": "tools/call", "mcp-name": "echo" };

describe("a call whose headers", () => {
  const good: [string, Given][] = [
    ["say what the body says", right],
    ["say the name in base64", { ...right, "mcp-name": base64("echo") }],
    ["hold one that nobody declared", { ...right, "mcp-param-region": "eu" }],
  ];
  test.each(good)("%s is done", async (_what, headers) => {
    const { status, text } = await ask("tools/call", call, headers);
    expect(status, text).toBe(200);
    expect(text).toContain("x");
  });

  const { "mcp-name": _name, ...nameless } = right;
  const { "mcp-method": _method, ...methodless } = right;
  const bad: [string, Given][] = [
    ["lack the name", nameless],
    ["lack the method", methodless],
    ["hold an empty name", { ...right, "mcp-name": "" }],
    ["spell the method otherwise", { ...right, "mcp-method": "Tools/Call" }],
    ["spell the name otherwise", { ...right, "mcp-name": "Echo" }],
    ["hold another name in base64", { ...right, "mcp-name": base64("count") }],
    ["hold base64 that is none", { ...right, "mcp-name": "=?base64?e!cho?=" }],
    ["hold base64 that is no text", { ...right, "mcp-name": "=?base64?//79?=" }],
    ["hold base64 without an end", { ...right, "mcp-name": "=?base64?ZWNobw==" }],
    ["hold two names", { ...right, "mcp-name": ["echo", "count"] }],
    ["hold the same name twice", { ...right, "mcp-name": ["echo", "echo"] }],
    ["hold two methods", { ...right, "mcp-method": ["tools/call", "tools/list"] }],
    ["hold two revisions", { ...right, "mcp-protocol-version": [STATELESS, "2025-11-25"] }],
    ["hold the same revision twice", { ...right, "mcp-protocol-version": [STATELESS, STATELESS] }],
  ];
  test.each(bad)("%s is refused, and not done", async (_what, headers) => {
    const { status, code, text } = await ask("tools/call", call, headers);
    expect(status, text).toBe(400);
    expect(code, text).toBe(MISMATCH);
    expect(text).not.toContain('"text":"');
  });

  test("name another resource, or none, is refused", async () => {
    const mine = (await stateless(url, FIRST, { id: 1, method: "resources/list" })).messages[0]?.result.resources[0].uri as string;
    const read = { "mcp-protocol-version": STATELESS, "mcp-method": "resources/read" };
    expect((await ask("resources/read", { uri: mine }, { ...read, "mcp-name": mine })).status).toBe(200);
    for (const headers of [read, { ...read, "mcp-name": "test://other" }, { ...read, "mcp-name": [mine, mine] }])
      expect(await ask("resources/read", { uri: mine }, headers)).toMatchObject({ status: 400, code: MISMATCH });
  });
});

test("a body that says a method which its headers don't is judged by no header: what the key may not do is not done", async () => {
  const answer = await ask("tools/call", call, { ...right, "mcp-method": "tools/list" }, {});
  expect(answer.status).toBe(401);
});

test("in the handshake era two session ids are no session", async () => {
  const opened = await handshake(url, FIRST);
  const headers = { "mcp-protocol-version": "2025-11-25", "mcp-session-id": [opened.session, opened.session] };
  expect((await ask("tools/call", call, headers)).status).toBe(404);
});
