// The part of a list ordered by (created_at, id) that a query asks for, as the bounds of one index range.

export interface Range {
  /** Strictly beyond this place, in the list's order. */
  readonly from: readonly [createdAt: number, id: string];
  /** Up to this time, itself included. */
  readonly to: number;
}

interface Bounded {
  readonly order: "asc" | "desc";
  readonly beyond?: { readonly createdAt: number; readonly id: string };
  readonly createdAt?: { readonly gt?: number; readonly gte?: number; readonly lt?: number; readonly lte?: number };
}

/** Times are whole milliseconds, so that "after t" is "from t + 1" and "up to t" is "before (t + 1, no id)". */
export function rangeOf({ order, beyond, createdAt = {} }: Bounded): Range {
  const { gt = -2, gte = -1, lt = Number.MAX_SAFE_INTEGER, lte = Number.MAX_SAFE_INTEGER } = createdAt;
  const first = Math.max(Math.floor(gt) + 1, Math.ceil(gte));
  const last = Math.min(Math.ceil(lt) - 1, Math.floor(lte));
  if (order === "asc") return { from: beyond && beyond.createdAt >= first ? [beyond.createdAt, beyond.id] : [first, ""], to: last };
  return { from: beyond && beyond.createdAt <= last ? [beyond.createdAt, beyond.id] : [last + 1, ""], to: first };
}
