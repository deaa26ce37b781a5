// Turns, from message to idle, on the real store, hand host, vault proxy and the scripted model (contract §8).

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { Worker } from "../../harnesses/worker.ts";
import { LOOK_UP, TOOLSET, toolset } from "../harnesses/agents.ts";
import { startNode, type TestNode, until } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let node: TestNode;
let worker: Worker;
beforeAll(async () => {
  node = await startNode();
});
beforeEach(async () => {
  worker = await node.work();
});
afterEach(() => node.rest());
afterAll(() => node.close());

const OPENING = ["session.status_running", "session.thread_status_running"];
const ENDING = ["session.thread_status_idle", "session.usage", "session.status_idle"];
const START = "span.model_request_start";
const END = "span.model_request_end";

describe("a turn", () => {
  test("without tools is one model request between running and idle", async () => {
    const session = await node.open();
    await session.say("say: hello\nusage: input=10 output=5 cache_read=3 cache_write=2");
    await session.idle();
    expect(await session.types()).toEqual([...OPENING, "user.message", START, "agent.message", END, ...ENDING]);
    expect(await session.texts()).toEqual(["hello"]);
    const usage = (await session.has("session.usage")).entry;
    expect(usage).toMatchObject({
      usage: { input_tokens: 10, output_tokens: 5, cache_read_input_tokens: 3, cache_creation: { ephemeral_5m_input_tokens: 2 } },
    });
    expect((await session.has("session.status_idle")).entry).toMatchObject({ stop_reason: { type: "end_turn" }, stop_details: null });
  });

  test("with a tool runs it in the session's hand and asks the model again", async () => {
    const session = await node.open([TOOLSET]);
    await session.say('think: hm\ncall bash: {"command":"echo $((40+2))"}\necho: found');
    await session.idle();
    expect(await session.types()).toEqual([
      ...OPENING,
      "user.message",
      START,
      "agent.thinking",
      "agent.tool_use",
      END,
      "agent.tool_result",
      START,
      "agent.message",
      END,
      ...ENDING,
    ]);
    expect((await session.texts())[0]).toContain("found 42");
    const log = await session.log();
    const bound = log.findIndex(({ entry }) => entry.type === "log.hand");
    expect(bound).toBeGreaterThan(log.findIndex(({ entry }) => entry.type === "agent.tool_use"));
  });

  test("runs parallel calls in call order, and answers them in one message", async () => {
    const session = await node.open([TOOLSET]);
    await session.say('call bash: {"command":"echo a > f; echo one"}\ncall read: {"file_path":"f"}\ncall read: {"file_path":"f"}\necho: got');
    await session.idle();
    expect((await session.types()).filter((type) => type.startsWith("agent."))).toEqual([
      "agent.tool_use",
      "agent.tool_use",
      "agent.tool_use",
      "agent.tool_result",
      "agent.tool_result",
      "agent.tool_result",
      "agent.message",
    ]);
    expect((await session.results()).map(({ text }) => text.trim())).toEqual(["one", "a", "a"]);
    expect(node.model.requests()).toHaveLength(2);
  });

  test("runs any number of read-only calls of one reply", async () => {
    const session = await node.open([TOOLSET]);
    const reads = Array.from({ length: 80 }, () => 'call glob: {"pattern":"*"}').join("\n");
    await session.say(`call bash: {"command":"echo a > f"}\n---\n${reads}\nsay: done`);
    await session.idle();
    const results = await session.results();
    expect(results).toHaveLength(81);
    expect(new Set(results.slice(1).map(({ text }) => text.trim()))).toEqual(new Set(["/workspace/f"]));
  });

  test("applies messages that came while it ran before the next model request, without an idle in between", async () => {
    const session = await node.open();
    await session.say("wait: 200\nsay: first");
    await session.has(START);
    await session.say("say: second");
    await session.say("say: third");
    await session.idle();
    expect(await session.types()).toEqual([
      ...[...OPENING, "user.message", START, "agent.message", END],
      ...["user.message", "user.message", START, "agent.message", END],
      ...ENDING,
    ]);
    expect(await session.texts()).toEqual(["first", "third"]);
  });

  test("a refusal ends it as such, with its details", async () => {
    const session = await node.open();
    await session.say("say: no\nstop: refusal");
    await session.idle();
    expect((await session.has("session.status_idle")).entry).toMatchObject({
      stop_reason: { type: "refusal" },
      stop_details: { type: "refusal", category: null, explanation: "The script refuses." },
    });
    await session.say("say: again");
    await until(async () => (await session.texts()).length === 2, "the next turn");
  });

  test("previews its text and its thinking under the ids that the log then has", async () => {
    const session = await node.open();
    const { heard, stop } = await session.previews();
    await session.say("think: hm\nsay: one two three four five\nchunk: 3\ntoken_delay: 5");
    await session.idle();
    stop();
    const ids = (await session.log()).flatMap(({ entry }) => (entry.type === "agent.thinking" || entry.type === "agent.message" ? [entry.id] : []));
    expect(heard.map(({ n }) => n)).toEqual(heard.map((_, n) => n));
    expect(heard.filter(({ delta }) => !delta).map(({ event }) => event.id)).toEqual(ids);
    const previewed = heard.map(({ delta }) => delta?.text ?? "").join("");
    expect(previewed).toMatch(/^one two/);
    expect("one two three four five").toContain(previewed);
    expect(new Set(heard.map(({ span }) => span)).size).toBe(1);
  });
});

