// Events for a model: whole in number, cut where one of them is longer than it could use.

import { z } from "zod";

const STRING_CHARS_MAX = 8_000;

export const EventPage = z.object({ data: z.array(z.looseObject({ id: z.string(), type: z.string() })), next_page: z.string().nullable() });

/** The same value with every long string cut, which is said where it was cut. */
export function cut(value: unknown): unknown {
  if (typeof value === "string")
    return value.length <= STRING_CHARS_MAX
      ? value
      : `${value.slice(0, STRING_CHARS_MAX).toWellFormed()} [cut: ${value.length - STRING_CHARS_MAX} more characters]`;
  if (Array.isArray(value)) return value.map(cut);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, cut(inner)]));
}
