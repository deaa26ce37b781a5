// What the door of a hand refuses, takes out and keeps apart.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { API_KEY, type Api, startApi } from "../support/api.ts";
import { handshake, post, STATELESS, send, stateless } from "../support/mcp.ts";
import { json, registerHand, type ScriptedHand, startScriptedHand } from "../support/relay.ts";

let api: Api;
let hand: ScriptedHand;
let door: string;
const KEY = { authorization: `Bearer ${API_KEY}` };
const OTHER = { authorization: "Bearer test-key-2" };
const META = {
  "io.modelcontextprotocol/protocolVersion": STATELESS,
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
const OWN = { "mcp-protocol-version": STATELESS, "mcp-method": "tools/call", "mcp-name": "t" };

beforeAll(async () => {
  api = await startApi();
  hand = await startScriptedHand({ eras: ["handshake", "stateless"] });
  door = `${api.url}/mcp/hands/both`;
});
afterAll(async () => {
  await api.close();
  await hand.close();
});
beforeEach(async () => {
  await registerHand(api.store, { name: "both", url: hand.url });
  hand.answer(({ body }, response) => {
    const { id } = body === "" ? { id: undefined } : JSON.parse(body);
    if (id === undefined) response.writeHead(202).end();
    else json(response, { jsonrpc: "2.0", id, result: { content: [] } });
  });
});

test("nothing that lets a caller in, or says where it is, reaches the hand", async () => {
  const secret = { ...KEY, "x-api-key": API_KEY, cookie: "a=secret-cookie", "x-forwarded-for": "10.1.2.3", forwarded: "for=10.1.2.3" };
  await stateless(door, secret, { id: 1, method: "tools/call", params: { name: "t" } });
  const { call } = await handshake(door, secret);
  await call(1, "tools/call", { name: "t" });
  const text = JSON.stringify(hand.seen);
  expect(hand.seen.length).toBeGreaterThan(2);
  for (const word of [API_KEY, "secret-cookie", "10.1.2.3"]) expect(text).not.toContain(word);
  expect(hand.seen.at(-1)?.headers.host).toBe(new URL(hand.url).host);
  const audited = api.logged.filter((line) => line.includes('"hand.used"')).map((line) => JSON.parse(line));
  expect(audited.at(-1)).toMatchObject({ hand: "both", method: "tools/call", name: "t", outcome: "ok", workspace: "default", era: "handshake" });
});

test("a session is its caller's, its hand's, and ends for all", async () => {
  await registerHand(api.store, { name: "second", url: hand.url });
  const { session, headers, call } = await handshake(door, KEY);
  expect(session).toMatch(/^mcpr_[0-9A-Za-z]{24}$/);
  expect(session).not.toContain("theirs");
  const before = hand.seen.length;
  const foreign = { ...headers, ...OTHER };
  const ping = { jsonrpc: "2.0", id: 1, method: "ping" };
  expect((await post(door, ping, foreign)).status).toBe(404);
  expect((await send(door, "GET", foreign)).status).toBe(404);
  expect((await send(door, "DELETE", foreign)).status).toBe(404);
  expect((await post(`${api.url}/mcp/hands/second`, ping, headers)).status).toBe(404);
  expect((await post(`${api.url}/mcp`, ping, headers)).status).toBe(404);
  expect((await post(door, ping, { ...headers, authorization: "Bearer wrong" })).status).toBe(401);
  expect((await post(door, ping, { "mcp-session-id": "mcpr_000000000000000000000000" })).status).toBe(404);
  expect(hand.seen).toHaveLength(before);
  expect((await call(2, "ping")).status).toBe(200);
  expect(hand.seen.at(-1)?.headers["mcp-session-id"]).toMatch(/^theirs-/);
  expect((await send(door, "DELETE", headers)).status).toBe(204);
  expect(hand.seen.at(-1)).toMatchObject({ method: "DELETE", headers: { "mcp-session-id": expect.stringMatching(/^theirs-/) } });
  expect((await call(3, "ping")).status).toBe(404);
});

describe("a hand asks only for what the client declared", () => {
  const asking = { messages: [], maxTokens: 1 };

  test("in the stateless era the question becomes an error", async () => {
    const result = { resultType: "input_required", requestState: "s", inputRequests: { a: { method: "sampling/createMessage", params: asking } } };
    hand.answer(({ body }, response) => json(response, { jsonrpc: "2.0", id: JSON.parse(body).id, result }));
    const call = { id: "q", method: "tools/call", params: { name: "t" } };
    const refused = await stateless(door, KEY, call, { elicitation: {} });
    expect(refused.status).toBe(400);
    expect(refused.messages).toMatchObject([{ id: "q", error: { code: -32_021, data: { requiredCapabilities: { sampling: {} } } } }]);
    expect(refused.text).not.toContain("requestState");
    expect((await stateless(door, KEY, call, { sampling: {} })).messages).toMatchObject([{ id: "q", result }]);
  });

  test("in the handshake era the hand is told, and the client hears nothing", async () => {
    let told: unknown = null;
    hand.answer(({ body }, response) => {
      const message = JSON.parse(body);
      if (message.error) {
        told = message;
        return void response.writeHead(202).end();
      }
      if (message.method !== "tools/call") return void response.writeHead(202).end();
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(`data: ${JSON.stringify({ jsonrpc: "2.0", id: 77, method: "sampling/createMessage", params: asking })}\n\n`);
      const done = setInterval(() => {
        if (told === null) return;
        clearInterval(done);
        response.end(`data: ${JSON.stringify({ jsonrpc: "2.0", id: message.id, result: { content: [] } })}\n\n`);
      }, 5);
    });
    const { call } = await handshake(door, KEY);
    const { messages } = await call(5, "tools/call", { name: "t" });
    expect(messages).toEqual([{ jsonrpc: "2.0", id: 5, result: { content: [] } }]);
    expect(told).toMatchObject({ id: 77, error: { code: -32_601 } });
  });
});

test.each([
  ["another method", { "mcp-method": "tools/list" }],
  ["another name", { "mcp-name": "u" }],
  ["no name", { "mcp-name": "" }],
  ["a name that is no base64", { "mcp-name": "=?base64?not base64?=" }],
  ["another name in base64", { "mcp-name": `=?base64?${Buffer.from("u").toString("base64")}?=` }],
  ["another revision", { "mcp-protocol-version": "2025-11-25" }],
  ["a parameter that is no base64", { "mcp-param-x": "=?base64?%%%?=" }],
])("headers that say %s than the body are refused before the hand hears of it", async (_, wrong) => {
  const before = hand.seen.length;
  const body = { jsonrpc: "2.0", id: 9, method: "tools/call", params: { name: "t", arguments: {}, _meta: META } };
  const refused = await post(door, body, { ...KEY, ...OWN, ...wrong });
  expect(refused.status, refused.text).toBe(400);
  expect(refused.messages).toMatchObject([{ id: 9, error: { code: -32_020 } }]);
  expect(hand.seen).toHaveLength(before);
  const right = { ...KEY, ...OWN, "mcp-name": `=?base64?${Buffer.from("t").toString("base64")}?=` };
  expect((await post(door, body, right)).status).toBe(200);
});

test("of `_meta`, each side says only what is its own to say; everything else passes", async () => {
  const vendor = { "vendor/x": { deep: 1 }, traceparent: "00-1-2-01", "io.modelcontextprotocol/related-task": { taskId: "t" } };
  const clients = { "io.modelcontextprotocol/clientInfo": { name: "forged", version: "1" }, "io.modelcontextprotocol/protocolVersion": "x" };
  const servers = { "io.modelcontextprotocol/serverInfo": { name: "forged" }, "io.modelcontextprotocol/subscriptionId": "other" };
  hand.answer(({ body }, response) =>
    json(
      response,
      `{"jsonrpc":"2.0","id":${JSON.stringify(JSON.parse(body).id)},"result":{"content":[],"_meta":${JSON.stringify({ ...clients, ...vendor, ...servers })}}}`,
    ),
  );
  const modern = await stateless(door, KEY, { id: 1, method: "tools/call", params: { name: "t", _meta: { ...servers, ...vendor } } });
  expect(JSON.parse(hand.last("tools/call")?.body ?? "").params._meta).toEqual({ ...vendor, ...META });
  expect(modern.messages[0]?.result._meta).toEqual({ ...vendor, "io.modelcontextprotocol/serverInfo": { name: "forged" } });
  hand.answer(({ body }, response) =>
    JSON.parse(body).id === undefined ? response.writeHead(202).end() : json(response, { jsonrpc: "2.0", id: JSON.parse(body).id, result: {} }),
  );
  const { call } = await handshake(door, KEY);
  await call(2, "tools/call", { name: "t", _meta: { ...servers, ...vendor, "io.modelcontextprotocol/logLevel": "debug" } });
  expect(JSON.parse(hand.last("tools/call")?.body ?? "").params._meta).toEqual(vendor);
});

describe("messages that could be read in two ways, or mixed up", () => {
  test.each([
    ["a batch", "[{}]", -32_600],
    ["a name twice", '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}', -32_600],
    ["a tool twice", '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","n\\u0061me":"b"}}', -32_600],
    ["an id that is null", '{"jsonrpc":"2.0","id":null,"method":"ping"}', -32_600],
    ["an id that is no whole number", '{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32_600],
    ["an id too large to be told from its neighbour", '{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}', -32_600],
    ["no JSON", '{"jsonrpc":', -32_700],
    ["bytes that are no text", "\ud800", -32_700],
  ])("%s is refused", async (_, text, code) => {
    const { headers } = await handshake(door, KEY);
    const before = hand.seen.length;
    const refused = await post(door, text, headers);
    expect(refused.status).toBe(400);
    expect(refused.messages).toMatchObject([{ error: { code } }]);
    expect(hand.seen).toHaveLength(before);
  });

  test("odd ids come back as they were sent", async () => {
    const { call } = await handshake(door, KEY);
    for (const id of ["__proto__", "constructor", "", 0, -1, "1", 1]) expect((await call(id, "tools/call", { name: "t" })).messages[0]?.id).toBe(id);
  });
});

test("what the hand says of its inside stays inside, and a refusal of the hand is none of ours", async () => {
  const page = "<h1>Error</h1> at Object.<anonymous> (/srv/app/secret.js:1) postgres://user:pass@db";
  for (const status of [500, 503, 302, 401, 403]) {
    hand.answer((_, response) =>
      response.writeHead(status, { "content-type": "text/html", location: "http://169.254.169.254/", "www-authenticate": "Bearer x" }).end(page),
    );
    const told = await stateless(door, KEY, { id: 3, method: "tools/call", params: { name: "t" } });
    expect([told.status, told.headers["www-authenticate"], told.headers.location]).toEqual([200, undefined, undefined]);
    expect(told.messages).toMatchObject([{ id: 3, error: { code: -32_603 } }]);
    expect(told.text).not.toMatch(/secret|postgres|127\.0\.0\.1/);
  }
  await registerHand(api.store, { name: "inside", url: "http://10.0.0.1/mcp" });
  const refused = await stateless(`${api.url}/mcp/hands/inside`, KEY, { id: 4, method: "tools/call", params: { name: "t" } });
  expect(refused.messages).toMatchObject([{ error: { data: { reason: "hand_unreachable" } } }]);
  expect(refused.text).not.toContain("10.0.0.1");
});

test("tools that may not be called are not shown and not called", async () => {
  const tools = ["a", "b", "c"].map((name) => ({ name, inputSchema: { type: "object", maximum: 1 } }));
  const held = { name: "b", description: "", input_schema: {}, hash: "h", reason: "changed" as const };
  await registerHand(api.store, { name: "some", url: hand.url, allowed_tools: ["a", "b"], held_back: [held] });
  const list = `{ "tools" : [${tools.map((tool) => ` ${JSON.stringify(tool)} `)}] , "cacheScope":"public","ttlMs":9, "n": 1.0 }`;
  hand.answer(({ body }, response) => {
    const { id } = JSON.parse(body);
    if (id === undefined) response.writeHead(202).end();
    else json(response, `{"jsonrpc":"2.0","id":${id},"result":${list}}`);
  });
  const some = `${api.url}/mcp/hands/some`;
  const modern = await stateless(some, KEY, { id: 1, method: "tools/list" });
  expect(modern.messages[0]?.result).toEqual({ tools: [tools[0]], cacheScope: "private", ttlMs: 0, n: 1 });
  expect(modern.text).toContain('"n": 1.0 }');
  const { call } = await handshake(some, KEY);
  expect((await call(2, "tools/list")).messages[0]?.result.tools).toEqual([tools[0]]);
  const before = hand.seen.length;
  for (const [name, says] of [
    ["b", "held back"],
    ["c", "may be called"],
  ] as const) {
    expect((await call(3, "tools/call", { name })).messages).toMatchObject([
      { id: 3, error: { code: -32_602, message: expect.stringContaining(says) } },
    ]);
    expect((await stateless(some, KEY, { id: 3, method: "tools/call", params: { name } })).messages).toMatchObject([{ error: { code: -32_602 } }]);
  }
  expect(hand.seen).toHaveLength(before);
});

test("a list that a key decides on is nobody else's to keep; at an open door it leaves as it came", async () => {
  hand.answer(({ body }, response) =>
    json(response, { jsonrpc: "2.0", id: JSON.parse(body).id, result: { prompts: [], ttlMs: 9, cacheScope: "public" } }),
  );
  const list = { id: 1, method: "prompts/list" };
  expect((await stateless(door, KEY, list)).messages[0]?.result).toEqual({ prompts: [], ttlMs: 9, cacheScope: "private" });
  const open = await startApi({ mcp: { isOpen: true } });
  await registerHand(open.store, { name: "both", url: hand.url });
  expect((await stateless(`${open.url}/mcp/hands/both`, {}, list)).messages[0]?.result).toEqual({ prompts: [], ttlMs: 9, cacheScope: "public" });
  await open.close();
});

test("state, cursors and odd JSON pass byte for byte, both ways", async () => {
  const state = '"\\u0073tate \\/ \\ud83d\\ude00 é"';
  const body = `{ "id":1,\n"params":{"name":"t","big":12345678901234567890,"f":1.0e2,"requestState":${state},"_meta":${JSON.stringify(META)}},"method":"tools/call","jsonrpc":"2.0" }`;
  const answer = `{"result":{"x":0.10,"requestState":${state}, "nextCursor":"\\u0041"},\t"id":1,"jsonrpc":"2.0"}\n`;
  hand.answer((_, response) => json(response, answer));
  const reply = await post(door, body, { ...KEY, ...OWN });
  expect(hand.seen.at(-1)?.body).toBe(body);
  expect(reply.text).toBe(answer);
});

test("pages and names from elsewhere, an unknown hand, and who has no key, are refused in order", async () => {
  const call = { id: 1, method: "tools/list" };
  expect((await stateless(door, { ...KEY, origin: "https://evil.example" }, call)).status).toBe(403);
  expect((await stateless(door, { ...KEY, host: "evil.example" }, call)).status).toBe(403);
  const unknown = await stateless(door, {}, call);
  expect([unknown.status, unknown.headers["www-authenticate"]]).toEqual([401, expect.stringContaining('scope="hands:use"')]);
  expect((await stateless(`${api.url}/mcp/hands/none`, {}, call)).status).toBe(401);
  expect((await stateless(`${api.url}/mcp/hands/none`, KEY, call)).status).toBe(404);
  expect((await send(door, "PUT", KEY)).status).toBe(405);
});
