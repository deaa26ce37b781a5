// Parts of the host that are pure, or nearly: the writer, permissions, replies, retries, previews, what failures mean.

import { APIError } from "@anthropic-ai/sdk";
import { describe, expect, test } from "vitest";
import { failureOf, retryAfterOf } from "../../harnesses/claude/failure.ts";
import type { Reply } from "../../harnesses/harness.ts";
import { KnownServers } from "../../harnesses/known-servers.ts";
import { judge } from "../../harnesses/permissions.ts";
import { Previews } from "../../harnesses/previews.ts";
import { replyEntries } from "../../harnesses/respond.ts";
import { toolsOf } from "../../harnesses/tools.ts";
import { type Tenure, Writer } from "../../harnesses/writer.ts";
import type { Lease } from "../../session-store/due.ts";
import type { BrainEntry, Stored } from "../../session-store/entry.ts";
import type { Fence, SessionId } from "../../session-store/ids.ts";
import { mintEvent, position } from "../../session-store/ids.ts";
import { Refusal, type RefusalCode } from "../../session-store/refusal.ts";
import type { Preview } from "../../session-store/store.ts";
import { agent, LOOK_UP, TOOLSET, toolset } from "./agents.ts";

const LEASE: Lease = { id: "sesn_1" as SessionId, fence: 1 as Fence, head: position(0), attempt: 1, leaseMs: 1_000 };
const note = (data: unknown): BrainEntry => ({ type: "log.note", harness: "h", data });

/** A tenure and a place to write to, with answers that the test decides. */
function bench(answers: readonly (RefusalCode | "ok")[]) {
  const controller = new AbortController();
  const asked: { n: number; entries: readonly BrainEntry[] }[] = [];
  const left = [...answers];
  const tenure: Tenure = { signal: controller.signal, isAlive: () => !controller.signal.aborted, lose: (cause) => controller.abort(cause) };
  const store = {
    async emitEvents(_: Lease, n: number, entries: readonly BrainEntry[]): Promise<readonly Stored[]> {
      asked.push({ n, entries });
      const answer = left.shift() ?? "ok";
      if (answer !== "ok") throw new Refusal(answer);
      return entries.map((entry, index) => ({ position: position(index + 1), at: 0, fence: LEASE.fence, entry }));
    },
    finish: async (_: Lease, n: number) => {
      asked.push({ n, entries: [] });
      const answer = left.shift() ?? "ok";
      if (answer !== "ok") throw new Refusal(answer);
      return [];
    },
    release: async () => [],
  };
  return { asked, controller, writer: new Writer(store, LEASE, tenure, async () => {}) };
}

describe("the writer", () => {
  test("numbers its appends, one at a time, and sends together what queued up, in order", async () => {
    const { writer, asked } = bench([]);
    const answers = await Promise.all([1, 2, 3].map((data) => writer.append([note(data)])));
    expect(asked).toEqual([
      { n: 1, entries: [note(1)] },
      { n: 2, entries: [note(2), note(3)] },
    ]);
    expect(answers.map((stored) => stored.map(({ entry }) => entry))).toEqual([[note(1)], [note(2)], [note(3)]]);
    await writer.finish(position(3), []);
    expect(asked.at(-1)?.n).toBe(3);
    await expect(writer.append([note(4)])).rejects.toThrow("lease_lost");
  });

  test("asks again under the same number while the answer is in doubt", async () => {
    const { writer, asked } = bench(["store_in_doubt", "store_busy", "ok"]);
    await writer.append([note(1)]);
    expect(asked.map(({ n }) => n)).toEqual([1, 1, 1]);
  });

  test.each(["fenced", "out_of_step", "session_not_found"] as const)("takes %s for the end of its lease, and writes nothing more", async (code) => {
    const { writer, asked, controller } = bench([code]);
    await expect(writer.append([note(1)])).rejects.toMatchObject({ code });
    expect(controller.signal.aborted).toBe(true);
    await expect(writer.append([note(2)])).rejects.toThrow();
    expect(asked).toHaveLength(1);
  });
});

