// Batches of JSON-RPC at our own door and at the doors of hands: taken where the session's revision has them, told apart from every other.

import { once } from "node:events";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { serveBatch } from "../../gateway/mcp/batch.ts";
import { API_KEY, type Api, startApi } from "../support/api.ts";
import { makeServer as makeFidelityServer, startHandshakeServer } from "../support/fidelity/handshake.ts";
import { startFullNew } from "../support/mcp/full-new.ts";
import { type RunningRelay, startServerRelay } from "../support/mcp/server-relay.ts";
import { startSseServer } from "../support/mcp/sse-server.ts";
import { handshake, post, STATELESS } from "../support/mcp.ts";
import { registerHand } from "../support/relay.ts";
import { until } from "../support/until.ts";

const KEY = { authorization: `Bearer ${API_KEY}` };
const OLD = ["2024-11-05", "2025-03-26"] as const;
/** More than a connection takes at once. */
const LONG = "x".repeat(2 * 1024 * 1024);
let api: Api;
let host: RunningRelay;
const servers: { url: string; close(): Promise<void> }[] = [];

beforeAll(async () => {
  host = await startServerRelay({});
  api = await startApi({ relay: { handsUrl: host.origin } });
  const [http, sse, modern] = [await startHandshakeServer(), await startSseServer(makeFidelityServer), await startFullNew()];
  servers.push(http, sse, modern);
  await registerHand(api.store, { name: "http", url: http.url });
  await registerHand(api.store, { name: "sse", url: sse.url, transport: "sse" });
  await registerHand(api.store, { name: "modern", url: modern.url });
});
afterAll(async () => {
  await api.close();
  await Promise.all([host.close(), ...servers.map((server) => server.close())]);
});

const call = (id: string | number, method: string, params?: object) => ({ jsonrpc: "2.0", id, method, ...(params && { params }) });
const tool = (id: string | number, name: string, args: object = {}, meta?: object) =>
  call(id, "tools/call", { name, arguments: args, ...(meta && { _meta: meta }) });
const door = (hand: string) => `${api.url}/mcp${hand === "" ? "" : `/hands/${hand}`}`;
const session = async (hand: string, version: string) => {
  const opened = await handshake(door(hand), KEY, { version });
  await opened.notify("notifications/initialized");
  return opened;
};

interface Answer {
  readonly id: unknown;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: number; readonly message: string };
}
/** The answers, by id, whether they came as an array or one by one. */
async function batch(url: string, headers: Readonly<Record<string, string>>, messages: readonly unknown[] | string) {
  const { status, text, messages: streamed, headers: given } = await post(url, messages, headers);
  const all: readonly Answer[] = text.startsWith("[") ? JSON.parse(text) : (streamed as readonly Answer[]);
  return { status, type: given["content-type"], all, text, of: (id: unknown) => all.filter((answer) => answer.id === id) };
}

describe.each(OLD)("a session of revision %s", (version) => {
  test("has each request of a batch answered once at our own door", async () => {
    const { headers } = await session("", version);
    const { status, all, of } = await batch(door(""), headers, [
      call(1, "ping"),
      { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "nobody's" } },
      tool("a", "list_agents"),
      call("1", "no/such"),
      { jsonrpc: "2.0", id: 9 },
    ]);
    expect(status).toBe(200);
    expect(of(1)).toEqual([{ jsonrpc: "2.0", id: 1, result: {} }]);
    expect(of("a")).toMatchObject([{ result: { structuredContent: {} } }]);
    expect(of("1")).toMatchObject([{ error: { code: -32_601 } }]);
    expect(of(9)).toMatchObject([{ error: { code: -32_600 } }]);
    expect(all).toHaveLength(4);
  });

  test.each(["http", "sse"])("has each request of a batch answered once at the hand %s, with what comes before the answer", async (hand) => {
    const { headers } = await session(hand, version);
    const { status, text, all, of } = await batch(door(hand), headers, [
      tool(1, "echo", { big: 1 }),
      tool(2, "steps", {}, { progressToken: "p" }),
      tool(3, "throws"),
      call(4, "tools/list"),
    ]);
    expect(status, text).toBe(200);
    for (const id of [1, 2, 3, 4]) expect(of(id), text).toHaveLength(1);
    expect(of(3)[0]?.error).toMatchObject({ code: -31_999, message: expect.stringContaining("Refused on purpose") });
    const progress = all.filter((message) => "method" in message && message.method === "notifications/progress");
    expect(progress).toMatchObject([0, 0.5, 1].map((at) => ({ params: { progressToken: "p", progress: at } })));
  });

  test("has a batch answered by a hand of the other era", async () => {
    const { headers } = await session("modern", version);
    const { of } = await batch(door("modern"), headers, [tool(1, "add", { a: 2, b: 3 }), call(2, "ping"), call(3, "prompts/list")]);
    expect(of(1)).toMatchObject([{ result: { content: [{ text: "5" }] } }]);
    expect(of(2)).toMatchObject([{ result: {} }]);
    expect(of(3)).toMatchObject([{ result: { prompts: [{ name: "about" }] } }]);
  });
});

