// Admission (session-store/admit.ts): what may be sent when.

import { describe, expect, test } from "vitest";
import { admit, WAITING_MAX } from "../../session-store/admit.ts";
import type { ClientEvent } from "../../session-store/events/client.ts";
import type { EventId, Fence, SessionId } from "../../session-store/ids.ts";
import { mintEvent, position } from "../../session-store/ids.ts";
import type { Projection, SessionRecord } from "../../session-store/session.ts";

const CALL = "sevt_call" as EventId;

function record(projection: Projection, dueAt: number | null = null): SessionRecord {
  return {
    id: "sesn_x" as SessionId,
    workspace: "default",
    createdAt: 1,
    updatedAt: 1,
    head: position(5),
    gate: position(5),
    fence: 1 as Fence,
    isHeld: false,
    dueAt,
    projection,
  };
}
const waiting = (kind: "custom" | "ask") =>
  record({ [`call:${CALL}`]: { kind, name: "look_up" }, stop_reason: { type: "requires_action", event_ids: [CALL] } });
const message: ClientEvent = { id: mintEvent(), type: "user.message", content: [{ type: "text", text: "hi" }] };
const interrupt: ClientEvent = { id: mintEvent(), type: "user.interrupt" };
const answer: ClientEvent = { id: mintEvent(), type: "user.custom_tool_result", custom_tool_use_id: CALL, content: [] };
const confirm: ClientEvent = { id: mintEvent(), type: "user.tool_confirmation", tool_use_id: CALL, result: "allow" };

describe("admission", () => {
  test("a message to an idle session is received and waits for a brain", () => {
    expect(admit(record({}), [message])).toEqual({ entries: [{ type: "log.received", event: message, waits: true }], onlyIdle: false });
  });

  test("a message is refused while a call waits for a client, and the refusal names the call", () => {
    expect(() => admit(waiting("custom"), [message])).toThrow(CALL);
  });

  test("an answer is processed on receipt, and a message may follow it in the same request", () => {
    expect(admit(waiting("custom"), [answer, message]).entries).toEqual([
      { type: "log.received", event: answer, waits: false },
      { type: "log.received", event: message, waits: true },
    ]);
  });

  test("a second answer to the same call is refused, in one request and in two", () => {
    expect(() => admit(waiting("custom"), [answer, answer])).toThrow("does not match");
    const answered = record({ stop_reason: { type: "requires_action", event_ids: [CALL] } });
    expect(() => admit(answered, [answer])).toThrow("does not match");
  });

  test("after an interrupt nothing is blocked and late answers are refused", () => {
    const interrupted = record({ ...waiting("custom").projection, "pending:6": { id: interrupt.id, type: "user.interrupt" } }, 1);
    expect(admit(interrupted, [message]).entries).toHaveLength(1);
    expect(() => admit(interrupted, [answer])).toThrow("does not match");
    expect(admit(waiting("custom"), [interrupt, message]).entries).toHaveLength(2);
  });

  test("a confirmation is taken once, for a call that asks, and deny_message goes with deny only", () => {
    expect(admit(waiting("ask"), [confirm]).entries).toHaveLength(1);
    expect(() => admit(waiting("ask"), [confirm, confirm])).toThrow("answered already");
    expect(() => admit(waiting("custom"), [confirm])).toThrow("does not match any `agent.tool_use`");
    expect(() => admit(waiting("ask"), [{ ...confirm, deny_message: "no" } as ClientEvent])).toThrow("deny_message");
  });

  test("an interrupt on an idle session with nothing open is done with on receipt, as long as it stays idle", () => {
    expect(admit(record({}), [interrupt])).toEqual({ entries: [{ type: "log.received", event: interrupt, waits: false }], onlyIdle: true });
  });

  test("a session whose queue is full takes interrupts, and no more messages", () => {
    const full = record(
      Object.fromEntries(Array.from({ length: WAITING_MAX }, (_, i) => [`pending:${i + 1}`, { id: mintEvent(), type: "user.message" }])),
      1,
    );
    expect(() => admit(full, [message])).toThrow(expect.objectContaining({ code: "too_many_waiting" }));
    expect(admit(full, [interrupt]).entries).toHaveLength(1);
  });

  test("a terminated session takes nothing", () => {
    expect(() => admit(record({ terminated: true }), [message])).toThrow("terminated");
  });
});
