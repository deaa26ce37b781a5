// The log's steps: what a brain writes under its lease, what comes from outside, and reading. S1–S9

import { Refusal } from "../../refusal.ts";
import { append, storedIn } from "./append.ts";
import type { Sql } from "./database.ts";
import type { Append, Appended, StoredText } from "./protocol.ts";
import { giveBack, readSession, type SessionRow, saveSession } from "./session-row.ts";
import type { Bench, Step } from "./steps.ts";

const RETRY_KEPT_MS = 60_000;
const PAGE_BYTES = 4 * 1024 * 1024;

interface Turn {
  readonly id: string;
  readonly fence: number;
  readonly n: number;
  readonly append: Append;
}

export const emitEvents: Step<"emitEvents"> = (bench, ask) => {
  const row = readSession(bench.sql, ask.id);
  const again = answeredAgain(bench.sql, row, ask);
  if (again) return again;
  const appended = appendUnderLease(bench, row, ask, ask.isRecovery);
  saveSession(bench.sql, row);
  return appended;
};

export const finish: Step<"finish"> = (bench, ask) => {
  const row = readSession(bench.sql, ask.id);
  const again = answeredAgain(bench.sql, row, ask);
  if (again) return again;
  if (row.head !== ask.seen) return "more";
  const appended = appendUnderLease(bench, row, ask, false);
  // S8: what waits and is not behind an open call is looked at again, now.
  const waitMs = ask.waitMs ?? (row.waiting > 0 && row.open <= 0 ? 0 : null);
  giveBack(row, waitMs === null ? null : Date.now() + waitMs);
  saveSession(bench.sql, row);
  tellIfDue(bench, row);
  return appended;
};

export const release: Step<"release"> = (bench, ask) => {
  const row = readSession(bench.sql, ask.id);
  const again = answeredAgain(bench.sql, row, ask);
  if (again) return again;
  const appended = appendUnderLease(bench, row, ask, false);
  giveBack(row, Date.now() + ask.waitMs);
  saveSession(bench.sql, row);
  tellIfDue(bench, row);
  return appended;
};

export const receive: Step<"receive"> = (bench, ask) => {
  const { sql } = bench;
  const row = readSession(sql, ask.id);
  const known = knownOf(sql, row, ask.append, ask.digest);
  if (known) return { again: known };
  if (ask.gate !== null && ask.gate !== row.gate) return "moved";
  if (ask.onlyIdle && row.due_at !== null) throw new Refusal("session_busy");
  const appended = appendFromOutside(bench, row, ask.append, ask.digest);
  if (ask.retryDigest !== null) remember(sql, row, ask.retryDigest, appended.from, ask.append.entries.length);
  saveSession(sql, row);
  return appended;
};

/** Appends what came from outside and makes the session due if it wakes; the caller saves the row. D5 */
export function appendFromOutside(bench: Bench, row: SessionRow, entries: Append, digest: string): { from: number; at: number } {
  const { sql } = bench;
  const appended = append(sql, row, 0, entries);
  for (const [index, { id }] of entries.entries.entries())
    if (id !== null) sql.run("INSERT INTO received (session, id, position, digest) VALUES (?, ?, ?, ?)", row.key, id, appended.from + index, digest);
  const { wakes, isUrgent, isProgress } = entries.effects;
  if (isProgress) row.attempt = 0;
  const now = Date.now();
  const comesForward = row.due_at === null ? wakes : isUrgent && row.due_at > now;
  if (row.is_held === 0 && comesForward) {
    row.due_at = now;
    bench.due();
  }
  bench.ring(row.id, row.head);
  return appended;
}

