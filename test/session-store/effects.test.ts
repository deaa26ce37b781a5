// What entries come to (session-store/effects.ts): X1, X2, and how a batch folds.

import { describe, expect, test } from "vitest";
import { effectsOf, effectsOfAll } from "../../session-store/effects.ts";
import type { Entry } from "../../session-store/entry.ts";
import { mintEvent, position } from "../../session-store/ids.ts";
import {
  answer,
  asks,
  calls,
  confirmation,
  created,
  idle,
  interrupt,
  message,
  reply,
  rescheduled,
  result,
  retitled,
  running,
  says,
} from "../drivers/suite/kit.ts";

const flags = (entry: Entry) => {
  const { waiting, open, isGate, wakes, isUrgent, isProgress } = effectsOf(entry);
  return { waiting, open, isGate, wakes, isUrgent, isProgress };
};
const none = { waiting: 0, open: 0, isGate: false, wakes: false, isUrgent: false, isProgress: false };
const call = mintEvent();

describe("effects", () => {
  test("what a client says waits and wakes, and only what changes admission is a gate", () => {
    const woken = { ...none, waiting: 1, wakes: true, isProgress: true };
    expect(flags(message())).toEqual(woken);
    expect(flags(interrupt())).toEqual({ ...woken, isGate: true, isUrgent: true });
    expect(flags(confirmation(call))).toEqual({ ...woken, isGate: true, isUrgent: true });
    expect(flags(answer(call))).toEqual({ ...none, open: -1, isGate: true, wakes: true, isUrgent: true, isProgress: true });
    expect(flags(retitled("x"))).toEqual({ ...none, isGate: true });
  });

  test("an interrupt that has no effect neither waits nor wakes", () => {
    expect(flags({ ...interrupt(), waits: false })).toEqual({ ...none, isGate: true });
  });

  test("calls open and results close, and replies and results are progress", () => {
    expect(flags(asks(call))).toEqual({ ...none, open: 1, isGate: true });
    expect(flags(calls(call))).toEqual({ ...none, open: 1, isGate: true });
    expect(flags(result(call))).toEqual({ ...none, open: -1, isGate: true, isProgress: true });
    expect(flags(reply())).toEqual({ ...none, isProgress: true });
    expect(flags(says("x"))).toEqual(none);
    expect(flags({ type: "log.applied", ref: position(3), id: mintEvent() })).toEqual({ ...none, waiting: -1 });
  });

  test("a batch is folded in order: the last word on a field stands", () => {
    expect(effectsOfAll([running(), idle()])).toMatchObject({ stamp: [], set: { stop_reason: '{"type":"end_turn"}' } });
    expect(effectsOfAll([idle(), running()])).toMatchObject({ stamp: ["running_since"], set: {} });
    expect(effectsOfAll([rescheduled(), running()])).toMatchObject({ set: {}, drop: ["rescheduling", "stop_reason"] });
    expect(effectsOfAll([running(), rescheduled()])).toMatchObject({ set: { rescheduling: "true" } });
  });

  test("a call that opens and closes in one batch leaves nothing to set", () => {
    const folded = effectsOfAll([asks(call), result(call)]);
    expect(folded).toMatchObject({ set: {}, open: 0, isGate: true, gateIndex: 1 });
    expect(folded.drop).toContain(`call:${call}`);
  });

  test("fields named for an entry's own position carry its index in the batch", () => {
    const [one, other] = [message("a"), message("b")];
    const folded = effectsOfAll([created(), one, other, retitled("x")]);
    expect(Object.keys(folded.set).filter((name) => name.startsWith("pending:"))).toEqual(["pending:@1", "pending:@2"]);
    expect(folded).toMatchObject({ waiting: 2, wakes: true, gateIndex: 3 });
  });

  test("a batch of nothing comes to nothing", () => {
    expect(effectsOfAll([])).toEqual({ ...none, set: {}, drop: [], stamp: [], gateIndex: -1 });
  });

  test("an update sets only what it names, null included", () => {
    expect(effectsOf({ id: mintEvent(), type: "session.updated", title: null }).set).toEqual({ title: null });
    expect(effectsOf({ id: mintEvent(), type: "session.updated", metadata: { a: "1" } }).set).toEqual({ metadata: { a: "1" } });
  });
});
