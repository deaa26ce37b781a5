// From the log to the wire: what clients see of an entry (contract §6.2).
//
//   T1  A wire event shows its entry's time as `processed_at`. A client's event that waits shows null until it is applied, then the time of that.
//   T2  Entries of ours (`log.*`) never leave as they are.

import type { Entry, Stored } from "../../session-store/entry.ts";
import type { ClientEvent } from "../../session-store/events/client.ts";
import type { Position, SessionId } from "../../session-store/ids.ts";
import { position } from "../../session-store/ids.ts";
import type { SessionStore } from "../../session-store/store.ts";

/** What a client can send. */
export const CLIENT_TYPES = [
  "user.message",
  "user.interrupt",
  "user.tool_confirmation",
  "user.custom_tool_result",
  "user.tool_result",
  "user.define_outcome",
  "system.message",
] as const;

/** What this server makes. */
export const SERVER_TYPES = [
  "agent.message",
  "agent.thinking",
  "agent.tool_use",
  "agent.tool_result",
  "agent.mcp_tool_use",
  "agent.mcp_tool_result",
  "agent.custom_tool_use",
  "session.status_running",
  "session.status_rescheduled",
  "session.status_terminated",
  "session.status_idle",
  "session.error",
  "session.updated",
  "session.usage",
  "session.thread_status_running",
  "session.thread_status_rescheduled",
  "session.thread_status_terminated",
  "session.thread_status_idle",
  "span.model_request_start",
  "span.model_request_end",
  "span.outcome_evaluation_start",
  "span.outcome_evaluation_ongoing",
  "span.outcome_evaluation_end",
] as const;

/** Types of the contract that nothing here makes yet: a filter may name them, and finds nothing. */
const OTHER_TYPES = [
  "agent.thread_message_sent",
  "agent.thread_message_received",
  "agent.thread_context_compacted",
  "session.deleted",
  "session.thread_created",
] as const;

export const EVENT_TYPES = [...CLIENT_TYPES, ...SERVER_TYPES, ...OTHER_TYPES] as const;

export interface WireEvent {
  readonly id: string;
  readonly type: string;
  readonly processed_at: string | null;
}

/** RFC 3339 in UTC, with milliseconds. */
export const rfc3339 = (ms: number): string => new Date(ms).toISOString();

/** Wire events as they lie in the log. */
export type WireEntry = Exclude<Entry, { readonly type: `log.${string}` }>;
export const isWireEntry = (entry: Entry): entry is WireEntry => !entry.type.startsWith("log.");

/** An entry that is a wire event. T1 */
export function wireOfEntry(entry: WireEntry, at: number): WireEvent {
  if (entry.type === "session.updated" && entry.agent) return { ...entry, agent: wireOfAgent(entry.agent), processed_at: rfc3339(at) } as WireEvent;
  return { ...entry, processed_at: rfc3339(at) };
}

/** A client's event; `at` is null while it waits. T1 */
export function wireOfClient(event: ClientEvent, at: number | null): WireEvent {
  return { ...event, processed_at: at === null ? null : rfc3339(at) };
}

/** The agent as sessions show it. */
export const wireOfAgent = (agent: object): object => ({ ...agent, execution_identity: { type: "service_account" } });

export interface Received {
  readonly position: Position;
  readonly at: number;
  readonly event: ClientEvent;
  readonly waits: boolean;
}

export function receivedOf({ position, at, entry }: Stored): Received | null {
  return entry.type === "log.received" ? { position, at, event: entry.event, waits: entry.waits } : null;
}

/** Received events by their positions: a few reads over the range that they lie in. Events are applied in order of arrival, so it is a short one. */
export async function readReceived(store: SessionStore, id: SessionId, wanted: readonly number[]): Promise<ReadonlyMap<number, Received>> {
  const found = new Map<number, Received>();
  const left = new Set(wanted);
  if (left.size === 0) return found;
  const before = position(Math.max(...wanted) + 1);
  let after = position(Math.min(...wanted) - 1);
  while (left.size > 0) {
    const page = await store.getEvents(id, { after, before, types: ["log.received"] });
    const last = page.at(-1);
    if (!last) throw new Error(`a log refers to ${left.size} received events that it does not hold`);
    for (const stored of page) {
      const received = receivedOf(stored);
      if (received && left.delete(stored.position)) found.set(stored.position, received);
    }
    after = last.position;
  }
  return found;
}
