// Outcomes in a session's projection (effects.ts X1 X3, session.ts) and at its door (admit.ts A5).

import { describe, expect, test } from "vitest";
import { admit, OUTCOMES_MAX } from "../../session-store/admit.ts";
import { effectsOfAll } from "../../session-store/effects.ts";
import type { Entry } from "../../session-store/entry.ts";
import type { EvaluationResult } from "../../session-store/events/brain.ts";
import { ClientInput, type DefineOutcome, eventOf } from "../../session-store/events/client.ts";
import type { Fence, SessionId } from "../../session-store/ids.ts";
import { mintEvent, position } from "../../session-store/ids.ts";
import { outcomesOf, type Projection, type SessionRecord } from "../../session-store/session.ts";

const USAGE = { input_tokens: 1, output_tokens: 1, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 };
const INPUT = { type: "user.define_outcome", description: "a report", rubric: { type: "text", content: "good" } } as const;

const define = (): DefineOutcome => eventOf(mintEvent(), INPUT) as DefineOutcome;
const received = (event: Extract<Entry, { type: "log.received" }>["event"], waits = false): Entry => ({ type: "log.received", event, waits });
const begun = ({ id, outcome_id }: DefineOutcome): Entry => ({ type: "log.outcome", id, outcome_id });
const started = ({ outcome_id }: DefineOutcome, iteration: number): Entry => ({
  id: mintEvent(),
  type: "span.outcome_evaluation_start",
  outcome_id,
  iteration,
});
const ended = ({ outcome_id }: DefineOutcome, result: EvaluationResult, iteration = 0): Entry => ({
  id: mintEvent(),
  type: "span.outcome_evaluation_end",
  outcome_evaluation_start_id: "",
  outcome_id,
  iteration,
  result,
  explanation: `${result} ${iteration}`,
  usage: USAGE,
});
const interrupt = () => ({ id: mintEvent(), type: "user.interrupt" }) as const;

/** As a driver keeps it: entry after entry, each at its position and a time of ten times that. */
function projectionOf(entries: readonly Entry[]): Projection & { waiting: number } {
  const kept: Record<string, unknown> & { waiting: number } = { waiting: 0 };
  for (const [index, entry] of entries.entries()) {
    const { set, drop, stamp, waiting } = effectsOfAll([entry]);
    for (const name of drop) delete kept[name];
    for (const [name, json] of Object.entries(set)) kept[name.replace(/@0$/, String(index + 1))] = JSON.parse(json);
    for (const name of stamp) kept[name] = (index + 1) * 10;
    kept.waiting += waiting;
  }
  return kept;
}

const recordOf = (entries: readonly Entry[], dueAt: number | null = 1): SessionRecord => ({
  id: "sesn_x" as SessionId,
  workspace: "default",
  createdAt: 1,
  updatedAt: 1,
  head: position(entries.length),
  gate: position(entries.length),
  fence: 1 as Fence,
  isHeld: false,
  dueAt,
  projection: projectionOf(entries),
});

