// Page cursors: opaque to clients, read by a schema like everything that comes from outside. They hold places, never secrets.

import { z } from "zod";
import { invalid } from "../answer.ts";

const BAD = "page: is not a cursor of this list";

export function writeCursor(place: Readonly<Record<string, unknown>>): string {
  return `page_${Buffer.from(JSON.stringify(place)).toString("base64url")}`;
}

/** Refuses garbage, and a cursor of another list. */
export function readCursor<T>(schema: z.ZodType<T>, page: string): T {
  const text = /^page_([A-Za-z0-9_-]+)$/.exec(page)?.[1];
  if (text === undefined) throw invalid(BAD);
  let place: unknown;
  try {
    place = JSON.parse(Buffer.from(text, "base64url").toString("utf8"));
  } catch {
    throw invalid(BAD);
  }
  const read = schema.safeParse(place);
  if (!read.success) throw invalid(BAD);
  return read.data;
}

export function refuseOtherOrder(cursor: { readonly o: string }, order: string): void {
  if (cursor.o !== order) throw invalid("page: this cursor belongs to the other order");
}

/** A place in a list ordered by (createdAt, id). `k` names the list, `d` the direction in which the page lies. */
export const placeCursor = (list: string) =>
  z.strictObject({
    k: z.literal(list),
    o: z.enum(["asc", "desc"]),
    d: z.enum(["next", "prev"]),
    c: z.int().nonnegative(),
    i: z.string().min(1).max(200),
  });
export type PlaceCursor = z.infer<ReturnType<typeof placeCursor>>;
