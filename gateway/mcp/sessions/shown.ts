// Sessions as a model is shown them: what it needs to go on, and no more.

import { z } from "zod";
import type { SessionRecord } from "../../../session-store/session.ts";
import { agentOf, environmentOf, lastStopOf, openCalls, pendingOf, statusOf, titleOf } from "../../../session-store/session.ts";
import { rfc3339 } from "../../http/wire.ts";

export const SessionShown = z.object({
  session_id: z.string(),
  title: z.string().nullable(),
  status: z
    .enum(["idle", "running", "rescheduling", "terminated"])
    .describe("idle: it waits for you; running: a turn is under way; terminated: archived"),
  stop_reason: z.string().nullable().describe("Why the last turn ended; requires_action: it waits for the answers named in waiting_for"),
  agent: z.object({ id: z.string(), name: z.string(), version: z.number() }),
  environment_id: z.string(),
  queued_messages: z.number().describe("Messages that the agent has not read yet"),
  created_at: z.string(),
  updated_at: z.string(),
  position: z.number().describe("Where the log ends now: what comes later has a higher position"),
});
export type SessionShown = z.infer<typeof SessionShown>;

export const Waiting = z.object({
  tool_use_id: z.string(),
  name: z.string(),
  kind: z
    .enum(["confirmation", "result"])
    .describe("confirmation: answer with confirm_tool; result: run it yourself and answer with submit_tool_result"),
  input: z.unknown(),
});
export type Waiting = z.infer<typeof Waiting>;

export function showSession(record: SessionRecord): SessionShown {
  const agent = agentOf(record);
  return {
    session_id: record.id,
    title: titleOf(record),
    status: statusOf(record),
    stop_reason: lastStopOf(record)?.type ?? null,
    agent: { id: agent.id, name: agent.name, version: agent.version },
    environment_id: environmentOf(record),
    queued_messages: pendingOf(record.projection).length,
    created_at: rfc3339(record.createdAt),
    updated_at: rfc3339(record.updatedAt),
    position: record.head,
  };
}

/** The calls that the last idle named and nobody answered yet. */
export function blockingOf(record: SessionRecord): readonly { readonly id: string; readonly name: string; readonly kind: Waiting["kind"] }[] {
  const stop = lastStopOf(record);
  if (statusOf(record) !== "idle" || stop?.type !== "requires_action") return [];
  const named = new Set<string>(stop.event_ids);
  return openCalls(record.projection)
    .filter(({ id, kind, answered }) => named.has(id) && answered === null && (kind === "ask" || kind === "custom"))
    .map(({ id, name, kind }) => ({ id, name, kind: kind === "ask" ? "confirmation" : "result" }));
}
