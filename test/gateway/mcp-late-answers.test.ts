// An answer that does not come soon: the client is given a stream, whatever form its answer has in the end. At the doors of hands, and at the product's own.

import { request } from "undici";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { API_KEY, type Api, startApi } from "../support/api.ts";
import { handshake, post, STATELESS, stateless } from "../support/mcp.ts";
import { type Doors, FIRST, openDoors } from "../support/mcp-door.ts";
import { probe } from "../support/mcp-surface.ts";
import { json, registerHand, type ScriptedHand, startScriptedHand } from "../support/relay.ts";
import { until } from "../support/until.ts";

const KEY = { authorization: `Bearer ${API_KEY}` };
const LATE_MS = 1_300;
const BIG = "x".repeat(2 * 1024 * 1024);

let api: Api;
let hand: ScriptedHand;
let doors: Doors;
const tools = probe();
const url = (name: string) => `${api.url}/mcp/hands/${name}`;

beforeAll(async () => {
  api = await startApi({ keepAliveMs: 100, relay: { times: { connectMs: 1_000, idleMs: 4_000, totalMs: 9_000 } } });
  hand = await startScriptedHand({ eras: ["handshake", "stateless"] });
  await registerHand(api.store, { name: "late", url: hand.url });
  doors = await openDoors(tools.surface, { keepAliveMs: 100 });
  let lost: unknown = null;
  hand.answer(({ body, method, headers }, response) => {
    if (method === "GET")
      return void setTimeout(() => response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders(), 60_000).unref();
    const { id, params } = body === "" ? { id: undefined, params: {} } : JSON.parse(body);
    if (id === undefined) return void response.writeHead(202).end();
    const result = (text: string) => ({ jsonrpc: "2.0", id, result: { content: [{ type: "text", text }] } });
    const later = (then: () => void) => void setTimeout(then, LATE_MS);
    switch (params.name) {
      case "spread":
        return later(() => json(response, JSON.stringify(result("one\ntwo"), null, 2).replaceAll("\n", "\r\n")));
      case "big":
        return later(() => json(response, JSON.stringify({ ...result(BIG), extra: 1 }, null, 1)));
      case "events":
        return later(() => response.writeHead(200, { "content-type": "text/event-stream" }).end(`data: ${JSON.stringify(result("streamed"))}\n\n`));
      case "refuses":
        return later(() => response.writeHead(403).end("go away"));
      case "silent":
        return;
      case "forgets":
        lost ??= headers["mcp-session-id"];
        if (headers["mcp-session-id"] !== lost) return json(response, result("again"));
        return later(() => json(response, { jsonrpc: "2.0", id: null, error: { code: -32_001, message: "Session not found" } }, 404));
      default:
        return json(response, result("soon"));
    }
  });
});
afterAll(async () => {
  await api.close();
  await hand.close();
  await doors.close();
});

const call = (name: string) => ({ id: "c", method: "tools/call", params: { name } });
const textOf = (messages: readonly { readonly result?: { readonly content?: readonly { readonly text: string }[] } }[]) =>
  messages.at(-1)?.result?.content?.[0]?.text;

