// A session's record and its projection: what the log comes to, kept field by field in the same step as the entries (S7). A driver stores the
// projection as a flat map of JSON values and knows none of the names; effects.ts writes them, this reads them.

import type { EvaluationResult, SessionUsage, StopReason } from "./events/brain.ts";
import { NO_USAGE } from "./events/brain.ts";
import type { AgentSnapshot, SessionResource } from "./events/log.ts";
import type { EventId, Fence, Position, SessionId } from "./ids.ts";
import { position } from "./ids.ts";

/** Field name → JSON value (parsed). */
export type Projection = Readonly<Record<string, unknown>>;

export interface SessionRecord {
  readonly id: SessionId;
  readonly workspace: string;
  readonly createdAt: number;
  /** Time of the newest entry. */
  readonly updatedAt: number;
  readonly head: Position;
  /** Position of the newest entry that can change admission. */
  readonly gate: Position;
  readonly fence: Fence;
  readonly isHeld: boolean;
  /** When to look next (ms); null when absent from the due-set: the session is idle. */
  readonly dueAt: number | null;
  readonly projection: Projection;
}

export type SessionStatus = "idle" | "running" | "rescheduling" | "terminated";

/** A call that has no result yet. `kind`: who answers it. */
export interface OpenCall {
  readonly id: EventId;
  readonly kind: "allow" | "ask" | "deny" | "custom";
  readonly name: string;
  /** What a client said to an `ask` call; the host has still to act on it. */
  readonly answered: "allow" | "deny" | null;
}

/** A received event that no brain has applied yet. */
export interface Pending {
  readonly position: Position;
  readonly id: EventId;
  readonly type: string;
}

/** An outcome as its session shows it, and where it was defined. */
export interface OutcomeRecord {
  readonly position: Position;
  readonly outcome_id: string;
  readonly description: string;
  readonly iteration: number;
  readonly result: "pending" | "running" | "evaluating" | Exclude<EvaluationResult, "needs_revision">;
  readonly explanation: string | null;
  /** When it ended (ms); null while it goes on. */
  readonly completedAt: number | null;
}

const field = <T>(projection: Projection, name: string, absent: T): T => (projection[name] === undefined ? absent : (projection[name] as T));

export const agentOf = (record: SessionRecord): AgentSnapshot => record.projection.agent as AgentSnapshot;
export const environmentOf = (record: SessionRecord): string => record.projection.environment_id as string;
export const titleOf = (record: SessionRecord): string | null => field(record.projection, "title", null);
export const metadataOf = (record: SessionRecord): Readonly<Record<string, string>> => field(record.projection, "metadata", {});
export const usageOf = (record: SessionRecord): SessionUsage => field(record.projection, "usage", NO_USAGE);
export const resourcesOf = (record: SessionRecord): readonly SessionResource[] => field(record.projection, "resources", []);
export const archivedAtOf = (record: SessionRecord): number | null => field(record.projection, "archived_at", null);
export const lastStopOf = (record: SessionRecord): StopReason | null => field(record.projection, "stop_reason", null);

/** `running` = in the due-set; `rescheduling` = there with a retry time; `idle` = absent; `terminated` = said so by an entry. */
export function statusOf(record: SessionRecord): SessionStatus {
  if (record.projection.terminated === true) return "terminated";
  if (record.dueAt === null) return "idle";
  return record.projection.rescheduling === true ? "rescheduling" : "running";
}

export function openCalls(projection: Projection): readonly OpenCall[] {
  return entriesOf<Pick<OpenCall, "kind" | "name">>(projection, "call:").map(([id, call]) => ({
    ...call,
    id: id as EventId,
    answered: field(projection, `answered:${id}`, null),
  }));
}

export function pendingOf(projection: Projection): readonly Pending[] {
  return entriesOf<Omit<Pending, "position">>(projection, "pending:")
    .map(([at, pending]) => ({ ...pending, position: position(Number(at)) }))
    .sort((one, other) => one.position - other.position);
}

/** In the order in which they were defined. */
export function outcomesOf(projection: Projection): readonly OutcomeRecord[] {
  return entriesOf<Pick<OutcomeRecord, "outcome_id" | "description">>(projection, "outcome:")
    .map(([at, { outcome_id, description }]) => ({
      position: position(Number(at)),
      outcome_id,
      description,
      ...field<Pick<OutcomeRecord, "iteration" | "result">>(projection, `outcome_state:${outcome_id}`, { result: "pending", iteration: 0 }),
      explanation: field<string | null>(projection, `outcome_says:${outcome_id}`, null),
      completedAt: field<number | null>(projection, `outcome_ended:${outcome_id}`, null),
    }))
    .sort((one, other) => one.position - other.position);
}

function entriesOf<T>(projection: Projection, prefix: string): readonly [string, T][] {
  return Object.entries(projection)
    .filter(([name]) => name.startsWith(prefix))
    .map(([name, value]) => [name.slice(prefix.length), value as T]);
}
