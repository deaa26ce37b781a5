// A hand of the handshake era asks a client of the stateless era: the call is parked, and goes on at whatever replica the client comes back to.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type FullServer, startFullOld } from "../support/mcp/full-old.ts";
import { askRaw, type RawAnswer, type RawOptions } from "../support/mcp/raw-stateless.ts";
import { FIRST, openRelayDoors, type RelayDoors, SECOND } from "../support/mcp/relay-doors.ts";
import { startRedis, type TestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

const WHO = { question_1: { action: "accept", content: { name: "Ada" } } };
const SAID = { question_1: { role: "assistant", model: "m", content: { type: "text", text: "well said" } } };
const textIn = ({ last }: RawAnswer) => (last.result?.content as { text: string }[] | undefined)?.[0]?.text;
const stateIn = ({ last }: RawAnswer) => {
  expect(last.result?.resultType).toBe("input_required");
  return String(last.result?.requestState);
};

let redis: TestRedis;
let doors: RelayDoors;
let server: FullServer;
beforeAll(async () => {
  redis = await startRedis();
  doors = await openRelayDoors({ count: 2, redisUrl: redis.url, answerMs: 3_000 });
  server = await startFullOld();
  await doors.register("old", server.url);
});
afterAll(async () => {
  await doors.close();
  await server.close();
  await redis.stop();
});
beforeEach(() => void server.seen.splice(0));

const call = (name: string, params: object = {}, replica = 0, options: RawOptions = {}) =>
  askRaw(doors.url("old", replica), "tools/call", { name, arguments: {}, ...params }, { headers: FIRST, ...options });

test("the question comes as input_required; the answer at another replica ends the very same call", async () => {
  const asked = await call("ask");
  expect(asked.last.result?.inputRequests).toEqual({
    question_1: { method: "elicitation/create", params: expect.objectContaining({ message: "Who are you?" }) },
  });
  const done = await call("ask", { requestState: stateIn(asked), inputResponses: WHO }, 1);
  expect(textIn(done)).toBe('accept {"name":"Ada"}');
  expect(done.last.result?.resultType).toBe("complete");
  expect(server.seen).toEqual(["call ask"]);
});

test("it does so after the replica that does not hold the call was restarted; progress comes on the second stretch", async () => {
  const asked = await call("both");
  await doors.restart(1);
  const again = await call("both", { requestState: stateIn(asked), inputResponses: WHO }, 1, { meta: { progressToken: "mine" } });
  expect(again.last.result?.inputRequests).toMatchObject({ question_1: { method: "sampling/createMessage" } });
  const done = await call("both", { requestState: stateIn(again), inputResponses: SAID }, 0);
  expect(textIn(done)).toBe('accept then {"type":"text","text":"well said"}');
  expect(server.seen).toEqual(["call both"]);
});

test("progress between two questions goes to the client under its own token, at the replica it came back to", async () => {
  const asked = await call("both", {}, 0, { meta: { progressToken: "first" } });
  const again = await call("both", { requestState: stateIn(asked), inputResponses: WHO }, 1, { meta: { progressToken: "second" } });
  expect(again.messages[0]).toMatchObject({ method: "notifications/progress", params: { progressToken: "second", progress: 1 } });
  await call("both", { requestState: stateIn(again), inputResponses: SAID }, 1);
});

describe("a state", () => {
  const refused = (answer: RawAnswer) => expect(answer.last.error).toMatchObject({ code: -32_602, data: { reason: "invalid_request_state" } });

  test("works once, on any replica", async () => {
    const state = stateIn(await call("ask"));
    expect(textIn(await call("ask", { requestState: state, inputResponses: WHO }))).toContain("accept");
    refused(await call("ask", { requestState: state, inputResponses: WHO }, 0));
    refused(await call("ask", { requestState: state, inputResponses: WHO }, 1));
    expect(server.seen).toEqual(["call ask"]);
  });

  test("works for its caller, its tool and its arguments only, and only as it was given", async () => {
    const state = stateIn(await call("ask"));
    const answers = { requestState: state, inputResponses: WHO };
    refused(await call("ask", answers, 0, { headers: SECOND }));
    refused(await call("sample", answers));
    refused(await call("ask", { ...answers, arguments: { other: true } }));
    refused(await call("ask", { ...answers, requestState: `${state.slice(0, -2)}${state.endsWith("AA") ? "BB" : "AA"}` }));
    expect(textIn(await call("ask", answers))).toContain("accept");
  });

  test("without all answers makes the same question again", async () => {
    const first = await call("ask");
    const second = await call("ask", { requestState: stateIn(first) }, 1);
    expect(second.last.result?.inputRequests).toEqual(first.last.result?.inputRequests);
    expect(textIn(await call("ask", { requestState: stateIn(second), inputResponses: { ...WHO, more: {} } }))).toContain("accept");
    expect(server.seen).toEqual(["call ask"]);
  });
});

test("what the client did not declare is not asked: the hand is told so, and the client what it lacks", async () => {
  const answer = await call("ask", {}, 0, { capabilities: { sampling: {} } });
  expect(answer.last.error?.code).toBe(-32_021);
  expect(answer.last.error?.data).toMatchObject({ requiredCapabilities: { elicitation: {} } });
});

test("a call that nobody comes back to is called off at the hand after a while, and its state is of no use then", async () => {
  const stubborn = await call("both");
  await until(() => doors.logged.some((line) => line.includes("hand.call_given_up")), { timeoutMs: 8_000 });
  await until(() => server.seen.includes("cancelled both"));
  const late = await call("both", { requestState: stateIn(stubborn), inputResponses: WHO }, 1);
  expect(late.last.error?.message).toContain("given up");
});

test("a client that goes away calls its call off, on the replica it came back to, too", async () => {
  const off = new AbortController();
  const first = call("wait", {}, 0, { signal: off.signal });
  first.catch(() => {});
  await until(() => server.seen.includes("call wait"));
  off.abort();
  await until(() => server.seen.includes("cancelled wait"));
  const asked = await call("patient");
  const again = new AbortController();
  const second = call("patient", { requestState: stateIn(asked), inputResponses: WHO }, 1, { signal: again.signal });
  second.catch(() => {});
  await until(() => server.seen.includes("answered patient"));
  again.abort();
  await until(() => server.seen.includes("cancelled patient"));
});

test("one session at the hand serves a caller on both replicas; another caller has another", async () => {
  const sum = { arguments: { a: 1, b: 1 } };
  const before = server.sessions();
  for (const replica of [0, 1, 0, 1]) expect(textIn(await call("add", sum, replica, { capabilities: { roots: {} } }))).toBe("2");
  expect(server.sessions()).toBe(before + 1);
  await call("add", sum, 0, { headers: SECOND, capabilities: { roots: {} } });
  expect(server.sessions()).toBe(before + 2);
});

test("a session that the hand lost is opened again, and the request runs", async () => {
  await call("add", { arguments: { a: 1, b: 1 } });
  server.forget();
  expect(textIn(await call("add", { arguments: { a: 2, b: 2 } }))).toBe("4");
  expect(textIn(await call("add", { arguments: { a: 3, b: 3 } }, 1))).toBe("6");
});

test("logs come from the level that the request names, and not at all without one", async () => {
  const messages = ({ messages: all }: RawAnswer) =>
    all.filter(({ method }) => method === "notifications/message").map(({ params }) => (params as { data: string }).data);
  expect(messages(await call("steps"))).toEqual([]);
  expect(messages(await call("steps", {}, 0, { meta: { "io.modelcontextprotocol/logLevel": "warning" } }))).toEqual(["log 2"]);
  expect(messages(await call("steps", {}, 0, { meta: { "io.modelcontextprotocol/logLevel": "info" } }))).toEqual(["log 1", "log 2", "log 3"]);
});

test("lists are private and not kept, methods of the other era unknown, headers that differ refused", async () => {
  const list = await askRaw(doors.url("old"), "tools/list", {}, { headers: FIRST });
  expect(list.last.result).toMatchObject({ ttlMs: 0, cacheScope: "private", resultType: "complete" });
  const ping = await askRaw(doors.url("old"), "ping", {}, { headers: FIRST });
  expect([ping.status, ping.last.error?.code]).toEqual([404, -32_601]);
  const mismatch = await call("add", {}, 0, { headers: { ...FIRST, "mcp-name": "other" } });
  expect([mismatch.status, mismatch.last.error?.code]).toEqual([400, -32_020]);
});
