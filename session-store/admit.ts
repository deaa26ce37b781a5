// May this come now? One pure function over a session's projection and the request, folded event by event (contract §6.1, §8.5, §10, §11).
//
//   A1  All or nothing: the first event that may not come refuses the request.
//   A2  Only what the last `requires_action` idle named blocks; once each of those is answered, or an interrupt is on its way, nothing does.
//   A3  After an interrupt every open call is as good as closed: late answers are refused.
//   A4  At most WAITING_MAX events wait in a session; an interrupt or an answer is always taken.
//   A5  One outcome at a time: a second one is refused until the first has ended, or an interrupt that ends it is on its way. A session has at most
//       OUTCOMES_MAX of them.

import type { OutsideEntry } from "./entry.ts";
import type { ClientEvent, ClientInput } from "./events/client.ts";
import { waits } from "./events/client.ts";
import { primaryThread } from "./ids.ts";
import { Refusal } from "./refusal.ts";
import type { SessionRecord } from "./session.ts";
import { lastStopOf, openCalls, outcomesOf, pendingOf, statusOf } from "./session.ts";

/** A4 */
export const WAITING_MAX = 1_000;
/** A5 */
export const OUTCOMES_MAX = 200;

export interface Admission {
  readonly entries: readonly OutsideEntry[];
  /** It holds only while the session stays idle. */
  readonly onlyIdle: boolean;
}

/** Refuses (`invalid_request`), or gives the entries to receive. The caller passes `record.gate` on to the store. */
export function admit(record: SessionRecord, events: readonly ClientEvent[]): Admission {
  const status = statusOf(record);
  if (status === "terminated") throw new Refusal("invalid_request", `Session ${record.id} is terminated and takes no events.`);

  const calls = new Map(openCalls(record.projection).map((call) => [call.id as string, call]));
  const answered = new Set([...calls.values()].filter((call) => call.answered !== null).map((call) => call.id as string));
  const isIdle = status === "idle" && calls.size === 0;
  const pending = pendingOf(record.projection);
  let isInterrupted = pending.some(({ type }) => type === "user.interrupt");
  let onlyIdle = false;

  const messages = events.filter(({ type }) => type === "user.message" || type === "system.message").length;
  if (messages > 0 && pending.length + messages > WAITING_MAX) throw new Refusal("too_many_waiting");

  const outcomes = outcomesOf(record.projection);
  const interruptedAt = pending.findLast(({ type }) => type === "user.interrupt")?.position ?? 0;
  /** A5 */
  let active = outcomes.find(({ completedAt, position }) => completedAt === null && position > interruptedAt)?.outcome_id ?? null;
  let outcomesLeft = OUTCOMES_MAX - outcomes.length;

  const stop = lastStopOf(record);
  const blocking = () => (isInterrupted || stop?.type !== "requires_action" ? [] : stop.event_ids.filter((id) => calls.has(id) && !answered.has(id)));

  const entries: OutsideEntry[] = [];
  for (const [index, event] of events.entries()) {
    switch (event.type) {
      case "system.message":
        refuseMisplacedSystem(events, index, status === "idle");
        refuseBlocked(event, index, blocking());
        break;
      case "user.message":
        refuseBlocked(event, index, blocking());
        break;
      case "user.interrupt":
        if (event.session_thread_id != null && event.session_thread_id !== primaryThread(record.id))
          throw new Refusal("invalid_request", `events.${index}.session_thread_id: no such thread in this session`);
        if (isIdle && !events.slice(0, index).some(({ type }) => type !== "user.interrupt")) {
          entries.push({ type: "log.received", event, waits: false });
          onlyIdle = true;
          continue;
        }
        isInterrupted = true;
        active = null;
        break;
      case "user.define_outcome":
        refuseBlocked(event, index, blocking());
        if (active !== null)
          throw new Refusal("invalid_request", `events.${index}: outcome ${active} is active; another one can be defined when it has ended`);
        if (outcomesLeft <= 0) throw new Refusal("invalid_request", `events.${index}: at most ${OUTCOMES_MAX} outcomes a session`);
        outcomesLeft -= 1;
        active = event.outcome_id;
        break;
      case "user.tool_confirmation": {
        if (event.result === "allow" && event.deny_message != null)
          throw new Refusal("invalid_request", `events.${index}.deny_message: only allowed with result "deny"`);
        const call = calls.get(event.tool_use_id);
        if (!call || call.kind === "custom" || isInterrupted) throw noMatch("tool_use_id", event.tool_use_id, "agent.tool_use");
        if (call.kind !== "ask") throw new Refusal("invalid_request", `tool_use_id "${event.tool_use_id}" does not wait for a confirmation`);
        if (answered.has(call.id)) throw new Refusal("invalid_request", `tool_use_id "${event.tool_use_id}" was answered already`);
        answered.add(call.id);
        break;
      }
      case "user.custom_tool_result": {
        const call = calls.get(event.custom_tool_use_id);
        if (call?.kind !== "custom" || isInterrupted) throw noMatch("custom_tool_use_id", event.custom_tool_use_id, "agent.custom_tool_use");
        calls.delete(call.id);
        break;
      }
      case "user.tool_result":
        throw new Refusal("invalid_request", `events.${index}: \`user.tool_result\` is only taken in sessions on a self-hosted environment`);
    }
    entries.push({ type: "log.received", event, waits: waits(event) });
  }
  return { entries, onlyIdle };
}

function refuseBlocked(event: ClientInput, index: number, ids: readonly string[]): void {
  if (ids.length === 0) return;
  throw new Refusal(
    "invalid_request",
    `Invalid ${event.type} event at events[${index}]: waiting on responses to events [${ids.join(", ")}]; only \`user.tool_confirmation\`, ` +
      "`user.custom_tool_result`, `user.tool_result`, or `user.interrupt` may be sent",
  );
}

function refuseMisplacedSystem(events: readonly ClientInput[], index: number, isIdle: boolean): void {
  const before = events[index - 1]?.type;
  const follows = before === "user.message" || before === "user.tool_result" || before === "user.custom_tool_result";
  if (index !== events.length - 1 || !(follows || (events.length === 1 && isIdle)))
    throw new Refusal(
      "invalid_request",
      `events.${index}: one \`system.message\` a request, last, after a user.message or a tool result, or alone while idle`,
    );
}

function noMatch(field: string, id: string, type: string): Refusal {
  return new Refusal("invalid_request", `${field} "${id}" does not match any \`${type}\` event in this session that waits for an answer`);
}
