// The log as Messages API messages: pairs always hold, replies go back block for block, the prefix stays the same (C-08, C-09, C-14, C-15, C-18).

import type Anthropic from "@anthropic-ai/sdk";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { requestOf } from "../../harnesses/claude/request.ts";
import { transcriptOf } from "../../harnesses/claude/transcript.ts";
import { toolsOf } from "../../harnesses/tools.ts";
import type { ReplyBlock } from "../../session-store/events/log.ts";
import { mintEvent, position } from "../../session-store/ids.ts";
import { agent, LOOK_UP, TOOLSET } from "./agents.ts";
import { TestLog } from "./logs.ts";

const blocksOf = (message: Anthropic.MessageParam | undefined) => (typeof message?.content === "string" ? [] : (message?.content ?? []));
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/** What the API demands of calls and results. */
function checkPairs(messages: readonly Anthropic.MessageParam[]): void {
  expect(messages[0]?.role).toBe("user");
  for (const [index, message] of messages.entries()) {
    expect(message.role).toBe(index % 2 === 0 ? "user" : "assistant");
    const blocks = blocksOf(message);
    expect(blocks.length).toBeGreaterThan(0);
    const results = blocks.flatMap((block) => (block.type === "tool_result" ? [block.tool_use_id] : []));
    const calls = blocksOf(messages[index - 1]).flatMap((block) => (block.type === "tool_use" ? [block.id] : []));
    expect(results).toEqual(calls);
    expect(blocks.slice(0, results.length).every((block) => block.type === "tool_result")).toBe(results.length === calls.length);
    expect(blocks.every((block) => block.type !== "text" || block.text !== "")).toBe(true);
  }
}

describe("the transcript", () => {
  test("of any log pairs every call with one result, in call order, before what was said", () => {
    const turn = fc.record({
      calls: fc.integer({ min: 0, max: 3 }),
      shuffle: fc.boolean(),
      missing: fc.boolean(),
      said: fc.array(fc.string({ minLength: 1 }), { maxLength: 2 }),
      blocks: fc.array(
        fc.constantFrom<ReplyBlock>({ type: "text", text: "" }, { type: "text", text: "t" }, { type: "thinking", thinking: "x", signature: "" }),
        {
          maxLength: 3,
        },
      ),
    });
    fc.assert(
      fc.property(fc.array(turn, { maxLength: 8 }), (turns) => {
        const log = new TestLog().message("start");
        for (const { calls, shuffle, missing, said, blocks } of turns) {
          const ids = log.reply(new Array<"allow">(calls).fill("allow"), blocks);
          for (const id of (shuffle ? [...ids].reverse() : ids).slice(missing ? 1 : 0)) log.result(id);
          for (const text of said) log.message(text);
        }
        log.message("end");
        checkPairs(transcriptOf(log.entries));
      }),
      { numRuns: 100 },
    );
  });

  test("gives a reply back block for block: thinking, redacted data, texts and inputs in their order", () => {
    const content: ReplyBlock[] = [
      { type: "thinking", thinking: "a", signature: "s1" },
      { type: "redacted_thinking", data: "xx" },
      { type: "text", text: "b" },
      { type: "tool_use", id: "toolu_1", name: "bash", input_json: '{"command": "ls", "n": 1.50}' },
      { type: "thinking", thinking: "", signature: "s2" },
      { type: "thinking", thinking: "unsigned", signature: "" },
      { type: "tool_use", id: "toolu_2", name: "bash", input_json: '{"cut' },
    ];
    const log = new TestLog().message("go");
    const [one, two] = [mintEvent(), mintEvent()];
    log.add({
      type: "log.reply",
      harness: "claude",
      span: mintEvent(),
      model: "m",
      stop_reason: "tool_use",
      content,
      calls: [
        { tool_use_id: "toolu_1", event_id: one },
        { tool_use_id: "toolu_2", event_id: two },
      ],
      usage: { input_tokens: 0, output_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 },
    });
    log.result(two, "second").result(one, "first");
    const messages = transcriptOf(log.entries);
    expect(messages[1]).toEqual({
      role: "assistant",
      content: [
        { type: "thinking", thinking: "a", signature: "s1" },
        { type: "redacted_thinking", data: "xx" },
        { type: "text", text: "b" },
        { type: "tool_use", id: "toolu_1", name: "bash", input: { command: "ls", n: 1.5 } },
        { type: "thinking", thinking: "", signature: "s2" },
        { type: "tool_use", id: "toolu_2", name: "bash", input: {} },
      ],
    });
    expect(blocksOf(messages[2])).toMatchObject([
      { tool_use_id: "toolu_1", content: [{ text: "first" }] },
      { tool_use_id: "toolu_2", content: [{ text: "second" }] },
    ]);
  });

  test("leaves out texts of a reply that the API gives and then refuses: empty ones, and those of white space", () => {
    const log = new TestLog().message("go");
    log.reply(
      [],
      [
        { type: "text", text: "\n\n" },
        { type: "text", text: " a " },
      ],
    );
    log.message("on");
    log.reply([], [{ type: "text", text: "\n" }]);
    log.message("and on");
    expect(transcriptOf(log.entries).map(({ content }) => content)).toEqual([
      [{ type: "text", text: "go" }],
      [{ type: "text", text: " a " }],
      [
        { type: "text", text: "on" },
        { type: "text", text: "and on" },
      ],
    ]);
  });

  test("shows what was said where it was applied, and nothing that waits", () => {
    const log = new TestLog().message("one").message("waits", false);
    log.add({ type: "log.received", event: { id: mintEvent(), type: "system.message", content: [{ type: "text", text: "be kind" }] }, waits: true });
    const waiting = log.stored.at(-1)?.entry;
    if (waiting?.type !== "log.received") throw new Error("received");
    log.add({ type: "log.applied", ref: position(log.stored.length), id: waiting.event.id });
    expect(transcriptOf(log.entries)).toEqual([
      {
        role: "user",
        content: [
          { type: "text", text: "one" },
          { type: "text", text: "<system>\nbe kind\n</system>" },
        ],
      },
    ]);
  });

  test("sends good pictures under their true type, and a note in place of bad ones", () => {
    const log = new TestLog();
    const id = mintEvent();
    const image = (data: string) => ({ type: "image", source: { type: "base64", media_type: "image/jpeg", data } }) as const;
    const wide = Buffer.from(PNG, "base64");
    wide.writeUInt32BE(9_000, 16);
    const content = [image(PNG), image("not base64!"), image(Buffer.from("no picture").toString("base64")), image(wide.toString("base64"))];
    log.add({ type: "log.received", event: { id, type: "user.message", content }, waits: true }, { type: "log.applied", ref: position(2), id });
    const blocks = blocksOf(transcriptOf(log.entries)[0]);
    expect(blocks[0]).toEqual({ type: "image", source: { type: "base64", media_type: "image/png", data: PNG } });
    expect(blocks.slice(1).map((block) => block.type === "text" && block.text.startsWith("[A picture was left out"))).toEqual([true, true, true]);
  });

  test("holds no half of a character", () => {
    const log = new TestLog().message("lone \ud83d half");
    expect(JSON.stringify(transcriptOf(log.entries)).isWellFormed()).toBe(true);
    expect(blocksOf(transcriptOf(log.entries)[0])[0]).toEqual({ type: "text", text: "lone \ufffd half" });
  });
});

