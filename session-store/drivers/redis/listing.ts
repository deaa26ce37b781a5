// Lists by (createdAt, id): sessions, merged over the partitions, and documents.
//
//   T1  An index gives its members in order, in pieces; the pieces of several indexes are merged as they are needed.
//   T2  Filters are applied here, piece by piece, until the page is full or the indexes end: an empty page is the last one.

import type { SessionId } from "../../ids.ts";
import type { SessionRecord } from "../../session.ts";
import { agentOf, archivedAtOf, statusOf } from "../../session.ts";
import type { SessionQuery } from "../../store.ts";
import type { Commands } from "./commands.ts";
import { indexKey, keysOf, partitions } from "./keys.ts";
import { recordOf } from "./record.ts";
import { list, text, whole } from "./reply.ts";

const PIECE_MIN = 8;
const PIECE_MAX = 200;

/** What of a query an index can answer. */
export interface Span {
  readonly order: "asc" | "desc";
  readonly limit: number;
  readonly beyond?: { readonly createdAt: number; readonly id: string };
  readonly createdAt?: { readonly gt?: number; readonly gte?: number; readonly lt?: number; readonly lte?: number };
}

interface Member {
  readonly id: string;
  readonly createdAt: number;
}

/** T2: reads items in order until there are `limit`; null is one that is not wanted. */
export async function page<T>(
  commands: Commands,
  indexes: readonly string[],
  span: Span,
  read: (ids: readonly string[]) => Promise<readonly (T | null)[]>,
): Promise<readonly T[]> {
  const found: T[] = [];
  if (span.limit < 1) return found;
  const members = new Merge(commands, indexes, span);
  while (found.length < span.limit) {
    const piece = await members.next(Math.min(span.limit - found.length, PIECE_MAX));
    if (piece.length === 0) break;
    for (const item of await read(piece.map(({ id }) => id))) if (item !== null) found.push(item);
  }
  return found;
}

export async function listSessions(commands: Commands, workspace: string, query: SessionQuery): Promise<readonly SessionRecord[]> {
  const indexes = partitions().map((partition) => indexKey(partition, workspace));
  return await page(commands, indexes, query, async (ids) => {
    const hashes = await commands.read(ids.map((id) => ["HGETALL", keysOf(id as SessionId).meta]));
    return hashes.map((hash) => {
      const record = recordOf(hash);
      return record && isWanted(record, query) ? record : null;
    });
  });
}

function isWanted(record: SessionRecord, query: SessionQuery): boolean {
  const agent = agentOf(record);
  if (query.agentId !== undefined && agent.id !== query.agentId) return false;
  if (query.agentVersion !== undefined && agent.version !== query.agentVersion) return false;
  if (query.statuses !== undefined && !query.statuses.includes(statusOf(record))) return false;
  return query.includeArchived === true || archivedAtOf(record) === null;
}

/** T1 */
class Merge {
  readonly #commands: Commands;
  readonly #span: Span;
  readonly #heads: { readonly index: string; place: number; isDone: boolean; buffer: Member[] }[];
  readonly #piece: number;

  constructor(commands: Commands, indexes: readonly string[], span: Span) {
    this.#commands = commands;
    this.#span = span;
    this.#heads = indexes.map((index) => ({ index, place: 0, isDone: false, buffer: [] }));
    this.#piece = Math.min(PIECE_MAX, Math.max(PIECE_MIN, Math.ceil((2 * span.limit) / indexes.length)));
  }

  /** The next members, at most `count`; none when the indexes end. */
  async next(count: number): Promise<readonly Member[]> {
    const members: Member[] = [];
    while (members.length < count) {
      // More than once where a whole piece lies before `beyond`: many were created in one millisecond.
      while (this.#heads.some(({ buffer, isDone }) => buffer.length === 0 && !isDone)) await this.#fill();
      const first = this.#first();
      if (!first) break;
      members.push(first);
    }
    return members;
  }

  #first(): Member | undefined {
    const sign = this.#span.order === "asc" ? 1 : -1;
    let best: Member[] | undefined;
    for (const { buffer } of this.#heads) {
      const [member] = buffer;
      if (member && (!best?.[0] || sign * compare(member, best[0]) < 0)) best = buffer;
    }
    return best?.shift();
  }

  async #fill(): Promise<void> {
    const hungry = this.#heads.filter(({ buffer, isDone }) => buffer.length < this.#piece / 2 && !isDone);
    const [low, high] = boundsOf(this.#span);
    const range = this.#span.order === "asc" ? [low, high, "BYSCORE"] : [high, low, "BYSCORE", "REV"];
    const replies = await this.#commands.read(
      hungry.map(({ index, place }) => ["ZRANGE", index, ...range, "LIMIT", String(place), String(this.#piece), "WITHSCORES"]),
    );
    for (const [at, head] of hungry.entries()) {
      const flat = list(replies[at]);
      head.isDone = flat.length < 2 * this.#piece;
      head.place += flat.length / 2;
      for (let next = 0; next < flat.length; next += 2) {
        const member = { id: text(flat[next]), createdAt: whole(flat[next + 1]) };
        if (this.#isBeyond(member)) head.buffer.push(member);
      }
    }
  }

  #isBeyond(member: Member): boolean {
    const { beyond, order } = this.#span;
    return !beyond || (order === "asc" ? compare(member, beyond) > 0 : compare(member, beyond) < 0);
  }
}

/** As Redis orders members of one score: by bytes. Ids are ASCII. */
function compare(one: Pick<Member, "id" | "createdAt">, other: Pick<Member, "id" | "createdAt">): number {
  return one.createdAt - other.createdAt || (one.id < other.id ? -1 : one.id > other.id ? 1 : 0);
}

function boundsOf({ order, beyond, createdAt: { gt, gte, lt, lte } = {} }: Span): readonly [low: string, high: string] {
  // Times are whole: "greater than" is "at least one more".
  const lows = [gte, gt === undefined ? undefined : gt + 1, order === "asc" ? beyond?.createdAt : undefined].filter((low) => low !== undefined);
  const highs = [lte, lt === undefined ? undefined : lt - 1, order === "desc" ? beyond?.createdAt : undefined].filter((high) => high !== undefined);
  return [lows.length > 0 ? String(Math.max(...lows)) : "-inf", highs.length > 0 ? String(Math.min(...highs)) : "+inf"];
}
