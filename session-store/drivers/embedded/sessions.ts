// Steps over whole sessions: making, reading, listing, removing.

import { Refusal } from "../../refusal.ts";
import type { Sql } from "./database.ts";
import { appendFromOutside } from "./log.ts";
import { rangeOf } from "./range.ts";
import { findSession, readSession, recordOf, type SessionRow, saveSession } from "./session-row.ts";
import type { Step } from "./steps.ts";

export const create: Step<"create"> = (bench, ask) => {
  const { sql } = bench;
  const known = findSession(sql, ask.id);
  if (known) {
    if (known.digest !== ask.digest) throw new Refusal("idempotency_conflict");
    return recordOf(sql, known);
  }
  if (sql.one("SELECT id FROM tombstone WHERE id = ?", ask.id)) throw new Refusal("session_exists", "A session with this id was deleted.");
  const ids = ask.append.entries.flatMap(({ id }) => (id === null ? [] : [id]));
  if (new Set(ids).size < ids.length) throw new Refusal("idempotency_conflict");
  const row = insert(sql, ask.id, ask.workspace, ask.digest);
  // A session is made when its first entry is: one time, as that entry has it.
  row.created_at = appendFromOutside(bench, row, ask.append, "").at;
  sql.run("UPDATE session SET created_at = ? WHERE key = ?", row.created_at, row.key);
  saveSession(sql, row);
  return recordOf(sql, row);
};

export const getSession: Step<"getSession"> = ({ sql }, { id }) => recordOf(sql, readSession(sql, id));

export const listSessions: Step<"listSessions"> = ({ sql }, { workspace, query }) => {
  const { from, to } = rangeOf(query);
  return sql
    .all<SessionRow>(
      query.order === "asc" ? LIST_ASC : LIST_DESC,
      workspace,
      from[0],
      from[1],
      to,
      query.includeArchived ? 1 : 0,
      query.agentId ?? null,
      query.agentVersion ?? null,
      query.statuses ? JSON.stringify(query.statuses) : null,
      query.limit,
    )
    .map((row) => recordOf(sql, row));
};

export const remove: Step<"remove"> = (bench, { id }) => {
  const { sql } = bench;
  const row = readSession(sql, id);
  if (row.due_at !== null) throw new Refusal("session_busy");
  sql.run("DELETE FROM entry WHERE session = ?", row.key);
  sql.run("DELETE FROM field WHERE session = ?", row.key);
  sql.run("DELETE FROM received WHERE session = ?", row.key);
  sql.run("DELETE FROM retry WHERE session = ?", row.key);
  sql.run("DELETE FROM session WHERE key = ?", row.key);
  sql.run("INSERT INTO tombstone (id) VALUES (?)", id);
  bench.ring(id, -1);
  return null;
};

// The same reading of the projection as in session.ts, in SQL, so that a filtered list parses no agent that it leaves out.
const has = (name: string) => `EXISTS (SELECT 1 FROM field WHERE field.session = session.key AND field.name = '${name}'`;
const FILTER = `
  (?5 = 1 OR NOT ${has("archived_at")}))
  AND (?6 IS NULL OR ${has("agent")} AND json_extract(value, '$.id') = ?6))
  AND (?7 IS NULL OR ${has("agent")} AND json_extract(value, '$.version') = ?7))
  AND (?8 IS NULL OR CASE
    WHEN ${has("terminated")}) THEN 'terminated'
    WHEN due_at IS NULL THEN 'idle'
    WHEN ${has("rescheduling")}) THEN 'rescheduling'
    ELSE 'running' END IN (SELECT value FROM json_each(?8)))`;
const LIST_ASC = `SELECT * FROM session WHERE workspace = ?1 AND (created_at, id) > (?2, ?3) AND created_at <= ?4 AND ${FILTER}
  ORDER BY created_at, id LIMIT ?9`;
const LIST_DESC = `SELECT * FROM session WHERE workspace = ?1 AND (created_at, id) < (?2, ?3) AND created_at >= ?4 AND ${FILTER}
  ORDER BY created_at DESC, id DESC LIMIT ?9`;

function insert(sql: Sql, id: string, workspace: string, digest: string): SessionRow {
  const now = Date.now();
  sql.run(
    `INSERT INTO session (id, workspace, digest, created_at, updated_at, head, gate, fence, is_held, attempt, waiting, open, n, n_from, n_count)
     VALUES (?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)`,
    id,
    workspace,
    digest,
    now,
    now,
  );
  return readSession(sql, id);
}