describe("calls that wait for a client", () => {
  test("a custom call waits without a lease, and its answer goes on", async () => {
    const session = await node.open([LOOK_UP]);
    await session.say('call look_up: {"q":"a"}\necho: it is');
    await session.idle();
    const call = await session.callId();
    expect((await session.has("session.status_idle")).entry).toMatchObject({ stop_reason: { type: "requires_action", event_ids: [call] } });
    await until(() => worker.driven === 0, "the worker is free");
    const before = await session.head();
    await session.answer(call, "42");
    await session.idle();
    expect(await session.types(before)).toEqual(["user.custom_tool_result", ...OPENING, START, "agent.message", END, ...ENDING]);
    expect(await session.texts()).toEqual(["it is 42"]);
  });

  test("a partial answer brings another idle that names the rest, without running", async () => {
    const session = await node.open([LOOK_UP]);
    await session.say('call look_up: {"q":"a"}\ncall look_up: {"q":"b"}\necho: got');
    await session.idle();
    const [one, other] = [await session.callId(1), await session.callId(2)];
    const before = await session.head();
    await session.answer(one, "1");
    await session.has("session.status_idle", 2);
    expect(await session.types(before)).toEqual(["user.custom_tool_result", ...ENDING]);
    expect((await session.has("session.status_idle", 2)).entry).toMatchObject({ stop_reason: { type: "requires_action", event_ids: [other] } });
    await session.answer(other, "2");
    await session.has("session.status_idle", 3);
    expect(await session.texts()).toEqual(["got 1\n2"]);
  });

  test("an asked call runs when it is allowed, and says why not when it is denied", async () => {
    const session = await node.open([toolset({ bash: "always_ask" })]);
    await session.say('call bash: {"command":"echo yes"}\ncall bash: {"command":"echo no"}\necho: got');
    await session.idle();
    const [yes, no] = [await session.callId(1), await session.callId(2)];
    const before = await session.head();
    await session.send({ type: "user.tool_confirmation", tool_use_id: yes, result: "allow" });
    await session.has("session.status_idle", 2);
    expect(await session.types(before)).toEqual([...OPENING, "user.tool_confirmation", "agent.tool_result", ...ENDING]);
    await session.send({ type: "user.tool_confirmation", tool_use_id: no, result: "deny", deny_message: "too noisy" });
    await session.has("session.status_idle", 3);
    expect((await session.results()).map(({ text, isError }) => [text.trim(), isError])).toEqual([
      ["yes", false],
      ["The user denied this call: too noisy", true],
    ]);
    expect((await session.types(before)).slice(-10)).toEqual([
      ...OPENING,
      "user.tool_confirmation",
      "agent.tool_result",
      START,
      "agent.message",
      END,
      ...ENDING,
    ]);
    expect((await session.has("agent.tool_use")).entry).toMatchObject({ evaluated_permission: "ask", evaluation: { type: "always_ask" } });
  });

  test("allowed calls run to their end before the idle asks for the rest; a confirmation meanwhile starts its call", async () => {
    const session = await node.open([toolset({ write: "always_ask" }), LOOK_UP]);
    await session.say('call bash: {"command":"sleep 0.4; echo slow"}\ncall write: {"file_path":"f","content":"x"}\ncall look_up: {}\necho: got');
    const write = await session.callId(2);
    await session.send({ type: "user.tool_confirmation", tool_use_id: write, result: "allow" });
    await session.idle();
    const custom = (await session.has("agent.custom_tool_use")).entry;
    expect((await session.has("session.status_idle")).entry).toMatchObject({ stop_reason: { event_ids: ["id" in custom ? custom.id : ""] } });
    expect((await session.results()).map(({ isError }) => isError)).toEqual([false, false]);
    expect((await session.types()).filter((type) => type === "session.status_idle")).toHaveLength(1);
  });

  test("auto asks with an indeterminate evaluation; disabled, unknown and garbled calls get error results and the turn goes on", async () => {
    const session = await node.open([toolset({ bash: "off", write: "auto" })]);
    await session.say('call bash: {"command":"echo"}\ncall nothing: {}\ncall write: {"file_path":"f","content":"x"}\necho: got');
    await session.idle();
    const uses = (await session.log()).flatMap(({ entry }) => (entry.type === "agent.tool_use" ? [entry] : []));
    expect(uses.map(({ evaluated_permission }) => evaluated_permission)).toEqual(["deny", "deny", "ask"]);
    expect(uses.map((use) => "evaluation" in use)).toEqual([false, false, true]);
    expect(uses[2]?.evaluation).toEqual({ type: "auto", evaluated_permission: { type: "ask", reason_code: "indeterminate" } });
    expect((await session.results()).map(({ isError }) => isError)).toEqual([true, true]);
  });
});