describe("a writer that gives its lease back", () => {
  /** A store that answers `finish` and `release` when it is told to. */
  function slowEnd(answer: readonly Stored[] | "more") {
    const controller = new AbortController();
    const asked: string[] = [];
    let answerNow = () => {};
    const held = new Promise<void>((resolve) => {
      answerNow = resolve;
    });
    const tenure: Tenure = { signal: controller.signal, isAlive: () => !controller.signal.aborted, lose: (cause) => controller.abort(cause) };
    const store = {
      async emitEvents(_: Lease, n: number, entries: readonly BrainEntry[]): Promise<readonly Stored[]> {
        asked.push(`append ${n}`);
        return entries.map((entry, index) => ({ position: position(index + 1), at: 0, fence: LEASE.fence, entry }));
      },
      async finish(_: Lease, n: number) {
        asked.push(`finish ${n}`);
        await held;
        return answer;
      },
      async release(_: Lease, n: number): Promise<readonly Stored[]> {
        asked.push(`release ${n}`);
        await held;
        return [];
      },
    };
    return { asked, answerNow, writer: new Writer(store, LEASE, tenure, async () => {}) };
  }

  test.each(["finish", "release"] as const)("refuses what is appended while %s is on its way", async (way) => {
    const { asked, answerNow, writer } = slowEnd([]);
    const ending = way === "finish" ? writer.finish(position(0), []) : writer.release([], 0);
    await expect.poll(() => asked).toEqual([`${way} 1`]);
    const late = writer.append([note("a result")]);
    late.catch(() => {});
    answerNow();
    await ending;
    await expect(late).rejects.toThrow("lease_lost");
    expect(asked).toEqual([`${way} 1`]);
  });

  test("appends under the next number what came while more was there to do", async () => {
    const { asked, answerNow, writer } = slowEnd("more");
    const ending = writer.finish(position(0), []);
    await expect.poll(() => asked).toEqual(["finish 1"]);
    const late = writer.append([note("a result")]);
    answerNow();
    expect(await ending).toBe("more");
    await late;
    expect(asked).toEqual(["finish 1", "append 1"]);
    expect(await writer.append([note("one more")])).toHaveLength(1);
  });
});

describe("permissions", () => {
  const tool = (name: string) => toolsOf(agent([TOOLSET, LOOK_UP])).find((one) => one.name === name);
  test("follow the tool's own policy, else the toolset's; custom tools have none", () => {
    const configured = agent([toolset({ bash: "always_ask", write: "auto", edit: "off" }), LOOK_UP]);
    expect(judge(configured, tool("read"))).toEqual({ type: "tool", permission: "allow", evaluation: { type: "always_allow" } });
    expect(judge(configured, tool("bash"))).toEqual({ type: "tool", permission: "ask", evaluation: { type: "always_ask" } });
    expect(judge(configured, tool("write"))).toMatchObject({
      permission: "ask",
      evaluation: { type: "auto", evaluated_permission: { type: "ask" } },
    });
    expect(judge(configured, tool("edit"))).toEqual({ type: "tool", permission: "deny" });
    expect(judge(configured, tool("look_up"))).toEqual({ type: "custom" });
    expect(judge(configured, tool("unknown"))).toEqual({ type: "tool", permission: "deny" });
  });

  test("a disabled tool is not offered to the model", () => {
    expect(toolsOf(agent([toolset({ bash: "off" })])).map(({ name }) => name)).toEqual(["read", "write", "edit", "glob", "grep"]);
  });
});

describe("a reply", () => {
  const reply = (more: Partial<Reply>): Reply => ({
    model: "m",
    stop_reason: "end_turn",
    content: [],
    truncated: [],
    usage: { input_tokens: 0, output_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 },
    ...more,
  });
  const entriesOf = (given: Reply) => {
    const configured = agent([TOOLSET, LOOK_UP]);
    const context = {
      harness: "h",
      agent: configured,
      tools: toolsOf(configured),
      servers: new KnownServers(),
      span: mintEvent(),
      messageId: mintEvent(),
      thinkingId: () => mintEvent(),
    };
    return replyEntries(context, given);
  };

  test("becomes thinking, one message, the tool uses and the span's end, in this order", () => {
    const entries = entriesOf(
      reply({
        content: [
          { type: "thinking", thinking: "t", signature: "s" },
          { type: "text", text: "a" },
          { type: "tool_use", id: "t1", name: "bash", input_json: "{}" },
          { type: "text", text: "" },
          { type: "text", text: "b" },
          { type: "tool_use", id: "t2", name: "look_up", input_json: "{}" },
        ],
      }),
    );
    expect(entries.map(({ type }) => type)).toEqual([
      ...["log.reply", "agent.thinking", "agent.message", "agent.tool_use", "agent.custom_tool_use", "span.model_request_end"],
    ]);
    expect(entries[2]).toMatchObject({
      content: [
        { type: "text", text: "a" },
        { type: "text", text: "b" },
      ],
    });
  });

  test("without text has no message", () => {
    expect(entriesOf(reply({})).map(({ type }) => type)).toEqual(["log.reply", "span.model_request_end"]);
  });

  test.each([
    ["cut off", { id: "t1", name: "look_up", input_json: '{"q":1}' }, ["t1"], "token limit"],
    ["garbled", { id: "t1", name: "bash", input_json: '{"command"' }, [], "not valid JSON"],
    ["no object", { id: "t1", name: "bash", input_json: "[1]" }, [], "not a JSON object"],
    ["unknown", { id: "t1", name: "nothing", input_json: "{}" }, [], 'no tool "nothing"'],
  ] as const)("with a call that is %s is denied and answered in the same append", (_, use, truncated, says) => {
    const entries = entriesOf(reply({ content: [{ type: "tool_use", ...use }], truncated }));
    expect(entries[1]).toMatchObject({ type: "agent.tool_use", evaluated_permission: "deny" });
    expect(entries[1]).not.toHaveProperty("evaluation");
    expect(entries.at(-1)).toMatchObject({ type: "agent.tool_result", is_error: true, content: [{ text: expect.stringContaining(says) }] });
    expect(entries[0]).toMatchObject({ content: [{ input_json: use.input_json }] });
  });

  test("holds no half of a character, in its input's escapes neither", () => {
    const entries = entriesOf(
      reply({
        content: [
          { type: "text", text: "a\ud83d" },
          { type: "tool_use", id: "t1", name: "bash", input_json: '{"command":"\\ud83d"}' },
        ],
      }),
    );
    expect(entries[1]).toMatchObject({ content: [{ text: "a\ufffd" }] });
    expect(entries[2]).toMatchObject({ input: { command: "\ufffd" } });
  });
});

