// Pages of documents: (created_at, id) cursors over the store's list.

import type { Document } from "../../session-store/documents.ts";
import { invalid } from "../answer.ts";
import type { Door } from "./call.ts";
import { placeCursor, readCursor, writeCursor } from "./cursor.ts";
import type { Range } from "./query.ts";
import { isWithin } from "./query.ts";

export interface DocumentPage {
  readonly workspace: string;
  readonly kind: string;
  readonly limit: number;
  readonly page: string | undefined;
  readonly range?: Range | null;
  readonly includeArchived: boolean;
}

/** Newest first, as every list of documents on the wire. */
export async function pageOfDocuments(
  door: Door,
  query: DocumentPage,
): Promise<{ readonly documents: readonly Document[]; readonly next_page: string | null }> {
  const cursor = query.page === undefined ? null : readCursor(placeCursor(query.kind), query.page);
  if (cursor && query.range && !isWithin(cursor.c, query.range)) throw invalid("page: the created_at filter leaves out this cursor's place");
  const found = await door.store.list(query.workspace, query.kind, {
    order: "desc",
    limit: query.limit + 1,
    ...(cursor && { beyond: { createdAt: cursor.c, id: cursor.i } }),
    ...(query.range && { createdAt: query.range }),
    includeArchived: query.includeArchived,
  });
  const documents = found.slice(0, query.limit);
  const last = documents.at(-1);
  const hasMore = found.length > query.limit && last !== undefined;
  return { documents, next_page: hasMore ? writeCursor({ k: query.kind, o: "desc", d: "next", c: last.createdAt, i: last.id }) : null };
}

/** A change that came between is met by reading again: so many tries. */
export const WRITE_TRIES_MAX = 10;