describe("the request", () => {
  test("has the same tools and system at every turn, and never more than four cache markers", () => {
    const configured = agent([TOOLSET, LOOK_UP]);
    const prefixes = new Set<string>();
    const log = new TestLog().message("go");
    for (let turn = 0; turn < 20; turn += 1) {
      const request = requestOf(configured, toolsOf(configured), log.entries, 100);
      prefixes.add(JSON.stringify([request.tools, request.system, request.max_tokens, request.model]));
      expect(JSON.stringify(request).split("cache_control").length - 1).toBeLessThanOrEqual(4);
      const [call] = log.reply(["allow"]);
      if (call) log.result(call, `turn ${turn}`);
    }
    expect(prefixes.size).toBe(1);
  });

  test("grows at its end only: earlier messages stay the same but for the markers", () => {
    const configured = agent([TOOLSET]);
    const log = new TestLog().message("go");
    const plain = () =>
      requestOf(configured, toolsOf(configured), log.entries, 100).messages.map((message) =>
        JSON.stringify(message).replace(',"cache_control":{"type":"ephemeral"}', ""),
      );
    const before = plain();
    const [call] = log.reply(["allow"]);
    if (call) log.result(call);
    expect(plain().slice(0, before.length)).toEqual(before);
  });

  test("passes effort and speed on, and leaves out what the agent does not say", () => {
    const request = (model: Parameters<typeof agent>[1]) => requestOf(agent([], model), [], new TestLog().message("go").entries, 100);
    expect(request({ model: { id: "m", effort: { type: "high" }, speed: "fast" } })).toMatchObject({
      output_config: { effort: "high" },
      speed: "fast",
    });
    expect(Object.keys(request({ model: { id: "m" }, system: null })).sort()).toEqual(["max_tokens", "messages", "model", "stream"]);
  });
});