test("answers that come soon and alone are one array, and each message passes as it was written", async () => {
  const { headers } = await session("sse", "2025-03-26");
  const text = `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"n":1.50,"é":"\\u00e9]"}}},\n ${JSON.stringify(call(2, "ping"))}]`;
  const { type, all, of } = await batch(door("sse"), headers, text);
  expect(type).toBe("application/json");
  expect(all).toHaveLength(2);
  expect(JSON.stringify(of(1))).toContain("é]");
});

test("a client's answers may come as a batch", async () => {
  const { headers } = await handshake(door("http"), KEY, { version: "2025-03-26", capabilities: { sampling: {}, elicitation: {}, roots: {} } });
  const answers: Record<string, object> = {
    "sampling/createMessage": { role: "assistant", content: { type: "text", text: "4" }, model: "m" },
    "elicitation/create": { action: "decline" },
    "roots/list": { roots: [] },
  };
  const statuses: Promise<number>[] = [];
  const reply = await post(door("http"), [tool("ask", "ask")], headers, ({ id, method = "" }) => {
    if (id === undefined || !answers[method]) return;
    const answer = { jsonrpc: "2.0", id, result: answers[method] };
    statuses.push(post(door("http"), [answer, { jsonrpc: "2.0", id: "nobody asked", result: {} }], headers).then(({ status }) => status));
  });
  expect(reply.messages.at(-1)?.result.content[0].text).toContain("decline");
  expect(await Promise.all(statuses)).toEqual([202, 202, 202]);
});

describe("what a hand batches", () => {
  const tools = [
    { name: "shown", inputSchema: { type: "object" } },
    { name: "hidden", inputSchema: { type: "object" } },
  ];
  let http: Server;
  const told: unknown[] = [];
  /** Answers a list with a batch: a notice, a question, the list. */
  const serve = (message: { id?: number; method?: string; params?: { protocolVersion?: string } }, response: ServerResponse) => {
    const { id, method, params } = message;
    const json = { "content-type": "application/json" };
    if (method === undefined || id === undefined) {
      told.push(message);
      return void response.writeHead(202).end();
    }
    const hello = { protocolVersion: params?.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "batching", version: "1" } };
    if (method === "initialize")
      return void response.writeHead(200, { ...json, "mcp-session-id": "one" }).end(JSON.stringify({ jsonrpc: "2.0", id, result: hello }));
    if (method === "tools/call") {
      const result = { content: [{ type: "text", text: LONG }] };
      return void response.writeHead(200, json).end(JSON.stringify({ jsonrpc: "2.0", id, result }));
    }
    const notice = { jsonrpc: "2.0", method: "notifications/message", params: { level: "info", data: "é" } };
    const messages = [notice, { jsonrpc: "2.0", id: 77, method: "sampling/createMessage", params: {} }, { jsonrpc: "2.0", id, result: { tools } }];
    response.writeHead(200, { "content-type": "text/event-stream" }).end(`event: message\ndata: ${JSON.stringify(messages)}\n\n`);
  };
  beforeAll(async () => {
    http = createServer((request, response) => {
      let body = "";
      request.on("data", (chunk) => {
        body += chunk;
      });
      request.on("end", () => serve(body === "" ? {} : JSON.parse(body), response));
    });
    await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
    await registerHand(api.store, {
      name: "batching",
      url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
      allowed_tools: ["shown"],
    });
  });
  afterAll(async () => {
    http.closeAllConnections();
    await new Promise((resolve) => http.close(resolve));
  });

  test("is read message by message: the rules of single ones hold for each", async () => {
    const { headers } = await session("batching", "2025-03-26");
    const accept = { accept: "application/json, text/event-stream", "content-type": "application/json" };
    const body = JSON.stringify(call(1, "tools/list"));
    const text = await (await fetch(door("batching"), { method: "POST", headers: { ...accept, ...headers }, body })).text();
    const [data = ""] = text.split("\n").filter((line) => line.startsWith("data: "));
    const shown = { jsonrpc: "2.0", id: 1, result: { tools: tools.slice(0, 1) } };
    expect(JSON.parse(data.slice(6))).toEqual([expect.objectContaining({ method: "notifications/message" }), shown]);
    await until(() => told.some((message) => JSON.stringify(message).includes('"id":77')), { what: "the refusal of the question" });
  });

  test("is answered whole, however long an answer is", async () => {
    const { headers } = await session("batching", "2025-03-26");
    const { all } = await batch(door("batching"), headers, [tool(1, "shown"), tool(2, "shown")]);
    expect(all.map(({ result }) => JSON.stringify(result ?? "").includes(LONG))).toEqual([true, true]);
  });

  test("is unintelligible where the revision has no batches", async () => {
    const { headers } = await session("batching", "2025-06-18");
    const { messages } = await post(door("batching"), call(1, "tools/list"), headers);
    expect(messages).toMatchObject([{ id: 1, error: { message: "The hand answered with a batch." } }]);
  });
});