describe("an outcome", () => {
  test("is stored with its id and its iterations, and limits hold at their exact values", () => {
    const id = mintEvent();
    expect(eventOf(id, INPUT)).toEqual({ id, ...INPUT, max_iterations: 3, outcome_id: id.replace("sevt_", "outc_") });
    const takes = (fields: object) => ClientInput.safeParse({ ...INPUT, ...fields }).success;
    const text = (length: number) => ({ rubric: { type: "text", content: "x".repeat(length) } });
    for (const fine of [
      text(1),
      text(262_144),
      { description: "x".repeat(65_536) },
      { max_iterations: 1 },
      { max_iterations: 20 },
      { max_iterations: null },
    ])
      expect(takes(fine)).toBe(true);
    for (const over of [
      text(0),
      text(262_145),
      { description: "x".repeat(65_537) },
      { max_iterations: 0 },
      { max_iterations: 21 },
      { max_iterations: 1.5 },
    ])
      expect(takes(over)).toBe(false);
    for (const odd of [{ description: "" }, { rubric: undefined }, { rubric: "good" }, { rubric: { type: "file", file_id: "f" } }, { bogus: 1 }])
      expect(takes(odd)).toBe(false);
  });

  test("goes through its states, and each says what it came to last", () => {
    const one = define();
    const log = [
      received(one),
      begun(one),
      started(one, 0),
      ended(one, "needs_revision", 0),
      started(one, 1),
      ended(one, "max_iterations_reached", 1),
    ];
    const states = log.map((_, index) => outcomesOf(projectionOf(log.slice(0, index + 1)))[0]);
    expect(states.map((state) => [state?.result, state?.iteration, state?.explanation, state?.completedAt])).toEqual([
      ["pending", 0, null, null],
      ["running", 0, null, null],
      ["evaluating", 0, null, null],
      ["running", 1, "needs_revision 0", null],
      ["evaluating", 1, "needs_revision 0", null],
      ["max_iterations_reached", 1, "max_iterations_reached 1", 60],
    ]);
    expect(log.map((_, index) => projectionOf(log.slice(0, index + 1)).waiting)).toEqual([1, 0, 0, 0, 0, 0]);
  });

  test("that was interrupted keeps what its grader said last", () => {
    const one = define();
    const log = [received(one), begun(one), ended(one, "needs_revision"), ended(one, "interrupted", 1)];
    expect(outcomesOf(projectionOf(log))).toMatchObject([{ result: "interrupted", iteration: 1, explanation: "needs_revision 0", completedAt: 40 }]);
  });
});

describe("admission", () => {
  test("takes one at a time: a second one when the first has ended, whatever way", () => {
    const one = define();
    expect(admit(recordOf([], null), [one])).toEqual({ entries: [received(one)], onlyIdle: false });
    const active = [received(one), begun(one), ended(one, "needs_revision")];
    for (const log of [active.slice(0, 1), active.slice(0, 2), active]) expect(() => admit(recordOf(log), [define()])).toThrow(one.outcome_id);
    for (const result of ["satisfied", "failed", "max_iterations_reached", "interrupted"] as const)
      expect(admit(recordOf([...active, ended(one, result, 1)]), [define()]).entries).toHaveLength(1);
    expect(() => admit(recordOf([], null), [one, define()])).toThrow("events.1");
  });

  test("an interrupt on its way makes room for one other", () => {
    const [one, other] = [define(), define()];
    expect(admit(recordOf([received(one)]), [interrupt(), other]).entries).toHaveLength(2);
    const log = [received(one), begun(one), received(interrupt(), true)];
    expect(admit(recordOf(log), [other]).entries).toHaveLength(1);
    expect(() => admit(recordOf([...log, received(other)]), [define()])).toThrow(other.outcome_id);
  });

  test("an interrupt that follows an outcome in one request is one of a session that works", () => {
    const [one, stop] = [define(), interrupt()];
    expect(admit(recordOf([], null), [one, stop])).toEqual({ entries: [received(one), received(stop, true)], onlyIdle: false });
  });

  test("refuses it while a call waits for a client, and beyond the number that a session has", () => {
    const call = mintEvent();
    const calls: Entry[] = [
      { id: call, type: "agent.custom_tool_use", name: "look_up", input: {} },
      { id: mintEvent(), type: "session.status_idle", stop_reason: { type: "requires_action", event_ids: [call] }, stop_details: null },
    ];
    expect(() => admit(recordOf(calls, null), [define()])).toThrow("Invalid user.define_outcome event at events[0]");
    const many = Array.from({ length: OUTCOMES_MAX }, define).flatMap((one) => [received(one), begun(one), ended(one, "satisfied")]);
    expect(admit(recordOf(many.slice(3)), [define()]).entries).toHaveLength(1);
    expect(() => admit(recordOf(many), [define()])).toThrow(`at most ${OUTCOMES_MAX} outcomes`);
  });
});
