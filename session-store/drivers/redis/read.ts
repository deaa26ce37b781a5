// Reads a log by position, page by page.
//
//   G1  A page is bounded by count and by bytes, and so is what is asked for at once: what is known of a log is the size of its largest
//       entry, and no more entries are asked for than fit into a page at that size, or PIECE_MIN.
//   G2  Whether the session is there is asked in the same round trip, before its entries: a removed one is refused, never read as empty.
//   G3  Types are picked here: what is looked at and not wanted is not parsed.

import type { Stored } from "../../entry.ts";
import type { Position, SessionId } from "../../ids.ts";
import { Refusal } from "../../refusal.ts";
import type { Slice } from "../../store.ts";
import { placeOf, sizeOf, storedOf, typeOf } from "./append.ts";
import type { Commands } from "./commands.ts";
import { keysOf } from "./keys.ts";
import { list, whole } from "./reply.ts";

const PAGE_ENTRIES = 500;
const PAGE_BYTES = 4 * 1024 * 1024;
const PIECE_MIN = 16;
const PIECE_MAX = 1_000;

export async function readEvents(
  commands: Commands,
  id: SessionId,
  { after, before, types, order = "asc", limit = PAGE_ENTRIES }: Slice,
): Promise<readonly Stored[]> {
  const wanted = types && new Set(types);
  const page: Stored[] = [];
  let bytes = 0;
  let low = (after ?? 0) + 1;
  let high = (before ?? Number.MAX_SAFE_INTEGER) - 1;
  let count = PIECE_MIN;
  for (;;) {
    const piece = await readPiece(commands, id, { low, high, order, count: Math.min(count, wanted ? PIECE_MAX : limit - page.length) });
    if (limit < 1 || wanted?.size === 0) return page;
    for (const row of piece.rows) {
      if (wanted && !wanted.has(typeOf(row))) continue;
      bytes += sizeOf(row);
      if (page.length > 0 && bytes > PAGE_BYTES) return page;
      page.push(storedOf(row));
      if (page.length >= limit) return page;
    }
    const last = piece.rows.at(-1);
    if (last === undefined) return page;
    if (order === "asc") low = placeOf(list(last)[0]) + 1;
    else high = placeOf(list(last)[0]) - 1;
    if (low > Math.min(high, piece.head)) return page;
    count = Math.max(PIECE_MIN, Math.floor((wanted ? PAGE_BYTES : PAGE_BYTES - bytes) / piece.big));
  }
}

interface Piece {
  readonly rows: readonly unknown[];
  readonly head: Position;
  /** Bytes of the log's largest entry. */
  readonly big: number;
}

/** G2 */
async function readPiece(
  commands: Commands,
  id: SessionId,
  { low, high, order, count }: { low: number; high: number; order: "asc" | "desc"; count: number },
): Promise<Piece> {
  const keys = keysOf(id);
  const facts = ["HMGET", keys.meta, "head", "big"];
  const [first, last] = [String(low), String(Math.max(high, 0))];
  const range = order === "asc" ? ["XRANGE", keys.log, first, last] : ["XREVRANGE", keys.log, last, first];
  const [known, rows] = await commands.read([facts, [...range, "COUNT", String(Math.max(count, 1))]]);
  const [head, big] = list(known);
  if (head === null) throw new Refusal("session_not_found");
  return { rows: list(rows), head: whole(head) as Position, big: Math.max(1, whole(big)) };
}
