// A session, and its primary thread, as the wire shows them (contract §5, §12).

import { primaryThread } from "../../session-store/ids.ts";
import type { OutcomeRecord, SessionRecord } from "../../session-store/session.ts";
import {
  agentOf,
  archivedAtOf,
  environmentOf,
  metadataOf,
  outcomesOf,
  resourcesOf,
  statusOf,
  titleOf,
  usageOf,
} from "../../session-store/session.ts";
import { rfc3339, wireOfAgent } from "./wire.ts";

export function wireOfSession(record: SessionRecord, now = Date.now()): unknown {
  const { projection } = record;
  return {
    id: record.id,
    type: "session",
    title: titleOf(record),
    status: statusOf(record),
    agent: wireOfAgent(agentOf(record)),
    environment_id: environmentOf(record),
    resources: resourcesOf(record),
    vault_ids: projection.vault_ids ?? [],
    deployment_id: null,
    metadata: metadataOf(record),
    budget: null,
    outcome_evaluations: outcomesOf(projection).map((outcome) => wireOfOutcome(outcome, archivedAtOf(record))),
    usage: usageOf(record),
    stats: statsOf(record, now),
    ...timesOf(record),
  };
}

export function wireOfThread(record: SessionRecord, now = Date.now()): unknown {
  return {
    id: primaryThread(record.id),
    type: "session_thread",
    session_id: record.id,
    parent_thread_id: null,
    agent: wireOfAgent(agentOf(record)),
    status: statusOf(record),
    stats: statsOf(record, now),
    usage: usageOf(record),
    workflow_run_id: null,
    ...timesOf(record),
  };
}

/** What an archive ended was interrupted by it. */
function wireOfOutcome({ outcome_id, description, iteration, result, explanation, completedAt }: OutcomeRecord, archivedAt: number | null) {
  const endedAt = completedAt ?? archivedAt;
  return {
    type: "outcome_evaluation",
    outcome_id,
    description,
    iteration,
    result: completedAt === null && archivedAt !== null ? "interrupted" : result,
    explanation,
    completed_at: endedAt === null ? null : rfc3339(endedAt),
  };
}

function timesOf(record: SessionRecord) {
  const archivedAt = archivedAtOf(record);
  return {
    created_at: rfc3339(record.createdAt),
    updated_at: rfc3339(record.updatedAt),
    archived_at: archivedAt === null ? null : rfc3339(archivedAt),
  };
}

/** A turn that goes on counts up to now; a terminated session stands still. */
function statsOf(record: SessionRecord, now: number) {
  const since = record.projection.running_since;
  const running = typeof since === "number" ? Math.max(0, now - since) / 1000 : 0;
  const end = archivedAtOf(record) ?? now;
  return {
    active_seconds: usageOf(record).active_seconds + running,
    duration_seconds: Math.max(0, end - record.createdAt) / 1000,
  };
}
