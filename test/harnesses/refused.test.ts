// After a refusal of the model's API for good: what may have caused it is left out of later requests, so that the session goes on.

import { APIError } from "@anthropic-ai/sdk";
import { describe, expect, test } from "vitest";
import { refusalOf } from "../../harnesses/claude/refused.ts";
import { requestOf } from "../../harnesses/claude/request.ts";
import type { Entry } from "../../session-store/entry.ts";
import type { EventId } from "../../session-store/ids.ts";
import { mintEvent, position } from "../../session-store/ids.ts";
import { agent, TOOLSET } from "./agents.ts";
import { TestLog } from "./logs.ts";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const byUrl = { type: "image", source: { type: "url", url: "https://example.com/gone.png" } } as const;
const inline = { type: "image", source: { type: "base64", media_type: "image/png", data: PNG } } as const;
const pdf = {
  type: "document",
  source: { type: "base64", media_type: "application/pdf", data: Buffer.from("%PDF-1.7 broken").toString("base64") },
} as const;
const text = (words: string) => ({ type: "text", text: words }) as const;

type Content = Extract<Extract<Entry, { type: "log.received" }>["event"], { type: "user.message" }>["content"];

function send(log: TestLog, content: Content): { readonly ref: number; readonly id: EventId } {
  const id = mintEvent();
  log.add({ type: "log.received", event: { id, type: "user.message", content }, waits: true });
  return { ref: log.stored.length, id };
}
const apply = (log: TestLog, { ref, id }: { readonly ref: number; readonly id: EventId }) => log.add({ type: "log.applied", ref: position(ref), id });
const say = (log: TestLog, ...content: Content) => apply(log, send(log, content));

/** The end of a request that was refused for good. */
const refuse = (log: TestLog, refused = "input") => log.add({ type: "log.note", harness: "claude", data: { refused } }).error("exhausted").idle();

function blocksOf(log: TestLog) {
  const { messages } = requestOf(agent([TOOLSET]), [], log.entries, 100);
  return messages.flatMap(({ content }) => (typeof content === "string" ? [] : content));
}
const typesOf = (log: TestLog) => blocksOf(log).map(({ type }) => type);

describe("after a refused request", () => {
  test("its pictures and documents are notes, its words stay", () => {
    const log = new TestLog();
    say(log, text("look"), inline, byUrl, pdf);
    log.span();
    refuse(log).message("go on");
    const blocks = blocksOf(log);
    expect(blocks.map(({ type }) => type)).toEqual(["text", "text", "text", "text", "text"]);
    expect(JSON.stringify(blocks)).not.toContain("example.com");
    expect(blocks[0]).toMatchObject({ text: "look" });
    expect(blocks[1]).toMatchObject({ text: expect.stringContaining("picture was left out") });
    expect(blocks[3]).toMatchObject({ text: expect.stringContaining("document was left out") });
  });

  test("a rubric of great length is cut, and the outcome stays", () => {
    const log = new TestLog();
    log.outcome(`first ${"x".repeat(250_000)}`);
    log.span();
    refuse(log).message("go on");
    const told = JSON.stringify(blocksOf(log));
    expect(told.length).toBeLessThan(30_000);
    expect(told).toMatch(/a report.*first x.*characters was left out/);
  });

  test("what was answered before stays, but for media by address, which may be gone by now", () => {
    const log = new TestLog();
    say(log, inline, byUrl);
    log.reply([]);
    say(log, text("again"));
    refuse(log).message("go on");
    expect(typesOf(log)).toEqual(["image", "text", "text", "text"]);
  });

  test("what came after it is as it was sent, even if it was waiting by then", () => {
    const log = new TestLog();
    say(log, text("one"));
    const waiting = send(log, [inline, byUrl]);
    refuse(log);
    apply(log, waiting);
    expect(typesOf(log)).toEqual(["text", "image", "image"]);
  });

  test("a message that waited for the reply before is one of the refused request", () => {
    const log = new TestLog().message("one");
    const waiting = send(log, [inline]);
    log.reply([]);
    apply(log, waiting);
    refuse(log).message("go on");
    expect(typesOf(log)).toEqual(["text", "text", "text"]);
  });

  test("results are cleaned like messages, and every call keeps its result", () => {
    const log = new TestLog().message("go");
    const [call, custom] = log.reply(["allow", "custom"]);
    if (!call || !custom) throw new Error("two calls");
    log.add({ id: mintEvent(), type: "agent.tool_result", tool_use_id: call, content: [inline], is_error: false });
    log.add({
      type: "log.received",
      event: { id: mintEvent(), type: "user.custom_tool_result", custom_tool_use_id: custom, content: [byUrl] },
      waits: false,
    });
    refuse(log).message("go on");
    const results = blocksOf(log).filter(({ type }) => type === "tool_result");
    expect(results).toHaveLength(2);
    expect(JSON.stringify(results)).not.toContain('"image"');
  });

  test("a text that no context holds is cut", () => {
    const log = new TestLog().message("x".repeat(3_000_000));
    refuse(log).message("go on");
    expect(JSON.stringify(blocksOf(log)).length).toBeLessThan(100_000);
  });

  test("that was too large though it brought only words, all older pictures are notes; if it brought pictures, only those", () => {
    const log = new TestLog();
    say(log, inline);
    log.reply([]);
    say(log, inline);
    refuse(log, "size").message("go on");
    expect(typesOf(log)).toEqual(["image", "text", "text"]);
    refuse(log, "size").message("go on");
    expect(typesOf(log)).toEqual(["text", "text", "text", "text"]);
    say(log, inline);
    expect(typesOf(log).at(-1)).toBe("image");
  });

  test("without one, nothing is left out", () => {
    const log = new TestLog();
    say(log, inline, byUrl, pdf);
    log.error("exhausted").idle().message("go on");
    expect(typesOf(log)).toEqual(["image", "image", "document", "text"]);
  });
});

test.each([
  [400, "invalid_request_error", "input"],
  [413, "request_too_large", "size"],
  [undefined, "invalid_request_error", "input"],
  [401, "authentication_error", null],
  [404, "not_found_error", null],
  [529, "overloaded_error", null],
  [undefined, "overloaded_error", null],
])("status %s with %s is the refusal %s", (status, type, refusal) => {
  const body = { type: "error", error: { type, message: "m" } };
  const error = status === undefined ? new APIError(undefined, body, "m", undefined) : APIError.generate(status, body, "m", new Headers());
  expect(refusalOf(error)).toBe(refusal);
});
