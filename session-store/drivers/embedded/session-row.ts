// The row of a session: read whole, changed by a step, written back once.

import type { SessionId } from "../../ids.ts";
import { Refusal } from "../../refusal.ts";
import type { Sql } from "./database.ts";
import type { RecordText } from "./protocol.ts";

export interface SessionRow {
  readonly key: number;
  readonly id: string;
  readonly workspace: string;
  readonly digest: string;
  created_at: number;
  updated_at: number;
  head: number;
  gate: number;
  fence: number;
  is_held: number;
  due_at: number | null;
  nonce: string | null;
  host: string | null;
  attempt: number;
  waiting: number;
  open: number;
  /** The last append of the newest lease: its number, its first position and its count of entries. */
  n: number;
  n_from: number;
  n_count: number;
}

export function findSession(sql: Sql, id: string): SessionRow | undefined {
  return sql.one<SessionRow>("SELECT * FROM session WHERE id = ?", id);
}

export function readSession(sql: Sql, id: SessionId | string): SessionRow {
  const row = findSession(sql, id);
  if (!row) throw new Refusal("session_not_found");
  return row;
}

export function saveSession(sql: Sql, row: SessionRow): void {
  sql.run(
    `UPDATE session SET updated_at = ?, head = ?, gate = ?, fence = ?, is_held = ?, due_at = ?, nonce = ?, host = ?, attempt = ?, waiting = ?,
     open = ?, n = ?, n_from = ?, n_count = ? WHERE key = ?`,
    row.updated_at,
    row.head,
    row.gate,
    row.fence,
    row.is_held,
    row.due_at,
    row.nonce,
    row.host,
    row.attempt,
    row.waiting,
    row.open,
    row.n,
    row.n_from,
    row.n_count,
    row.key,
  );
}

/** The lease is given back: nobody holds the session, and it is due at `dueAt` or not at all. */
export function giveBack(row: SessionRow, dueAt: number | null): void {
  row.is_held = 0;
  row.nonce = null;
  row.host = null;
  row.due_at = dueAt;
}

export function recordOf(sql: Sql, row: SessionRow): RecordText {
  return {
    id: row.id,
    workspace: row.workspace,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    head: row.head,
    gate: row.gate,
    fence: row.fence,
    isHeld: row.is_held === 1,
    dueAt: row.due_at,
    projection: sql.all("SELECT name, value FROM field WHERE session = ?", row.key),
  };
}
