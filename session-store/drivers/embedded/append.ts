// Appending: entries, projection, counters and head, in one step. S1 S6 S7

import type { Sql } from "./database.ts";
import type { Append, StoredText } from "./protocol.ts";
import type { SessionRow } from "./session-row.ts";

/** Appends to the log and changes `row` accordingly; the caller saves it. */
export function append(sql: Sql, row: SessionRow, fence: number, { entries, effects }: Append): { from: number; at: number } {
  const from = row.head + 1;
  if (entries.length === 0) return { from, at: row.updated_at };
  const at = Math.max(Date.now(), row.updated_at);
  for (const [index, { type, json }] of entries.entries())
    sql.run(
      "INSERT INTO entry (session, position, at, fence, type, bytes, json) VALUES (?, ?, ?, ?, ?, ?, ?)",
      row.key,
      from + index,
      at,
      fence,
      type,
      json.length,
      json,
    );
  for (const name of effects.drop) sql.run("DELETE FROM field WHERE session = ? AND name = ?", row.key, name);
  for (const [name, value] of Object.entries(effects.set)) setField(sql, row.key, placed(name, from), value);
  for (const name of effects.stamp) setField(sql, row.key, name, String(at));
  row.head += entries.length;
  row.updated_at = at;
  row.waiting += effects.waiting;
  row.open += effects.open;
  if (effects.gateIndex >= 0) row.gate = from + effects.gateIndex;
  return { from, at };
}

/** Entries of one session in (after, before), oldest first. */
export function storedIn(sql: Sql, key: number, after: number, before: number): StoredText[] {
  return sql.all(
    "SELECT position, at, fence, json FROM entry WHERE session = ? AND position > ? AND position < ? ORDER BY position",
    key,
    after,
    before,
  );
}

function setField(sql: Sql, key: number, name: string, value: string): void {
  sql.run(
    "INSERT INTO field (session, name, value) VALUES (?, ?, ?) ON CONFLICT (session, name) DO UPDATE SET value = excluded.value",
    key,
    name,
    value,
  );
}

/** `pending:@2` is `pending:` and the position of the batch's entry 2. */
function placed(name: string, from: number): string {
  return name.replace(/@(\d+)$/, (_, index: string) => String(from + Number(index)));
}
