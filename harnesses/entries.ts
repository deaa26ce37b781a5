// The entries that a host writes, made in one place: status pairs, endings, applied events, results.

import type { BrainEntry } from "../session-store/entry.ts";
import type { ModelUsage, SessionError, StopDetails, StopReason } from "../session-store/events/brain.ts";
import type { ResultBlock } from "../session-store/events/content.ts";
import type { EventId, SessionId } from "../session-store/ids.ts";
import { mintEvent, primaryThread } from "../session-store/ids.ts";
import { NO_TOKENS } from "./outcomes.ts";
import type { Call, LogView, Waiting } from "./view.ts";

export const INTERRUPTED_TEXT = "Tool execution was interrupted before completion. Please retry.";

/** The session as its status events name it. */
export interface Named {
  readonly id: SessionId;
  readonly view: LogView;
}

const thread = ({ id, view }: Named) => ({ session_thread_id: primaryThread(id), agent_name: view.agent.name });

/** What opens a turn, or a retry: nothing while the session is running already. */
export function runningEntries(session: Named): readonly BrainEntry[] {
  if (session.view.status === "running") return [];
  return [
    { id: mintEvent(), type: "session.status_running" },
    { id: mintEvent(), type: "session.thread_status_running", ...thread(session) },
  ];
}

export function idleEntries(session: Named, stop: StopReason, details: StopDetails, now: number): readonly BrainEntry[] {
  return [
    { id: mintEvent(), type: "session.thread_status_idle", ...thread(session), stop_reason: stop, stop_details: details },
    { id: mintEvent(), type: "session.usage", usage: session.view.usage(now), budget: null },
    { id: mintEvent(), type: "session.status_idle", stop_reason: stop, stop_details: details },
  ];
}

export function rescheduledEntries(session: Named): readonly BrainEntry[] {
  return [
    { id: mintEvent(), type: "session.thread_status_rescheduled", ...thread(session) },
    { id: mintEvent(), type: "session.status_rescheduled" },
  ];
}

export function appliedEntries(waiting: readonly Waiting[]): readonly BrainEntry[] {
  return waiting.map(({ position, event }) => {
    if (event.type === "user.define_outcome") return { type: "log.outcome", id: event.id, outcome_id: event.outcome_id };
    return { type: "log.applied", ref: position, id: event.id };
  });
}

export function spanEnd(span: EventId, usage: ModelUsage | "error"): BrainEntry {
  const isError = usage === "error";
  return {
    id: mintEvent(),
    type: "span.model_request_end",
    model_request_start_id: span,
    is_error: isError,
    model_usage: isError ? NO_TOKENS : tokensOf(usage),
  };
}

function tokensOf({ input_tokens, output_tokens, cache_read_input_tokens, cache_creation_input_tokens }: ModelUsage): ModelUsage {
  return { input_tokens, output_tokens, cache_read_input_tokens, cache_creation_input_tokens };
}

/** Closes the open span, if there is one. */
export function spanFailed(view: LogView): readonly BrainEntry[] {
  return view.openSpan === null ? [] : [spanEnd(view.openSpan, "error")];
}

export function errorEntry(error: Omit<SessionError, "retry_status">, retry: SessionError["retry_status"]["type"]): BrainEntry {
  return { id: mintEvent(), type: "session.error", error: { ...error, message: error.message.toWellFormed(), retry_status: { type: retry } } };
}

export function resultEntry(call: Pick<Call, "id" | "kind" | "server">, content: readonly ResultBlock[], isError: boolean): BrainEntry {
  const id = mintEvent();
  if (call.server !== null) return { id, type: "agent.mcp_tool_result", mcp_tool_use_id: call.id, content, is_error: isError };
  return call.kind === "custom"
    ? { id, type: "user.custom_tool_result", custom_tool_use_id: call.id, content, is_error: isError }
    : { id, type: "agent.tool_result", tool_use_id: call.id, content, is_error: isError };
}

export function errorResult(call: Pick<Call, "id" | "kind" | "server">, text: string): BrainEntry {
  return resultEntry(call, [{ type: "text", text: text.toWellFormed() }], true);
}
