// Sessions, streams and time at the door of a hand: what outlives what, who waits how long, and what a client hears when a hand breaks.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import pino from "pino";
import { request } from "undici";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { makeServer } from "../../gateway/server.ts";
import { noFault } from "../../session-store/fault-point.ts";
import { API_KEY, type Api, startApi } from "../support/api.ts";
import { handshake, post, STATELESS, send, stateless } from "../support/mcp.ts";
import { proves } from "../support/proves.ts";
import { json, registerHand, type ScriptedHand, startScriptedHand } from "../support/relay.ts";
import { until } from "../support/until.ts";

const KEY = { authorization: `Bearer ${API_KEY}` };
const IDLE_MS = 1_500;
const TOTAL_MS = 4_000;
const TEST_MS = 60_000;
const event = (message: object, id?: string) => `${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`;
const call = { id: "c", method: "tools/call", params: { name: "t" } };

const META = {
  "io.modelcontextprotocol/protocolVersion": STATELESS,
  "io.modelcontextprotocol/clientInfo": { name: "t", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
const CALL_BODY = JSON.stringify({ jsonrpc: "2.0", ...call, params: { ...call.params, _meta: META } });
const OWN = {
  ...KEY,
  "content-type": "application/json",
  accept: "application/json, text/event-stream",
  "mcp-protocol-version": STATELESS,
  "mcp-method": "tools/call",
  "mcp-name": "t",
};

let api: Api;
let hand: ScriptedHand;
let door: string;
let other: { url: string; close(): Promise<void> };

beforeAll(async () => {
  api = await startApi({ keepAliveMs: 100, relay: { times: { connectMs: 1_000, idleMs: IDLE_MS, totalMs: TOTAL_MS } } });
  hand = await startScriptedHand({ eras: ["handshake", "stateless"] });
  door = `${api.url}/mcp/hands/both`;
  await registerHand(api.store, { name: "both", url: hand.url });
  await registerHand(api.store, { name: "keeps", url: hand.url, sharing: "session" });
  other = await startAnother(api);
});
afterAll(async () => {
  await other.close();
  await api.close();
  await hand.close();
});
beforeEach(() => {
  hand.answer(({ body, method }, response) => {
    const { id } = body === "" ? { id: undefined } : JSON.parse(body);
    if (id === undefined || method !== "POST") response.writeHead(202).end();
    else json(response, { jsonrpc: "2.0", id, result: { content: [] } });
  });
});

/** A second gateway on the first one's store. */
async function startAnother({ store }: Api): Promise<typeof other> {
  let url = "";
  const mcp = { publicUrl: null, ownUrl: () => url, isLoopback: true, issuer: null, isOpen: false, stateKey: Buffer.alloc(32, 1) };
  const times = { connectMs: 1_000, idleMs: IDLE_MS, totalMs: TOTAL_MS };
  const relay = { internalHosts: ["127.0.0.1"], times, handsUrl: null, handKey: "" };
  const log = pino({ level: "silent" });
  const server = makeServer({ store, apiKeys: [API_KEY], log, fault: noFault, ready: () => true, mcp, relay });
  const http = createServer(server.listener);
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  return {
    url: `${url}/mcp/hands/both`,
    close: async () => {
      server.close();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

proves("mcp:any-replica", "a session at a hand is known at every gateway, and over at every one once it ended", async () => {
  const opened = await handshake(door, KEY, { other: other.url });
  expect((await opened.call(1, "tools/call", { name: "t" })).status).toBe(200);
  expect(hand.seen.at(-1)?.headers["mcp-session-id"]).toMatch(/^theirs-/);
  expect((await send(door, "DELETE", opened.headers)).status).toBe(204);
  await until(async () => (await opened.call(2, "ping")).status === 404);
  const fresh = await startAnother(api);
  expect((await post(fresh.url, { jsonrpc: "2.0", id: 3, method: "ping" }, opened.headers)).status).toBe(404);
  await fresh.close();
});

test("a listening stream whose client does not read ends with its session, and is written to no more", async () => {
  let isLeft = false;
  hand.answer(({ body, method }, response) => {
    if (method !== "GET") {
      const { id } = body === "" ? { id: undefined } : JSON.parse(body);
      if (id === undefined) return void response.writeHead(202).end();
      return json(response, { jsonrpc: "2.0", id, result: { content: [] } });
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.once("close", () => {
      isLeft = true;
    });
    const piece = event({ method: "notifications/message", params: { data: "x".repeat(100_000) } });
    const more = () => {
      while (response.write(piece));
      response.once("drain", more);
    };
    more();
  });
  const opened = await handshake(door, KEY);
  const { body } = await request(door, { method: "GET", headers: { ...opened.headers, accept: "text/event-stream" } });
  await sleep(300);
  expect((await send(door, "DELETE", opened.headers)).status).toBe(204);
  await until(() => isLeft);
  // A few signs of life would have been due by now.
  await sleep(300);
  let bytes = 0;
  for await (const chunk of body) bytes += chunk.length;
  expect(bytes).toBeGreaterThan(100_000);
});

describe("a hand that lost a session", () => {
  const forgets = (lost: string) =>
    hand.answer(({ body, headers }, response) => {
      if (headers["mcp-session-id"] === lost)
        return json(response, { jsonrpc: "2.0", id: null, error: { code: -32_001, message: "Session not found" } }, 404);
      const { id } = body === "" ? { id: undefined } : JSON.parse(body);
      if (id === undefined) response.writeHead(202).end();
      else json(response, { jsonrpc: "2.0", id, result: { content: [] } });
    });

  test("gets it again, as the client made it, once for all who wait", async () => {
    const opened = await handshake(door, KEY, { capabilities: { roots: {} }, other: other.url });
    await opened.call(1, "logging/setLevel", { level: "warning" });
    await opened.call(2, "resources/subscribe", { uri: "test://a" });
    const lost = String(hand.seen.at(-1)?.headers["mcp-session-id"]);
    forgets(lost);
    const from = hand.seen.length;
    const answers = await Promise.all([3, 4, 5].map((id) => opened.call(id, "tools/call", { name: "t" })));
    expect(answers.map(({ status, messages }) => [status, messages[0]?.id])).toEqual([3, 4, 5].map((id) => [200, id]));
    const after = hand.seen.slice(from).map(({ body }) => (body === "" ? {} : JSON.parse(body)));
    expect(after.filter(({ method }) => method === "initialize").map(({ params }) => params.capabilities)).toEqual([{ roots: {} }]);
    expect(after.map(({ method }) => method)).toEqual(
      expect.arrayContaining(["notifications/initialized", "logging/setLevel", "resources/subscribe"]),
    );
    expect(hand.last("tools/call")?.headers["mcp-session-id"]).not.toBe(lost);
    expect((await post(door, { jsonrpc: "2.0", id: 6, method: "ping" }, opened.headers)).status).toBe(200);
  });

  test("and kept something for it, has lost it for good: the client is told", async () => {
    const opened = await handshake(`${api.url}/mcp/hands/keeps`, KEY);
    await opened.call(1, "ping");
    forgets(String(hand.seen.at(-1)?.headers["mcp-session-id"]));
    expect((await opened.call(2, "ping")).status).toBe(404);
    expect((await opened.call(3, "ping")).messages).toMatchObject([{ error: { code: -32_001 } }]);
  });
});

describe("time", () => {
  test("a hand that says nothing is given up, before its answer and in the middle of it", async () => {
    hand.answer(() => {});
    const silent = await stateless(door, KEY, call);
    expect([silent.status, silent.messages]).toMatchObject([200, [{ id: "c", error: { data: { reason: "hand_timed_out" } } }]]);
    hand.answer(
      (_, response) =>
        void response.writeHead(200, { "content-type": "text/event-stream" }).write(event({ method: "notifications/progress", params: {} })),
    );
    const begun = await stateless(door, KEY, call);
    expect(begun.messages).toMatchObject([{ method: "notifications/progress" }, { id: "c", error: { data: { reason: "hand_timed_out" } } }]);
  });

  test("a hand that goes on speaking has longer than that, but not for ever", async () => {
    hand.answer((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const timer = setInterval(() => response.write(": still here\n\n"), IDLE_MS / 4);
      response.on("close", () => clearInterval(timer));
    });
    const started = performance.now();
    const reply = await stateless(door, KEY, call);
    expect(performance.now() - started).toBeGreaterThan(TOTAL_MS);
    expect(reply.messages).toMatchObject([{ id: "c", error: { message: expect.stringContaining("finish") } }]);
  });

  test("a silent stream that a client listens to stays, and says that it is there", async () => {
    let heard = "";
    hand.answer((_, response) => void response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders());
    const { headers } = await handshake(door, KEY);
    const { body } = await request(door, { method: "GET", headers: { ...headers, accept: "text/event-stream", "last-event-id": "place-1" } });
    body.on("error", () => {});
    body.on("data", (chunk) => {
      heard += String(chunk);
    });
    const since = performance.now();
    await until(() => heard.includes(": ping\n\n") && performance.now() - since > IDLE_MS + 200);
    const pings = heard.length;
    await until(() => heard.length > pings);
    expect(hand.seen.at(-1)).toMatchObject({ method: "GET", headers: { "last-event-id": "place-1" } });
    body.destroy();
  });
});

test("a client that leaves ends the request at the hand", async () => {
  const state = { isOver: false };
  hand.answer((_, response) => {
    response.on("close", () => {
      state.isOver = true;
    });
    response.writeHead(200, { "content-type": "text/event-stream" }).write(event({ method: "notifications/progress", params: {} }));
  });
  const reply = await request(door, { method: "POST", headers: OWN, body: CALL_BODY });
  reply.body.on("error", () => {});
  reply.body.destroy();
  await until(() => state.isOver);
});

describe("a stream that breaks off", () => {
  const breaks = (id?: string) =>
    hand.answer((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(event({ method: "notifications/progress", params: {} }, id), () => setImmediate(() => response.destroy()));
    });

  test("ends with an error for whoever asked", async () => {
    breaks();
    const reply = await stateless(door, KEY, call);
    expect(reply.messages.at(-1)).toMatchObject({
      id: "c",
      error: { data: { reason: "hand_lost" }, message: expect.stringContaining("may have been carried out") },
    });
  });

  test("breaks off for the client, too, where it can come back for the rest", async () => {
    breaks("place-7");
    const { call: again } = await handshake(door, KEY);
    await expect(again(1, "tools/call", { name: "t" })).rejects.toThrow();
  });
});

test(
  "a long answer passes while it is made, and one past the limit does not",
  async () => {
    const piece = "x".repeat(1024 * 1024);
    let pieces = 0;
    // Its record gives it more time than this gateway does.
    await registerHand(api.store, { name: "long", url: hand.url, timeouts: { connect_ms: null, idle_ms: 10_000, total_ms: 60_000 } });
    hand.answer(({ body }, response) => {
      // The door looks once which headers a tool has.
      if (body.includes('"tools/list"')) return json(response, { jsonrpc: "2.0", id: JSON.parse(body).id, result: { tools: [] } });
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write('data: {"jsonrpc":"2.0","id":"c","result":{"content":[{"type":"text","text":"');
      const more = () => {
        while (pieces > 0) {
          pieces -= 1;
          if (!response.write(piece)) return void response.once("drain", more);
        }
        response.end('"}]}}\n\n');
      };
      more();
    });
    const take = async (size: number): Promise<number> => {
      pieces = size;
      const { body } = await request(`${api.url}/mcp/hands/long`, { method: "POST", headers: OWN, body: CALL_BODY });
      let bytes = 0;
      for await (const chunk of body) bytes += chunk.length;
      return bytes;
    };
    expect(await take(8)).toBeGreaterThan(8 * piece.length);
    await expect(take(70)).rejects.toThrow();
  },
  TEST_MS,
);

test("a hand that is down is said to be down, in both eras, and is asked again at the next try", async () => {
  const down = await startScriptedHand({ eras: ["stateless"] });
  const port = down.port;
  await down.close();
  await registerHand(api.store, { name: "down", url: `http://127.0.0.1:${port}/mcp` });
  const at = `${api.url}/mcp/hands/down`;
  const told = { error: { code: -32_603, data: { reason: "hand_unreachable" }, message: expect.stringContaining("can't be reached") } };
  expect((await stateless(at, KEY, call)).messages).toMatchObject([{ id: "c", ...told }]);
  const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } };
  expect((await post(at, { jsonrpc: "2.0", id: 0, method: "initialize", params: hello }, KEY)).messages).toMatchObject([{ id: 0, ...told }]);
});
