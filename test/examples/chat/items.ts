// What a chat shows: a few kinds of items, each made of one event of the session. Everything else in a log is left out, so that neither the
// terminal nor the page ever gets more of it than it shows.

import type Anthropic from "@anthropic-ai/sdk";

export type StreamEvent = Anthropic.Beta.Sessions.BetaManagedAgentsStreamSessionEvents;
type Events = Anthropic.Beta.Sessions.Events.BetaManagedAgentsSessionEventType;

/** Longer results are cut in a chat; the agent has seen all of it. */
const TEXT_CHARS_MAX = 20_000;

/** What happened, in the order of the log. `id` is the event's. */
export type Item =
  /** `isWaiting`: sent while the agent is busy. It comes again, with the same id, when it takes its place. */
  | { readonly type: "user"; readonly id: string; readonly text: string; readonly isWaiting: boolean }
  | { readonly type: "agent"; readonly id: string; readonly text: string }
  /** `needs`: what it can't run without: someone's permission, or this application's answer. */
  | { readonly type: "call"; readonly id: string; readonly name: string; readonly input: unknown; readonly needs: "permission" | "answer" | null }
  | { readonly type: "verdict"; readonly id: string; readonly callId: string; readonly isAllowed: boolean }
  | { readonly type: "result"; readonly id: string; readonly callId: string; readonly text: string; readonly isError: boolean }
  | { readonly type: "interrupt"; readonly id: string }
  | { readonly type: "problem"; readonly id: string; readonly text: string }
  | { readonly type: "status"; readonly id: string; readonly status: Status };

export type Status = "running" | "idle" | "asking" | "ended";

/** What only the moment shows, and no history. */
export type Live =
  | { readonly type: "delta"; readonly id: string; readonly text: string }
  /** A message that was begun will not come: forget what was shown of it. */
  | { readonly type: "dropped" }
  /** `isOpen`: everything that there is has been given, and from now on it comes as it happens. */
  | { readonly type: "link"; readonly isOpen: boolean };

export const SHOWN: Events[] = [
  "user.message",
  "user.interrupt",
  "user.tool_confirmation",
  "user.custom_tool_result",
  "agent.message",
  "agent.tool_use",
  "agent.tool_result",
  "agent.custom_tool_use",
  "session.error",
  "session.status_running",
  "session.status_rescheduled",
  "session.status_idle",
  "session.status_terminated",
];

export function itemOf(event: StreamEvent): Item | null {
  switch (event.type) {
    case "user.message":
      return { type: "user", id: event.id, text: wordsOf(event.content), isWaiting: !event.processed_at };
    case "agent.message":
      return { type: "agent", id: event.id, text: wordsOf(event.content, "") };
    case "agent.tool_use":
      return { type: "call", id: event.id, name: event.name, input: event.input, needs: event.evaluated_permission === "ask" ? "permission" : null };
    case "agent.custom_tool_use":
      return { type: "call", id: event.id, name: event.name, input: event.input, needs: "answer" };
    case "agent.tool_result":
      return { ...resultOf(event.id, event), callId: event.tool_use_id };
    case "user.custom_tool_result":
      return { ...resultOf(event.id, event), callId: event.custom_tool_use_id };
    case "user.tool_confirmation":
      return { type: "verdict", id: event.id, callId: event.tool_use_id, isAllowed: event.result === "allow" };
    case "user.interrupt":
      return event.processed_at ? { type: "interrupt", id: event.id } : null;
    case "session.error":
      return { type: "problem", id: event.id, text: event.error.message };
    case "session.status_running":
    case "session.status_rescheduled":
      return { type: "status", id: event.id, status: "running" };
    case "session.status_idle":
      return { type: "status", id: event.id, status: event.stop_reason.type === "requires_action" ? "asking" : "idle" };
    case "session.status_terminated":
    case "session.deleted":
      return { type: "status", id: event.id, status: "ended" };
    default:
      return null;
  }
}

type Block = { readonly type: string } | { readonly type: "text"; readonly text: string };

function resultOf(id: string, event: { content?: readonly Block[]; is_error?: boolean | null }) {
  return { type: "result" as const, id, text: wordsOf(event.content ?? []), isError: event.is_error === true };
}

/** The text of content, with the kind of a block in the place of what is none. */
function wordsOf(content: readonly Block[], between = "\n"): string {
  const text = content.map((block) => ("text" in block ? block.text : `[${block.type}]`)).join(between);
  return text.length > TEXT_CHARS_MAX ? `${text.slice(0, TEXT_CHARS_MAX)}\n… (${text.length - TEXT_CHARS_MAX} characters more)` : text;
}
