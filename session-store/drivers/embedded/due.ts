// The due-set's steps. D1–D7

import { WAIT_MAX_MS } from "../../due.ts";
import type { Sql } from "./database.ts";
import type { LeaseText } from "./protocol.ts";
import { findSession, readSession, type SessionRow, saveSession } from "./session-row.ts";
import type { Step } from "./steps.ts";

export const take: Step<"take"> = ({ sql, leaseMs }, { host, nonce }) => {
  const known = sql.one<SessionRow>("SELECT * FROM session WHERE nonce = ?", nonce);
  if (known) return leaseOf(known);
  const now = Date.now();
  const row = earliest(sql, now);
  if (!row) return null;
  row.fence += 1;
  row.is_held = 1;
  row.due_at = now + leaseMs;
  row.nonce = nonce;
  row.host = host;
  row.attempt += 1;
  row.n = 0;
  row.n_from = 0;
  row.n_count = 0;
  saveSession(sql, row);
  return leaseOf(row);
};

export const renew: Step<"renew"> = ({ sql, leaseMs }, { id, fence }) => {
  const row = findSession(sql, id);
  if (!row || row.fence !== fence || row.is_held === 0) return "lost";
  row.due_at = Date.now() + leaseMs;
  saveSession(sql, row);
  return row.head;
};

export const wake: Step<"wake"> = (bench, { id }) => {
  const row = readSession(bench.sql, id);
  const now = Date.now();
  if (row.is_held === 1 || (row.due_at !== null && row.due_at <= now)) return null;
  row.due_at = now;
  saveSession(bench.sql, row);
  bench.due();
  return null;
};

function earliest(sql: Sql, now: number): SessionRow | undefined {
  return (
    sql.one<SessionRow>("SELECT * FROM session WHERE due_at <= ? ORDER BY due_at, key LIMIT 1", now) ??
    // D4: nothing legal is that far ahead, so the clock was set back since.
    sql.one<SessionRow>("SELECT * FROM session WHERE due_at > ? ORDER BY due_at DESC LIMIT 1", now + WAIT_MAX_MS)
  );
}

function leaseOf({ id, fence, head, attempt }: SessionRow): LeaseText {
  return { id, fence, head, attempt };
}
