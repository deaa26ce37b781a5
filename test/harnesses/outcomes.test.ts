// Outcomes as a host sees them: the next step at any entry of their logs (steps.ts T1 T5), what they count for (outcomes.ts), and what the agent is
// told of them (claude/transcript.ts C3).

import { describe, expect, test } from "vitest";
import { transcriptOf } from "../../harnesses/claude/transcript.ts";
import { nextStep } from "../../harnesses/steps.ts";
import { LogView } from "../../harnesses/view.ts";
import type { EvaluationResult } from "../../session-store/events/brain.ts";
import { mintEvent, outcomeOf } from "../../session-store/ids.ts";
import { TestLog, USAGE } from "./logs.ts";

function viewOf(log: TestLog, until = log.stored.length): LogView {
  const view = new LogView();
  expect(view.fold(log.stored.slice(0, until))).toBe(true);
  return view;
}
const step = (log: TestLog, attempt = 1) => nextStep(viewOf(log), attempt).type;
const EVALUATE = "evaluate";

describe("the next step", () => {
  test("of an idle session with an outcome is to run; when its agent stops, to have it judged", () => {
    const log = new TestLog();
    const of = log.outcome("good", { isTakenUp: false });
    expect(step(log)).toBe("run");
    log.running().add({ type: "log.outcome", id: of, outcome_id: outcomeOf(of) });
    expect(step(log)).toBe("run");
    log.reply([]);
    expect(step(log)).toBe(EVALUATE);
  });

  test("in an evaluation is to go on with it, whatever was said meanwhile; an interrupt and a dead session come first", () => {
    const log = new TestLog().running();
    const of = log.outcome();
    log.reply([]);
    log.evaluation(of);
    expect(step(log)).toBe(EVALUATE);
    log.add({ id: mintEvent(), type: "span.outcome_evaluation_ongoing", outcome_id: outcomeOf(of), iteration: 0 });
    expect(step(log.message("and this", false))).toBe(EVALUATE);
    expect(step(log.error("retrying").add({ id: mintEvent(), type: "session.status_rescheduled" }))).toBe(EVALUATE);
    expect(step(log, 6)).toBe("give_up");
    expect(step(log.interrupt())).toBe("interrupt");
    expect(step(log.add({ id: mintEvent(), type: "session.status_terminated" }))).toBe("nothing");
  });

  test.each<[EvaluationResult, string, string]>([
    ["needs_revision", "run", EVALUATE],
    ["max_iterations_reached", "run", "end"],
    ["satisfied", "end", "end"],
    ["failed", "end", "end"],
  ])("after the verdict %s is to %s, and after one more reply to %s", (result, next, last) => {
    const log = new TestLog().running();
    const of = log.outcome();
    log.reply([]);
    log.verdict(of, result, { start: log.evaluation(of) });
    expect(step(log)).toBe(next);
    log.reply([]);
    expect(step(log)).toBe(last);
  });

  test("with open calls is what it is without an outcome; a model that refused is not judged", () => {
    const log = new TestLog().running();
    log.outcome();
    const [asked] = log.reply(["ask"]);
    expect(step(log)).toBe("wait");
    if (asked) log.idle([asked]).interrupt();
    expect(step(log)).toBe("interrupt");
    const refused = new TestLog().running();
    refused.outcome();
    refused.reply([], [], "refusal");
    expect(nextStep(viewOf(refused), 1)).toEqual({ type: "end", stop: { type: "refusal" } });
  });

  test("of a session at rest is nothing, unless an outcome came behind an interrupt", () => {
    const log = new TestLog().running();
    const of = log.outcome();
    log.reply([]);
    log.verdict(of, "interrupted").idle();
    expect(step(log)).toBe("nothing");
    log.outcome("other", { isTakenUp: false });
    expect(step(log)).toBe("run");
  });
});

describe("the view", () => {
  test("counts what an evaluation took once, with its end, and the failures before it no more", () => {
    const log = new TestLog().running();
    const of = log.outcome();
    log.reply([]);
    const start = log.evaluation(of);
    log.add({ type: "log.grading", span: start, usage: USAGE }).error("retrying");
    expect([viewOf(log).outcomes.current?.spent, viewOf(log).failures]).toEqual([USAGE, 1]);
    expect(viewOf(log).usage(0).output_tokens).toBe(USAGE.output_tokens);
    log.verdict(of, "needs_revision", { start });
    const { outcomes, failures } = viewOf(log);
    expect(outcomes.current).toMatchObject({ iteration: 1, evaluation: null, spent: { output_tokens: 0 } });
    expect([failures, viewOf(log).usage(0).output_tokens]).toEqual([0, 2 * USAGE.output_tokens]);
  });

  test("gives every iteration the limits of a turn", () => {
    const log = new TestLog().running();
    const of = log.outcome();
    const [call] = log.reply(["allow"]);
    if (call) log.result(call);
    expect(viewOf(log).rounds).toBe(1);
    log.reply([]);
    log.verdict(of, "needs_revision", { start: log.evaluation(of) });
    expect(viewOf(log).rounds).toBe(0);
  });
});

describe("what the agent is told", () => {
  const textsOf = (log: TestLog, until?: number) =>
    transcriptOf(log.entries.slice(0, until)).map(({ role, content }) => `${role}: ${JSON.stringify(content)}`);

  test("is the outcome where it was taken up and the verdict where it was given, and nothing of it moves", () => {
    const log = new TestLog().running().message("hello");
    const during = log.outcome("the rubric", { isTakenUp: false });
    log.reply([], [{ type: "text", text: "hi" }]);
    const asked = textsOf(log);
    expect(asked.join()).not.toContain("the rubric");
    log.add({ type: "log.outcome", id: during, outcome_id: outcomeOf(during) });
    const prefixes = [asked, textsOf(log)];
    log.reply([], [{ type: "text", text: "a draft" }]);
    log.verdict(during, "needs_revision", { start: log.evaluation(during), explanation: "too short" });
    prefixes.push(textsOf(log));
    log.message("and hurry");
    log.reply([], [{ type: "text", text: "a report" }]);
    log.verdict(during, "satisfied", { start: log.evaluation(during, 1), iteration: 1, explanation: "fine" });
    const whole = textsOf(log);
    expect(whole).toEqual([
      expect.stringContaining("hello"),
      expect.stringContaining("hi"),
      expect.stringMatching(/^user:.*a report.*the rubric/),
      expect.stringContaining("a draft"),
      expect.stringMatching(/^user:.*too short.*and hurry/),
      expect.stringContaining("a report"),
      expect.stringMatching(/^user:.*fine/),
    ]);
    for (const prefix of prefixes.slice(0, 2)) expect(whole.slice(0, prefix.length)).toEqual(prefix);
    // The id of an outcome says nothing to a model, and differs in every session.
    expect(whole.join()).not.toContain("outc_");
  });
});
