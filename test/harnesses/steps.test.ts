// What a host does next, read off any log (harnesses/steps.ts, harnesses/view.ts).

import { describe, expect, test } from "vitest";
import { nextStep } from "../../harnesses/steps.ts";
import { LogView } from "../../harnesses/view.ts";
import { mintEvent, position } from "../../session-store/ids.ts";
import { TestLog, USAGE } from "./logs.ts";

function viewOf(log: TestLog): LogView {
  const view = new LogView();
  expect(view.fold(log.stored)).toBe(true);
  return view;
}
const step = (log: TestLog, attempt = 1) => nextStep(viewOf(log), attempt);

describe("the next step", () => {
  test("of a session that nobody spoke to is nothing; of one with a message it is to run", () => {
    expect(step(new TestLog())).toEqual({ type: "nothing" });
    expect(step(new TestLog().message("hi", false))).toEqual({ type: "run" });
  });

  test("after a crash in a model request is to close the span, then to ask again", () => {
    const log = new TestLog().running().message("hi");
    const span = log.span();
    expect(step(log)).toEqual({ type: "close_span" });
    log.add({ id: mintEvent(), type: "span.model_request_end", model_request_start_id: span, is_error: true, model_usage: USAGE });
    expect(step(log)).toEqual({ type: "run" });
  });

  test("after a crash behind a final reply is to end the turn as the reply says", () => {
    const said = new TestLog().running().message("hi");
    said.reply([]);
    expect(step(said)).toEqual({ type: "end", stop: { type: "end_turn" } });
    const refused = new TestLog().running().message("hi");
    refused.reply([], [], "refusal");
    expect(step(refused)).toEqual({ type: "end", stop: { type: "refusal" } });
    const paused = new TestLog().running().message("hi");
    paused.reply([], [], "pause_turn");
    expect(step(paused)).toEqual({ type: "run" });
  });

  test("with open calls is to run what may run, then to wait for the client, then to ask the model", () => {
    const log = new TestLog().running().message("hi");
    const [allowed, asked, custom] = log.reply(["allow", "ask", "custom"]);
    if (!allowed || !asked || !custom) throw new Error("three calls");
    expect(step(log)).toEqual({ type: "calls" });
    log.result(allowed);
    expect(step(log)).toEqual({ type: "wait", ids: [asked, custom] });
    log.idle([asked, custom]);
    expect(step(log)).toEqual({ type: "wait", ids: [asked, custom] });
    log.confirm(asked, "allow");
    expect(step(log)).toEqual({ type: "calls" });
    log.add({ type: "log.applied", ref: position(log.stored.length), id: viewOf(log).confirmations[0]?.event.id ?? mintEvent() });
    expect(step(log)).toEqual({ type: "calls" });
    log.result(asked);
    log.add({ type: "log.received", event: { id: mintEvent(), type: "user.custom_tool_result", custom_tool_use_id: custom }, waits: false });
    expect(step(log)).toEqual({ type: "run" });
  });

  test("is the interrupt, whatever else waits; messages behind an open call do not count", () => {
    const log = new TestLog().running().message("hi");
    const [custom] = log.reply(["custom"]);
    log.message("more", false);
    expect(step(log)).toEqual({ type: "wait", ids: [custom] });
    expect(step(log.interrupt())).toEqual({ type: "interrupt" });
  });

  test("after five takes without progress is to give up; hand-overs are no crashes", () => {
    const log = new TestLog().running().message("hi");
    expect(step(log, 4)).toEqual({ type: "run" });
    expect(step(log, 5)).toEqual({ type: "give_up" });
    log.add({ id: mintEvent(), type: "session.status_rescheduled" });
    expect(step(log, 5)).toEqual({ type: "run" });
    const over = new TestLog().running().message("hi");
    over.reply([]);
    expect(step(over.idle(), 9)).toEqual({ type: "nothing" });
  });
});

describe("the view", () => {
  test("skips what it knows and refuses a gap", () => {
    const log = new TestLog().message("a").message("b");
    const view = new LogView();
    expect(view.fold(log.stored.slice(0, 2))).toBe(true);
    expect(view.fold(log.stored.slice(3))).toBe(false);
    expect(view.head).toBe(2);
    expect(view.fold(log.stored)).toBe(true);
    expect(view.head).toBe(5);
  });

  test("folded entry by entry is the view folded at once", () => {
    const log = new TestLog().running().message("hi");
    const [one] = log.reply(["allow", "ask"]);
    if (one) log.result(one);
    const piecewise = new LogView();
    for (const stored of log.stored) piecewise.fold([stored]);
    const whole = viewOf(log);
    expect([piecewise.openCalls, piecewise.waiting, piecewise.usage(0)]).toEqual([whole.openCalls, whole.waiting, whole.usage(0)]);
  });

  test("counts failures in a row until a reply, and usage and running time over turns", () => {
    const log = new TestLog().running().message("hi").error("retrying").error("retrying");
    expect(viewOf(log).failures).toBe(2);
    log.reply([]);
    expect(viewOf(log).failures).toBe(0);
    const runningAt = log.stored[1]?.at ?? 0;
    const idleAt = log.idle().stored.at(-1)?.at ?? 0;
    expect(viewOf(log).usage(idleAt + 99_000)).toMatchObject({
      input_tokens: 1,
      output_tokens: 2,
      cache_read_input_tokens: 3,
      cache_creation: { ephemeral_5m_input_tokens: 4, ephemeral_1h_input_tokens: 0 },
      active_seconds: (idleAt - runningAt) / 1_000,
    });
  });

  test("counts replies in a row that were cut off inside a call", () => {
    const log = new TestLog().running().message("hi");
    for (const at of [1, 2]) {
      const [call] = log.reply(["allow"], [], "max_tokens");
      if (call) log.result(call);
      expect(viewOf(log).truncatedInRow).toBe(at);
    }
    log.reply([]);
    expect(viewOf(log).truncatedInRow).toBe(0);
  });
});