test("of answers that are more than a batch holds, one breaks off, and the other comes", async () => {
  const piece = Buffer.alloc(1024 * 1024, " ");
  const serve = async (at: number, part: ServerResponse) => {
    part.writeHead(200, { "content-type": "application/json" });
    for (let pieces = 0; pieces < 40 && !part.destroyed && !part.socket?.destroyed; pieces += 1)
      if (!part.write(piece)) await Promise.race([once(part, "drain"), once(part, "close")]);
    part.end(JSON.stringify({ jsonrpc: "2.0", id: at, result: {} }));
  };
  const http = createServer((_request, response) => void serveBatch(response, [call(0, "a"), call(1, "b")], 1_000, serve));
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const text = await (await fetch(`http://127.0.0.1:${(http.address() as AddressInfo).port}`)).text();
  await new Promise((resolve) => http.close(resolve));
  const answers = text.split("\n").flatMap((line) => (line.startsWith("data: ") ? [JSON.parse(line.slice(6))] : []));
  expect(answers.map(({ error }) => error?.code ?? "whole").sort()).toEqual([-32_603, "whole"]);
}, 60_000);

describe("a batch is refused, in words,", () => {
  const hello = call(0, "initialize", { protocolVersion: "2025-03-26", capabilities: {}, clientInfo: { name: "t", version: "1" } });
  const many = Array.from({ length: 65 }, (_, id) => call(id, "ping"));
  describe.each(["", "http"])('at the door "%s"', (hand) => {
    test.each(["2025-06-18", "2025-11-25"])("in a session of revision %s", async (version) => {
      const { headers } = await session(hand, version);
      const { status, all } = await batch(door(hand), headers, [call(1, "ping")]);
      expect([status, all[0]?.error?.code, all[0]?.error?.message]).toEqual([
        400,
        -32_600,
        expect.stringContaining(`Revision ${version} has no batches`),
      ]);
    });
    test.each([
      ["without a session", [hello], {}],
      ["of the stateless era", [call(1, "tools/list")], { "mcp-protocol-version": STATELESS }],
    ])("%s", async (_, messages, headers) => {
      const { status, all } = await batch(door(hand), { ...KEY, ...headers }, messages);
      expect([status, all[0]?.error?.code, all[0]?.error?.message]).toEqual([400, -32_600, expect.stringContaining("send each message by itself")]);
    });
    test.each([
      ["with nothing in it", []],
      ["with too much in it", many],
      ["with an id twice", [call(1, "ping"), call(1, "tools/list")]],
    ])("%s", async (_, messages) => {
      const { headers } = await session(hand, "2025-03-26");
      const { status, all } = await batch(door(hand), headers, messages);
      expect([status, all.length, all[0]?.error?.code]).toEqual([400, 1, -32_600]);
    });
    test("in a session that is over", async () => {
      const { headers } = await session(hand, "2025-03-26");
      await fetch(door(hand), { method: "DELETE", headers });
      expect((await batch(door(hand), headers, [call(1, "ping")])).status).toBe(404);
    });
  });
});