describe("a failure", () => {
  const api = (status: number | undefined, type: string, headers: Record<string, string> = {}) =>
    APIError.generate(status, { type: "error", error: { type, message: "said" } }, undefined, new Headers(headers));
  test.each([
    [529, "overloaded_error", "model_overloaded_error", true],
    [429, "rate_limit_error", "model_rate_limited_error", true],
    [500, "api_error", "model_request_failed_error", true],
    [408, "timeout_error", "model_request_failed_error", true],
    [400, "invalid_request_error", "model_request_failed_error", false],
    [401, "authentication_error", "model_request_failed_error", false],
    [413, "request_too_large", "model_request_failed_error", false],
  ])("with status %i is %s", (status, type, wanted, isTransient) => {
    expect(failureOf(api(status, type))).toMatchObject({ type: wanted, isTransient, message: expect.stringContaining("said") });
  });

  test("inside a stream goes by its type, without one it is passing", () => {
    const inside = (type: string) =>
      new APIError(undefined, { type: "error", error: { type, message: "said" } }, undefined, new Headers(), type as never);
    expect(failureOf(inside("overloaded_error"))).toMatchObject({ type: "model_overloaded_error", isTransient: true });
    expect(failureOf(inside("invalid_request_error"))).toMatchObject({ isTransient: false });
    expect(failureOf(new TypeError("terminated"))).toMatchObject({ type: "model_request_failed_error", isTransient: true });
  });

  test("carries the wait that the server asked for, in any spelling", () => {
    expect(retryAfterOf(new Headers({ "retry-after": "2.5" }))).toBe(2_500);
    expect(retryAfterOf(new Headers({ "retry-after-ms": "70", "retry-after": "2" }))).toBe(70);
    expect(retryAfterOf(new Headers({ "retry-after": new Date(10_000).toUTCString() }), 4_000)).toBe(6_000);
    expect(retryAfterOf(new Headers())).toBe(null);
    expect(failureOf(api(429, "rate_limit_error", { "retry-after": "30" }))).toMatchObject({ retryAfterMs: 30_000 });
  });
});

describe("previews", () => {
  test("wait for their span, count from 0, start each event first, never cut a character, and end with the whole text", () => {
    const sent: Omit<Preview, "fence" | "span">[] = [];
    const messageId = mintEvent();
    const previews = new Previews(messageId, (preview) => sent.push(preview));
    previews.add({ type: "thinking", index: 0 });
    previews.add({ type: "text", index: 1, text: "a\ud83d" });
    expect(sent).toEqual([]);
    previews.open();
    expect(sent).toHaveLength(3);
    previews.add({ type: "text", index: 1, text: "\ude00" });
    previews.add({ type: "text", index: 2, text: "b" });
    previews.end();
    previews.add({ type: "text", index: 2, text: "late" });
    expect(sent).toEqual([
      { n: 0, event: { type: "agent.thinking", id: previews.thinkingId(0) } },
      { n: 1, event: { type: "agent.message", id: messageId } },
      { n: 2, event: { type: "agent.message", id: messageId }, delta: { index: 0, text: "a" } },
      { n: 3, event: { type: "agent.message", id: messageId }, delta: { index: 0, text: "\u{1F600}" } },
      { n: 4, event: { type: "agent.message", id: messageId }, delta: { index: 1, text: "b" } },
    ]);
  });
});