describe("an interrupt", () => {
  test("stops a model request: no message, the span closed as an error, end_turn", async () => {
    const session = await node.open();
    await session.say("token_delay: 50\nrepeat: 200 word");
    await session.has(START);
    await until(() => node.model.stats().active === 1, "the model streams");
    await session.interrupt();
    await session.idle();
    expect(await session.types()).toEqual([...OPENING, "user.message", START, END, "user.interrupt", ...ENDING]);
    expect((await session.has(END)).entry).toMatchObject({ is_error: true });
    expect((await session.has("session.status_idle")).entry).toMatchObject({ stop_reason: { type: "end_turn" } });
    await until(() => node.model.stats().active === 0, "the model request is aborted");
    await session.say("say: next");
    await until(async () => (await session.texts()).at(-1) === "next", "the next turn");
  });

  test("stops a running tool and closes its call", async () => {
    const session = await node.open([TOOLSET]);
    await session.say('call bash: {"command":"sleep 60"}\ncall bash: {"command":"echo never"}');
    await session.has("log.hand");
    const began = Date.now();
    await session.interrupt();
    await session.idle();
    expect(Date.now() - began).toBeLessThan(5_000);
    expect((await session.types()).slice(-6)).toEqual(["agent.tool_result", "agent.tool_result", "user.interrupt", ...ENDING]);
    expect((await session.results()).every(({ text, isError }) => isError && text.includes("interrupted before completion"))).toBe(true);
    await session.say("say: next");
    await until(async () => (await session.texts()).at(-1) === "next", "the next turn");
  });

  test("on requires_action closes every pending call, without a model request", async () => {
    const session = await node.open([toolset({ bash: "always_ask" }), LOOK_UP]);
    await session.say("call look_up: {}\ncall bash: {}");
    await session.idle();
    const before = await session.head();
    await session.interrupt();
    await session.has("session.status_idle", 2);
    expect(await session.types(before)).toEqual(["user.custom_tool_result", "agent.tool_result", "user.interrupt", ...ENDING]);
    expect(node.model.requests()).toHaveLength(1);
    await session.say("echo: after");
    await until(async () => (await session.texts()).length === 1, "the next turn");
  });

  test("with a message in one request ends the turn first; the next one starts from that message", async () => {
    const session = await node.open();
    await session.say("token_delay: 50\nrepeat: 200 word");
    await session.has(START);
    await session.send({ type: "user.interrupt" }, { type: "user.message", content: [{ type: "text", text: "say: new" }] });
    await session.has("session.status_idle", 2);
    const types = await session.types();
    expect(types.slice(types.indexOf("user.interrupt"))).toEqual([
      ...["user.interrupt", ...ENDING],
      ...[...OPENING, "user.message", START, "agent.message", END, ...ENDING],
    ]);
  });
});

