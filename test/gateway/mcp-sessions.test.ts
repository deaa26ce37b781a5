// Sessions of the handshake era: the same on every replica, one caller's only, and gone for good when they are.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { handshake, post, type Reply, type RpcMessage, send, stateless } from "../support/mcp.ts";
import { type Doors, FIRST, openDoors, SECOND } from "../support/mcp-door.ts";
import { probe } from "../support/mcp-surface.ts";
import { until } from "../support/until.ts";

const tools = probe();
let doors: Doors;
let one: string;
let other: string;

beforeAll(async () => {
  doors = await openDoors(tools.surface, { count: 2, keepAliveMs: 100 });
  [one = "", other = ""] = doors.urls;
});
afterAll(() => doors.close());

const echo = (text: string) => ({ name: "echo", arguments: { text } });
const textOf = (reply: Reply) => reply.messages.at(-1)?.result?.content?.[0]?.text as unknown;
const ping = { jsonrpc: "2.0", id: 1, method: "ping" };

describe("a session", () => {
  test("is known on every replica, and after a restart of all of them", async () => {
    const { call, headers } = await handshake(one, FIRST, { other });
    expect(textOf(await call(1, "tools/call", echo("elsewhere")))).toContain("elsewhere");
    await Promise.all([0, 1].map((index) => doors.restart(index)));
    [one = "", other = ""] = doors.urls;
    for (const url of doors.urls) expect((await post(url, ping, headers)).status).toBe(200);
  });

  test("that is not there is 404 before anything else, without a key, too", async () => {
    const { session } = await handshake(one, FIRST);
    for (const id of ["nonsense", `${session}x`, `mcps_${"0".repeat(24)}`, ""]) {
      for (const headers of [{}, FIRST, { authorization: "Bearer wrong" }]) {
        const all = { ...headers, "mcp-session-id": id };
        for (const answer of [
          await post(other, ping, all),
          await send(other, "GET", all),
          await send(other, "DELETE", all),
          await post(other, "{", all),
        ])
          expect(answer.status).toBe(404);
      }
    }
    expect((await post(other, ping, { "mcp-session-id": session })).status).toBe(401);
  });

  test("is unknown to another caller, by every verb, and goes on for its own", async () => {
    const { session, headers } = await handshake(one, FIRST);
    const theirs = { ...SECOND, "mcp-session-id": session };
    for (const answer of [await post(one, ping, theirs), await send(other, "GET", theirs), await send(one, "DELETE", theirs)]) {
      expect(answer.status).toBe(404);
      expect(answer.messages[0]?.error?.message).toBe("Session not found");
    }
    expect((await post(other, ping, headers)).status).toBe(200);
  });

  test("ends everywhere at once: what runs is called off, streams end, and its id is spent", async () => {
    const { headers, call } = await handshake(one, FIRST);
    const before = tools.calledOff;
    const running = call(1, "tools/call", { name: "wait", arguments: {} });
    const listening = send(other, "GET", headers);
    await until(async () =>
      doors.store.get("manyhands", "mcp_session", headers["mcp-session-id"] ?? "").then((found) => JSON.stringify(found?.body).includes("mcpg_")),
    );
    expect((await send(other, "DELETE", headers)).status).toBe(204);
    expect((await running).messages).toEqual([]);
    expect((await listening).status).toBe(200);
    expect(tools.calledOff).toBe(before + 1);
    for (const url of doors.urls) expect((await send(url, "DELETE", headers)).status).toBe(404);
  });

  test("has an id of more than 128 random bits", async () => {
    const ids = await Promise.all(Array.from({ length: 20 }, async () => (await handshake(one, FIRST)).session));
    expect(new Set(ids).size).toBe(20);
    // 54 letters and digits: 24 of them are 138 bits.
    for (const id of ids) expect(id).toMatch(/^mcps_[0-9A-Za-z]{24}$/);
  });

  test("that nobody needs makes room: a caller has a bounded number", async () => {
    const first = await handshake(one, SECOND);
    for (let n = 0; n < 8; n += 1) await Promise.all(Array.from({ length: 33 }, () => handshake(one, SECOND)));
    for (let n = 0; n < 3; n += 1) await handshake(other, SECOND);
    const kept = await doors.store.list("manyhands", `mcp_sessions_of:${await callerOf(SECOND)}`, { order: "asc", limit: 1_000 });
    expect(kept.length).toBeLessThanOrEqual(256);
    expect((await post(one, ping, first.headers)).status).toBe(404);
  });
});

async function callerOf(headers: Record<string, string>): Promise<string> {
  return String(textOf(await stateless(one, headers, { id: 1, method: "tools/call", params: echo("x") }))).split(" ")[0] ?? "";
}

