// `metadata`: at most 16 pairs of strings; on update a patch (contract §1.4).

import { z } from "zod";
import { invalid } from "../answer.ts";

const PAIRS_MAX = 16;
const key = z.string().min(1).max(64);
const value = z.string().max(512);

export type Metadata = Readonly<Record<string, string>>;
export const Metadata = z
  .record(key, value)
  .refine((pairs) => Object.keys(pairs).length <= PAIRS_MAX, `at most ${PAIRS_MAX} pairs`)
  .meta({ maxProperties: PAIRS_MAX });

export type MetadataPatch = Readonly<Record<string, string | null>>;
export const MetadataPatch = z.record(key, value.nullable());

/** A string sets, null deletes, absent keeps. The limit holds for the result. */
export function patched(
  metadata: Metadata,
  patch: MetadataPatch | null | undefined,
  options: { readonly emptyDeletes?: boolean; readonly details?: Record<string, unknown> } = {},
): Metadata {
  if (!patch) return metadata;
  const merged = new Map(Object.entries(metadata));
  for (const [name, text] of Object.entries(patch)) {
    if (text === null || (text === "" && options.emptyDeletes)) merged.delete(name);
    else merged.set(name, text);
  }
  if (merged.size > PAIRS_MAX) throw invalid(`metadata: at most ${PAIRS_MAX} pairs`, options.details);
  return Object.fromEntries(merged);
}
