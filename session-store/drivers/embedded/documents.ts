// The documents' steps. K1–K3

import { Refusal } from "../../refusal.ts";
import type { Sql } from "./database.ts";
import type { DocumentText, WriteText } from "./protocol.ts";
import { rangeOf } from "./range.ts";
import type { Step } from "./steps.ts";

interface DocumentRow {
  readonly kind: string;
  readonly id: string;
  readonly revision: number;
  readonly created_at: number;
  readonly updated_at: number;
  readonly is_archived: number;
  readonly body: string;
}

export const put: Step<"put"> = ({ sql }, { workspace, writes, requires }) => {
  for (const { kind, id } of requires) {
    const row = find(sql, workspace, kind, id);
    if (!row || row.is_archived === 1) throw new Refusal("document_not_found", `There is no ${kind} ${id}.`);
  }
  // First every name of these documents is given back, then the new ones are taken: two documents of one put may swap names.
  for (const { kind, id } of writes) sql.run("UPDATE document SET name = NULL WHERE workspace = ? AND kind = ? AND id = ?", workspace, kind, id);
  return writes.map((write) => putOne(sql, workspace, write));
};

export const get: Step<"get"> = ({ sql }, { workspace, kind, id }) => {
  const row = find(sql, workspace, kind, id);
  return row ? textOf(row) : null;
};

export const list: Step<"list"> = ({ sql }, { workspace, kind, query }) => {
  const { from, to } = rangeOf(query);
  return sql
    .all<DocumentRow>(query.order === "asc" ? LIST_ASC : LIST_DESC, workspace, kind, from[0], from[1], to, query.includeArchived ? 1 : 0, query.limit)
    .map(textOf);
};

export const discard: Step<"discard"> = ({ sql }, { workspace, kind, id, unlessAny }) => {
  if (!find(sql, workspace, kind, id)) throw new Refusal("document_not_found");
  if (unlessAny !== null && sql.one("SELECT id FROM document WHERE workspace = ? AND kind = ? LIMIT 1", workspace, unlessAny))
    throw new Refusal("document_in_use");
  sql.run("DELETE FROM document WHERE workspace = ? AND kind = ? AND id = ?", workspace, kind, id);
  return null;
};

const LIST_ASC = `SELECT * FROM document WHERE workspace = ?1 AND kind = ?2 AND (created_at, id) > (?3, ?4) AND created_at <= ?5
  AND (?6 = 1 OR is_archived = 0) ORDER BY created_at, id LIMIT ?7`;
const LIST_DESC = `SELECT * FROM document WHERE workspace = ?1 AND kind = ?2 AND (created_at, id) < (?3, ?4) AND created_at >= ?5
  AND (?6 = 1 OR is_archived = 0) ORDER BY created_at DESC, id DESC LIMIT ?7`;

function putOne(sql: Sql, workspace: string, write: WriteText): DocumentText {
  const { kind, id, name, body } = write;
  const before = find(sql, workspace, kind, id);
  if ((before?.revision ?? 0) !== write.replaces) throw new Refusal("document_changed");
  if (name !== null && sql.one("SELECT id FROM document WHERE workspace = ? AND kind = ? AND name = ?", workspace, kind, name))
    throw new Refusal("name_taken");
  const createdAt = before?.created_at ?? stampNew(sql, workspace, kind);
  const row: DocumentRow = {
    kind,
    id,
    revision: write.replaces + 1,
    created_at: createdAt,
    updated_at: before ? Math.max(Date.now(), before.updated_at) : createdAt,
    is_archived: write.isArchived ? 1 : 0,
    body,
  };
  sql.run(
    `INSERT INTO document (workspace, kind, id, revision, created_at, updated_at, is_archived, name, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (workspace, kind, id) DO UPDATE SET revision = excluded.revision, updated_at = excluded.updated_at,
     is_archived = excluded.is_archived, name = excluded.name, body = excluded.body`,
    workspace,
    kind,
    id,
    row.revision,
    row.created_at,
    row.updated_at,
    row.is_archived,
    name,
    body,
  );
  return textOf(row);
}

/** The time of a new document: later than that of every other one of its kind, also of discarded ones. K2 */
function stampNew(sql: Sql, workspace: string, kind: string): number {
  const newest = sql.one<{ newest: number }>("SELECT newest FROM document_kind WHERE workspace = ? AND kind = ?", workspace, kind)?.newest ?? 0;
  const at = Math.max(Date.now(), newest + 1);
  sql.run("INSERT OR REPLACE INTO document_kind (workspace, kind, newest) VALUES (?, ?, ?)", workspace, kind, at);
  return at;
}

function find(sql: Sql, workspace: string, kind: string, id: string): DocumentRow | undefined {
  return sql.one<DocumentRow>("SELECT * FROM document WHERE workspace = ? AND kind = ? AND id = ?", workspace, kind, id);
}

function textOf(row: DocumentRow): DocumentText {
  const { kind, id, revision, body } = row;
  return { kind, id, revision, createdAt: row.created_at, updatedAt: row.updated_at, isArchived: row.is_archived === 1, body };
}
