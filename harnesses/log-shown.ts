// A session's log as the session itself may read it: the events that the API shows, each with its position and time, long texts cut.
//
//   W1  Nothing is shown that the API does not show: entries of ours (`log.*`) stay inside, but for what a client said.
//   W2  A cut says how much is missing; bytes of pictures and documents are named, never given.

import type { Stored } from "../session-store/entry.ts";
import type { ClientEvent } from "../session-store/events/client.ts";

export interface ShownEvent {
  readonly position: number;
  readonly time: string;
  readonly type: string;
  readonly [field: string]: unknown;
}

type WireEntry = Exclude<Stored["entry"], { readonly type: `log.${string}` }>;

/** Null: it is no event of the API. W1 */
export function eventIn({ entry }: Stored): WireEntry | ClientEvent | null {
  if (entry.type === "log.received") return entry.event;
  return isWire(entry) ? entry : null;
}

const isWire = (entry: Stored["entry"]): entry is WireEntry => !entry.type.startsWith("log.");

/** W1 W2 */
export function shownOf(stored: Stored, textCharsMax: number): ShownEvent | null {
  const event = eventIn(stored);
  if (!event) return null;
  const { type, ...fields } = event;
  return { position: stored.position, time: new Date(stored.at).toISOString(), type, ...shortened(fields, textCharsMax) };
}

function shortened(fields: object, max: number): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, cutIn(value, max)]));
}

function cutIn(value: unknown, max: number): unknown {
  if (typeof value === "string") return cut(value, max);
  if (Array.isArray(value)) return value.map((one) => cutIn(one, max));
  if (typeof value !== "object" || value === null) return value;
  const bytes = bytesIn(value);
  return bytes ?? shortened(value, max);
}

/** W2 */
function bytesIn(value: object): object | null {
  if (!("type" in value && value.type === "base64" && "data" in value && typeof value.data === "string")) return null;
  return { ...value, data: `[${Math.floor((value.data.length * 3) / 4)} bytes]` };
}

export const cut = (text: string, max: number): string =>
  text.length <= max ? text : `${text.slice(0, max).toWellFormed()} … [${text.length - max} more characters]`;

/** An event as a reader of the transcript sees it; null: it says nothing to one. */
export function lineOf(stored: Stored, textCharsMax: number): string | null {
  const event = eventIn(stored);
  if (!event) return null;
  const said = (who: string, text: string) => `[${stored.position}] ${who}: ${cut(text, textCharsMax)}`;
  switch (event.type) {
    case "user.message":
      return said("User", textIn(event.content));
    case "system.message":
      return said("System", textIn(event.content));
    case "agent.message":
      return said("Agent", textIn(event.content));
    case "agent.tool_use":
    case "agent.custom_tool_use":
      return said(`Agent uses ${event.name}`, JSON.stringify(event.input) ?? "null");
    case "agent.mcp_tool_use":
      return said(`Agent uses ${event.name} of ${event.mcp_server_name}`, JSON.stringify(event.input) ?? "null");
    case "agent.tool_result":
    case "agent.mcp_tool_result":
    case "user.custom_tool_result":
    case "user.tool_result":
      return said(event.is_error === true ? "Error" : "Result", textIn(event.content ?? []));
    case "user.tool_confirmation":
      return said("User", `${event.result === "allow" ? "allowed" : "denied"} the call ${event.tool_use_id}`);
    case "user.define_outcome":
      return said("User defined an outcome", event.description);
    case "span.outcome_evaluation_end":
      return said(`Evaluation: ${event.result}`, event.explanation);
    case "user.interrupt":
      return `[${stored.position}] User interrupted.`;
    case "session.error":
      return said("Error of the session", event.error.message);
    default:
      return null;
  }
}

function textIn(content: readonly { readonly type: string }[]): string {
  return content.map((block) => ("text" in block && typeof block.text === "string" ? block.text : `[${block.type}]`)).join("\n");
}