describe("what passes between replicas", () => {
  test("an answer to a question may come to any of them, once, and only from the session that was asked", async () => {
    const { call, headers } = await handshake(one, FIRST, { capabilities: { elicitation: {} } });
    const stranger = await handshake(other, SECOND, { capabilities: { elicitation: {} } });
    const asked: RpcMessage[] = [];
    const done = call("ask", "tools/call", { name: "effect", arguments: {} }, (message) => void asked.push(message));
    const question = await until(() => asked.find(({ method }) => method === "elicitation/create"));
    const answer = (name: string) => ({ jsonrpc: "2.0", id: question.id, result: { action: "accept", content: { name } } });
    expect((await post(other, answer("Mallory"), stranger.headers)).status).toBe(202);
    for (const name of ["Ada", "Eve"]) expect((await post(other, answer(name), headers)).status).toBe(202);
    expect(textOf(await done)).toBe("did it for Ada");
  });

  test("a call is called off from any of them", async () => {
    const { call, headers } = await handshake(one, FIRST);
    const before = tools.calledOff;
    const running = [call(5, "tools/call", { name: "wait", arguments: {} }), call("5", "tools/call", { name: "wait", arguments: {} })];
    const cancel = (requestId: string | number) => post(other, { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId } }, headers);
    await cancel("5");
    await running[1];
    expect(tools.calledOff).toBe(before + 1);
    await cancel(5);
    await running[0];
    expect(tools.calledOff).toBe(before + 2);
  });

  test("an answer that a client lost its connection for is read to its end from any of them, once and in order", async () => {
    const { call, headers } = await handshake(one, FIRST);
    const broken = await call(9, "tools/call", { name: "hold", arguments: {}, _meta: { progressToken: "p" } });
    expect(broken.messages).toHaveLength(1);
    const place = broken.places.at(-1) ?? "";
    const stranger = await handshake(one, SECOND);
    expect((await send(other, "GET", { ...stranger.headers, "last-event-id": place })).status).toBe(404);
    const resumed = Promise.all(doors.urls.map((url) => send(url, "GET", { ...headers, "last-event-id": place })));
    tools.release();
    for (const { messages } of await resumed)
      expect(messages).toMatchObject([
        { method: "notifications/progress", params: { progress: 2 } },
        { id: 9, result: { content: [{ text: "let go" }] } },
      ]);
  });

  test("an open call sends its headers at once and a comment before its client could think that it is dead", async () => {
    const { headers } = await handshake(one, FIRST);
    const stop = new AbortController();
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "wait", arguments: {} } });
    const accept = { accept: "application/json, text/event-stream", "content-type": "application/json" };
    const response = await fetch(one, { method: "POST", body, headers: { ...headers, ...accept }, signal: stop.signal });
    expect(response.headers.get("x-accel-buffering")).toBe("no");
    let text = "";
    const reading = (async () => {
      for await (const chunk of response.body ?? []) text += Buffer.from(chunk).toString();
    })().catch(() => "stopped");
    await until(() => (text.match(/: ping\n\n/g) ?? []).length >= 3);
    expect(text.startsWith(": open\n\n")).toBe(true);
    stop.abort();
    await reading;
  });
});

describe("messages", () => {
  const bad: [string, unknown, number][] = [
    ["a batch", [ping, ping], -32_600],
    ["an empty batch", [], -32_600],
    ["an id that is null", { ...ping, id: null }, -32_600],
    ["an id with a fraction", { ...ping, id: 1.5 }, -32_600],
    ["an id that is too large to keep", '{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}', -32_600],
    ["an id that is an object", { ...ping, id: {} }, -32_600],
    ["an id that is very long", { ...ping, id: "x".repeat(5_000) }, -32_600],
    ["no JSON", "{", -32_700],
    ["no message", { hello: 1 }, -32_600],
    ["an answer that is both", { jsonrpc: "2.0", id: 1, result: {}, error: {} }, -32_600],
    ["a name that JavaScript treats apart", '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"__proto__":{}}}', -32_700],
  ];
  test.each(bad)("%s is refused", async (_what, body, code) => {
    const { headers } = await handshake(one, FIRST);
    const answer = await post(one, body, headers);
    expect(answer.status).toBe(400);
    expect(answer.messages[0]?.error?.code).toBe(code);
  });

  test("an answer to a question that nobody asked is dropped", async () => {
    const { headers } = await handshake(one, FIRST);
    for (const id of ["ask_000000000000000000000000", "__proto__", 1, 0])
      expect((await post(one, { jsonrpc: "2.0", id, result: {} }, headers)).status).toBe(202);
  });
});

test("a thousand overlapping calls of two callers, with equal ids and tokens, never meet", async () => {
  const names = await Promise.all([FIRST, SECOND].map(callerOf));
  const ids = [0, 1, "1"];
  const run = async (headers: Record<string, string>, name: string) => {
    const { call } = await handshake(one, headers, { other });
    const counts = new Set<unknown>();
    await Promise.all(
      Array.from({ length: 500 }, async (_, n) => {
        const id = ids[n % ids.length] ?? 0;
        const text = `call ${n}`;
        const params =
          n % 5 === 0 ? { name: "count", arguments: {} } : { name: "echo", arguments: { text, pauseMs: n % 7 }, _meta: { progressToken: 1 } };
        const reply =
          n % 2 === 0
            ? await call(id, "tools/call", params)
            : await stateless(n % 3 === 0 ? one : other, headers, { id, method: "tools/call", params });
        const last = reply.messages.at(-1);
        expect(last?.id).toBe(id);
        if (n % 5 === 0) counts.add(textOf(reply));
        else {
          expect(textOf(reply)).toBe(`${name} ${text}`);
          expect(reply.messages.slice(0, -1).map(({ params: told }) => told?.message)).toEqual([text, text]);
        }
      }),
    );
    expect(counts.size).toBe(100);
  };
  await Promise.all([run(FIRST, names[0] ?? ""), run(SECOND, names[1] ?? "")]);
}, 60_000);