export const getEvents: Step<"getEvents"> = ({ sql }, ask) => {
  const { key } = readSession(sql, ask.id);
  const types = ask.types && JSON.stringify(ask.types);
  // First where the page ends, by sizes alone; then the entries, so that no more than a page is ever in memory.
  const sizes = sql.all<{ position: number; bytes: number }>(
    `SELECT position, bytes FROM entry WHERE session = ?1 AND position > ?2 AND position < ?3
     AND (?4 IS NULL OR type IN (SELECT value FROM json_each(?4))) ORDER BY position ${ask.order} LIMIT ?5`,
    key,
    ask.after,
    ask.before,
    types,
    ask.limit,
  );
  const [first] = sizes;
  if (!first) return [];
  let last = first.position;
  let bytes = 0;
  for (const size of sizes) {
    bytes += size.bytes;
    if (bytes > PAGE_BYTES && size !== first) break;
    last = size.position;
  }
  return sql.all<StoredText>(
    `SELECT position, at, fence, json FROM entry WHERE session = ?1 AND position BETWEEN ?2 AND ?3
     AND (?4 IS NULL OR type IN (SELECT value FROM json_each(?4))) ORDER BY position ${ask.order}`,
    key,
    Math.min(first.position, last),
    Math.max(first.position, last),
    types,
  );
};

export const recall: Step<"recall"> = ({ sql }, { id, retryDigest }) => {
  const { key } = readSession(sql, id);
  const oldest = Date.now() - RETRY_KEPT_MS;
  const kept = sql.one<{ positions: string }>("SELECT positions FROM retry WHERE session = ? AND digest = ? AND at > ?", key, retryDigest, oldest);
  return kept ? JSON.parse(kept.positions) : null;
};

export const forget: Step<"forget"> = ({ sql }, { id, retryDigest }) => {
  const { key } = readSession(sql, id);
  sql.run("DELETE FROM retry WHERE session = ? AND digest = ?", key, retryDigest);
  return null;
};

/** The answer that a resend missed, or null for a fresh append that may be made. S2 S3 S4 */
function answeredAgain(sql: Sql, row: SessionRow, { fence, n }: Turn): Appended | null {
  if (row.fence !== fence) throw new Refusal("fenced");
  if (n > 0 && n === row.n) return { again: storedIn(sql, row.key, row.n_from - 1, row.n_from + row.n_count) };
  if (row.is_held === 0) throw new Refusal("fenced");
  if (n !== row.n + 1) throw new Refusal("out_of_step");
  return null;
}

function appendUnderLease(bench: Bench, row: SessionRow, ask: Turn, isRecovery: boolean): Appended {
  const appended = append(bench.sql, row, row.fence, ask.append);
  row.n = ask.n;
  row.n_from = appended.from;
  row.n_count = ask.append.entries.length;
  if (ask.append.effects.isProgress && !isRecovery) row.attempt = 0;
  if (row.n_count > 0) bench.ring(row.id, row.head);
  return appended;
}

/** What is stored under these ids, or null when they are all new. S9 */
function knownOf(sql: Sql, row: SessionRow, { entries }: Append, digest: string): StoredText[] | null {
  const ids = entries.flatMap(({ id }) => (id === null ? [] : [id]));
  const known = ids.flatMap((id) => {
    const at = sql.one<{ position: number; digest: string }>("SELECT position, digest FROM received WHERE session = ? AND id = ?", row.key, id);
    return at ? [at] : [];
  });
  const isMixed = known.length > 0 && known.length < entries.length;
  if (isMixed || new Set(ids).size < ids.length || known.some((at) => at.digest !== digest)) throw new Refusal("idempotency_conflict");
  if (known.length === 0) return null;
  return known.flatMap(({ position }) => storedIn(sql, row.key, position - 1, position + 1));
}

function remember(sql: Sql, row: SessionRow, retryDigest: string, from: number, count: number): void {
  const now = Date.now();
  sql.run("DELETE FROM retry WHERE at <= ?", now - RETRY_KEPT_MS);
  const positions = JSON.stringify(Array.from({ length: count }, (_, index) => from + index));
  sql.run("INSERT OR REPLACE INTO retry (session, digest, positions, at) VALUES (?, ?, ?, ?)", row.key, retryDigest, positions, now);
}

function tellIfDue(bench: Bench, row: SessionRow): void {
  if (row.due_at !== null && row.due_at <= Date.now()) bench.due();
}