const META = {
  "io.modelcontextprotocol/protocolVersion": STATELESS,
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
const asked = (name: string) => ({
  headers: {
    accept: "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": STATELESS,
    "mcp-method": "tools/call",
    "mcp-name": name,
  },
  body: JSON.stringify({ jsonrpc: "2.0", id: "c", method: "tools/call", params: { name, _meta: META } }),
});

describe.concurrent("at the door of a hand", () => {
  test("what comes soon keeps its form", async () => {
    const reply = await stateless(url("late"), KEY, call("soon"));
    expect([reply.headers["content-type"], textOf(reply.messages)]).toEqual(["application/json", "soon"]);
  });

  test.each([
    ["spread", "one\ntwo"],
    ["big", BIG],
    ["events", "streamed"],
  ])("what comes late comes as a stream that said before that it is there: %s", async (name, text) => {
    const reply = await stateless(url("late"), KEY, call(name));
    expect([reply.status, reply.headers["content-type"]]).toEqual([200, "text/event-stream"]);
    expect(reply.text.startsWith(": open\n\n: ping\n\n")).toBe(true);
    expect(reply.messages).toHaveLength(1);
    expect(textOf(reply.messages)).toBe(text);
  });

  test.each([
    ["refuses", "hand_refused"],
    ["silent", "hand_timed_out"],
  ])("a late failure is told in the stream, and in the log as what it is: %s", async (name, reason) => {
    const reply = await stateless(url("late"), KEY, call(name));
    expect([reply.status, reply.headers["content-type"]]).toEqual([200, "text/event-stream"]);
    expect(reply.messages).toMatchObject([{ id: "c", error: { data: { reason } } }]);
    expect(api.logged.some((line) => line.includes('"hand.used"') && line.includes(`"${name}"`) && line.includes(reason))).toBe(true);
  });

  test("a session that the hand says late it lost is given it again, and the answer comes in the same stream", async () => {
    const { call: ask } = await handshake(url("late"), KEY);
    const reply = await ask(1, "tools/call", { name: "forgets" });
    expect([reply.headers["content-type"], textOf(reply.messages), reply.messages.length]).toEqual(["text/event-stream", "again", 1]);
  });

  test("a listening stream of which the hand says nothing at all is there, and says so", async () => {
    const { headers } = await handshake(url("late"), KEY);
    const { body, statusCode } = await request(url("late"), { method: "GET", headers: { ...headers, accept: "text/event-stream" } });
    let heard = "";
    body
      .on("error", () => {})
      .on("data", (chunk) => {
        heard += String(chunk);
      });
    await until(() => heard.startsWith(": open\n\n: ping\n\n"));
    expect(statusCode).toBe(200);
    body.destroy();
  });

  test("a client that takes no streams waits for its answer", async () => {
    const { headers, body } = asked("spread");
    const reply = await post(url("late"), body, { ...headers, ...KEY, accept: "application/json" });
    expect([reply.headers["content-type"], textOf(reply.messages)]).toEqual(["application/json", "one\ntwo"]);
  });
});

describe.concurrent("at the product's own door, in the stateless era", () => {
  test("what comes late comes as a stream that said before that it is there, also where nobody asked for progress", async () => {
    const [door = ""] = doors.urls;
    const reply = await stateless(door, FIRST, { id: "c", method: "tools/call", params: { name: "still", arguments: { pauseMs: 2 * LATE_MS } } });
    expect(reply.headers["content-type"]).toBe("text/event-stream");
    expect(reply.text.startsWith(": open\n\n: ping\n\n")).toBe(true);
    expect(reply.messages).toMatchObject([{ id: "c", result: { content: [{ text: "still here" }] } }]);
  });

  test("a client that takes no streams waits for its answer", async () => {
    const [door = ""] = doors.urls;
    const body = { jsonrpc: "2.0", id: "c", method: "tools/call", params: { name: "still", arguments: { pauseMs: LATE_MS }, _meta: META } };
    const reply = await post(door, body, { ...FIRST, ...asked("still").headers, accept: "application/json" });
    expect([reply.headers["content-type"], textOf(reply.messages)]).toEqual(["application/json", "still here"]);
  });

  test("a client that leaves such a stream calls its request off", async () => {
    const [door = ""] = doors.urls;
    const before = tools.calledOff;
    const { body } = await request(door, { method: "POST", headers: { ...FIRST, ...asked("wait").headers }, body: asked("wait").body });
    let heard = "";
    body
      .on("error", () => {})
      .on("data", (chunk) => {
        heard += String(chunk);
      });
    await until(() => heard.startsWith(": open\n\n"));
    body.destroy();
    await until(() => tools.calledOff > before);
    expect(doors.logged.filter((line) => line.includes("mcp.broke"))).toEqual([]);
  });
});