describe("a hand", () => {
  test("that is gone is said so, and the next call gets a new one", async () => {
    const session = await node.open([TOOLSET]);
    await session.say('call bash: {"command":"echo kept > f; cat f"}\necho: got');
    await session.idle();
    const bound = (await session.has("log.hand")).entry;
    if (bound.type !== "log.hand") throw new Error("log.hand");
    await node.hands.release(session.id, bound.host, AbortSignal.timeout(10_000));
    await session.say('call bash: {"command":"ls f || echo none"}\necho: got');
    await session.has("agent.message", 2);
    await session.idle();
    expect((await session.log()).flatMap(({ entry }) => (entry.type === "log.hand" ? [entry.state] : []))).toEqual(["bound", "lost", "bound"]);
    expect((await session.results()).at(-1)).toEqual({ text: expect.stringMatching(/sandbox was lost.*none/s), isError: false });
  });

  test("that can't be understood ends the turn after some tries, with no call left open; the next message works", async () => {
    await node.rest();
    const { hands } = node;
    await node.work({ hands: { ...hands, execute: () => Promise.reject(new Error("an answer that no schema fits")) } });
    const session = await node.open([TOOLSET]);
    await session.say('call bash: {"command":"echo 1"}\nsay: done');
    expect((await session.has("session.status_idle")).entry).toMatchObject({ stop_reason: { type: "retries_exhausted" } });
    expect(await session.results()).toEqual([{ text: expect.stringContaining("may have run"), isError: true }]);
    await session.say("say: hello");
    await session.has("session.status_idle", 2);
    expect(await session.texts()).toEqual(["hello"]);
  });

  test("is not touched by a turn without tools, and read-only calls overlap", async () => {
    const session = await node.open([TOOLSET]);
    await session.say("say: hi");
    await session.idle();
    expect((await session.log()).some(({ entry }) => entry.type === "log.hand")).toBe(false);
    await session.say('call write: {"file_path":"f","content":"x"}\ncall read: {"file_path":"f"}\ncall glob: {"pattern":"*"}\necho: got');
    await session.has("agent.message", 2);
    await session.idle();
    expect((await session.results()).map(({ isError }) => isError)).toEqual([false, false, false]);
  });
});

