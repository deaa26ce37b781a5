// The grader of the claude harness (claude/grade.ts): what it is asked, and what counts as a verdict.

import { describe, expect, test } from "vitest";
import { gradingRequest, judgedOf } from "../../harnesses/claude/grade.ts";
import type { Evaluation } from "../../harnesses/harness.ts";
import { readRequest } from "../support/model/request.ts";
import { refuseRequest } from "../support/model/rules.ts";
import { agent } from "./agents.ts";
import { TestLog, USAGE } from "./logs.ts";

const RECORD_CHARS = 260_000;

const taskOf = (log: TestLog, fields: Partial<Evaluation> = {}): Evaluation => ({
  agent: agent([], { system: "the agent's own system prompt" }),
  description: "a report",
  rubric: "it is short",
  signal: new AbortController().signal,
  model: async () => ({ baseURL: "http://127.0.0.1:1", grant: "g" }),
  getEvents: () => log.entries,
  ...fields,
});
const asked = (log: TestLog, fields?: Partial<Evaluation>) => gradingRequest(taskOf(log, fields), 1_000);
const wordsOf = (log: TestLog, fields?: Partial<Evaluation>) => JSON.stringify(asked(log, fields).messages);

describe("the request", () => {
  test("is one that the API takes, in a context of its own, and the same for the same log", () => {
    const log = new TestLog().running().message("hello");
    const [call] = log.reply(
      ["allow"],
      [
        { type: "text", text: "I look" },
        { type: "thinking", thinking: "secret thought", signature: "s" },
      ],
    );
    if (call) log.result(call, "a listing");
    const request = asked(log);
    const read = readRequest(JSON.parse(JSON.stringify(request)), false);
    if (typeof read === "string") throw new Error(read);
    expect(refuseRequest(read)).toBeNull();
    expect(asked(log)).toEqual(request);
    expect(request.tools?.map((tool) => "name" in tool && tool.name)).toEqual(["verdict"]);
    const text = JSON.stringify(request);
    for (const shown of ["a report", "it is short", "hello", "I look", "ls", "a listing"]) expect(text).toContain(shown);
    for (const hidden of ["secret thought", "the agent's own system prompt"]) expect(text).not.toContain(hidden);
  });

  test("is bounded: what is long is cut, and of too much the newest is kept", () => {
    const log = new TestLog().running().message(`first ${"x".repeat(100_000)} end of the first`);
    for (let at = 0; at < 60; at += 1) log.reply([], [{ type: "text", text: `reply ${at} ${"y".repeat(15_000)}` }]);
    const words = wordsOf(log);
    expect(words.length).toBeLessThan(RECORD_CHARS);
    expect(words).toContain("reply 59");
    expect(words).not.toContain("reply 3 ");
    expect(words).toContain("What came before was left out");
    const cut = wordsOf(new TestLog().running().message(`first ${"x".repeat(100_000)} end of the first`));
    expect(cut).toMatch(/first x.*characters were left out.*end of the first/);
    expect(cut.length).toBeLessThan(25_000);
  });

  test("holds whole characters, also where it cuts", () => {
    const log = new TestLog().running().message(`a${"\u{1F600}".repeat(40_000)}`);
    expect(asked(log, { rubric: "\ud83d" }).messages.every((message) => JSON.stringify(message).isWellFormed())).toBe(true);
    expect(JSON.stringify(asked(log, { rubric: "\ud83d" }))).not.toMatch(/\\ud[89ab]/i);
  });
});

describe("the answer", () => {
  const answered = (input_json: string, stop_reason = "tool_use", name = "verdict") =>
    judgedOf({
      type: "reply",
      refusal: { category: null, explanation: null },
      reply: { model: "m", stop_reason, content: [{ type: "tool_use", id: "t", name, input_json }], truncated: [], usage: USAGE },
    });

  test("is a verdict if it fits, with what it took", () => {
    const given = { explanation: "all there", result: "satisfied" };
    expect(answered(JSON.stringify(given))).toEqual({ type: "verdict", ...given, usage: USAGE });
  });

  test.each([
    ["broken JSON", '{"result":', "max_tokens"],
    ["another result", '{"explanation":"x","result":"fine"}', "tool_use"],
    ["no explanation", '{"result":"satisfied"}', "tool_use"],
    ["an empty explanation", '{"explanation":"","result":"satisfied"}', "tool_use"],
    ["a list", "[]", "tool_use"],
  ])("is none with %s, and is asked for again", (_name, json, stop) => {
    const failure = { type: "model_request_failed_error", message: "The grader's answer held no verdict.", isTransient: true };
    expect(answered(json, stop)).toEqual({ type: "failed", failure, usage: USAGE });
  });

  test("of a grader that refuses is not asked for again", () => {
    expect(answered("{}", "refusal")).toMatchObject({ type: "failed", failure: { isTransient: false } });
  });
});
