// How a schema is shown in the OpenAPI document where its own form would say too little: what is text in a query string is a number, a flag or a
// time to whoever sends it.

import type { z } from "zod";

type Json = Readonly<Record<string, unknown>>;

/** What stands in the document for a schema, instead of its own form. */
export const shown = new WeakMap<z.core.$ZodType, Json>();

/** The same schema, shown as `json`. */
export function shownAs<T extends z.ZodType>(schema: T, json: Json): T {
  shown.set(schema, json);
  return schema;
}

/** What nothing is. As one of several forms it is left out of the document. */
export const NEVER: Json = { not: {} };