describe("a failing model", () => {
  test("that is overloaded for a moment is asked again, and the text is in the log once", async () => {
    const session = await node.open();
    await session.say("error: 529 times=1\nsay: hello");
    await session.idle();
    expect(await session.types()).toEqual([
      ...[...OPENING, "user.message", START, END, "session.error"],
      ...[START, "agent.message", END, ...ENDING],
    ]);
    expect((await session.has("session.error")).entry).toMatchObject({
      error: { type: "model_overloaded_error", retry_status: { type: "retrying" } },
    });
  });

  test.each(["sse_error: overloaded_error times=1 after=5", "drop: times=1 after=5", "malformed: times=1 after=5"])(
    "whose stream breaks (%s) is asked again, and nothing partial is kept",
    async (fault) => {
      const session = await node.open();
      await session.say(`${fault}\nsay: one two three four`);
      await session.idle();
      expect(await session.texts()).toEqual(["one two three four"]);
      expect((await session.types()).filter((type) => type === START)).toHaveLength(2);
    },
  );

  test("that refuses the request ends the turn at once; the next message works", async () => {
    const session = await node.open();
    await session.say('error: 400 message="bad request"\nsay: hello');
    await session.idle();
    expect(await session.types()).toEqual([...OPENING, "user.message", START, END, "session.error", ...ENDING]);
    expect((await session.has("session.error")).entry).toMatchObject({
      error: { type: "model_request_failed_error", message: expect.stringContaining("bad request"), retry_status: { type: "exhausted" } },
    });
    expect((await session.has("session.status_idle")).entry).toMatchObject({ stop_reason: { type: "retries_exhausted" } });
    await session.say("say: next");
    await until(async () => (await session.texts()).at(-1) === "next", "the next turn");
  });

  test("that refuses a picture's address refuses only that request: the session goes on without it", async () => {
    const session = await node.open();
    const url = "https://example.com/gone.png";
    const picture = { type: "image", source: { type: "url", url } } as const;
    await session.send({ type: "user.message", content: [{ type: "text", text: 'error: 400 message="Unable to download the file"' }, picture] });
    await session.has("session.status_idle");
    expect(JSON.stringify(node.model.requests())).toContain(url);
    node.model.clear();
    await session.say("say: hello");
    await session.has("session.status_idle", 2);
    expect(await session.texts()).toEqual(["hello"]);
    expect(JSON.stringify(node.model.requests())).not.toContain(url);
  });

  test("that asks for a long wait reschedules the session, and an interrupt frees it", async () => {
    const session = await node.open();
    await session.say("error: 429 retry_after=30\nsay: hello");
    await session.has("session.status_rescheduled");
    await until(async () => (await session.status()) === "rescheduling", "the session waits");
    expect((await session.types()).slice(-4)).toEqual([END, "session.error", "session.thread_status_rescheduled", "session.status_rescheduled"]);
    const { dueAt } = await node.store.getSession(session.id);
    expect((dueAt ?? 0) - Date.now()).toBeGreaterThan(29_000);
    await until(() => worker.driven === 0, "the worker is free");
    await session.interrupt();
    await session.idle();
    expect((await session.types()).slice(-4)).toEqual(["user.interrupt", ...ENDING]);
  });

  test("that says nothing for the idle limit is asked again", async () => {
    const silent = await startNode({ idleMs: 1_000 });
    try {
      await silent.work();
      const session = await silent.open();
      await session.say("stall: 30000 after=5 times=1\nsay: one two three four");
      await session.idle();
      expect(await session.texts()).toEqual(["one two three four"]);
      expect((await session.has("session.error")).entry).toMatchObject({ error: { message: "The model's answer stalled." } });
    } finally {
      await silent.close();
    }
  });

  test("that cuts calls off at the token limit three times in a row ends the turn with a typed error; nothing ran", async () => {
    const session = await node.open([TOOLSET]);
    await session.say(
      ['truncated_call bash: {"command":"echo a"}', "---", 'truncated_call bash: {"comm', "---", 'truncated_call bash: {"command'].join("\n"),
    );
    await session.idle();
    expect(node.model.requests()).toHaveLength(3);
    expect(node.model.stats().rejected).toBe(0);
    expect((await session.types()).filter((type) => type === "agent.tool_result")).toHaveLength(3);
    expect((await session.log()).some(({ entry }) => entry.type === "log.hand")).toBe(false);
    expect((await session.has("session.error")).entry).toMatchObject({
      error: { type: "model_request_failed_error", message: expect.stringContaining("token limit"), retry_status: { type: "exhausted" } },
    });
  });
});
