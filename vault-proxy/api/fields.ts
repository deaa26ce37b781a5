// What vaults and credentials have in common on the wire: ids that sort by age, metadata, times, pages.

import { createHash, randomBytes } from "node:crypto";
import { z } from "zod";
import { invalid } from "./refusal.ts";

const PAIRS_MAX = 16;
const PAGE_MAX = 100;
const PAGE_USUAL = 20;

const key = z.string().min(1).max(64);
const value = z.string().max(512);
export type Metadata = Readonly<Record<string, string>>;
export const Metadata = z
  .record(key, value)
  .refine((pairs) => Object.keys(pairs).length <= PAIRS_MAX, `at most ${PAIRS_MAX} pairs`)
  .meta({ maxProperties: PAIRS_MAX });
export const MetadataPatch = z.record(key, value.nullable());

/** A string sets, null deletes, absent keeps. The limit holds for the result. */
export function patched(metadata: Metadata, patch: z.infer<typeof MetadataPatch> | null | undefined): Metadata {
  if (!patch) return metadata;
  const merged = new Map(Object.entries(metadata));
  for (const [name, text] of Object.entries(patch)) {
    if (text === null) merged.delete(name);
    else merged.set(name, text);
  }
  if (merged.size > PAIRS_MAX) throw invalid(`metadata: at most ${PAIRS_MAX} pairs`);
  return Object.fromEntries(merged);
}

export const VaultId = z.string().regex(/^vlt_[0-9A-Za-z]{1,64}$/);
export const CredentialId = z.string().regex(/^vcrd_[0-9A-Za-z]{1,64}$/);

/** What stands in the API's document for a schema, where its own form would say too little. */
export const shown = new WeakMap<z.core.$ZodType, Readonly<Record<string, unknown>>>();
function shownAs<T extends z.ZodType>(schema: T, json: Readonly<Record<string, unknown>>): T {
  shown.set(schema, json);
  return schema;
}

export const time = shownAs(z.iso.datetime(), { type: "string", format: "date-time" });
/** RFC 3339 with any offset. */
export const instant = shownAs(z.iso.datetime({ offset: true }), { type: "string", format: "date-time" });
export const rfc3339 = (ms: number): string => new Date(ms).toISOString();

const flag = shownAs(
  z
    .enum(["true", "false"])
    .transform((text) => text === "true")
    .default(false),
  { type: "boolean", default: false },
);
const limit = shownAs(
  z
    .string()
    .regex(/^-?\d{1,15}$/, "must be an integer")
    .transform(Number)
    .refine((count) => count >= 1 && count <= PAGE_MAX, `must be from 1 to ${PAGE_MAX}`)
    .default(PAGE_USUAL),
  { type: "integer", minimum: 1, maximum: PAGE_MAX, default: PAGE_USUAL },
);
export const List = z.strictObject({
  include_archived: flag,
  limit,
  page: z.string().max(2048).optional().describe("A cursor of the page before."),
});
export type List = z.infer<typeof List>;

/** A place in a list that is ordered by id, newest first: everything older than that id. */
const Place = z.strictObject({ k: z.string(), i: z.string().max(200) });

export const cursorOf = (list: string, id: string): string => `page_${Buffer.from(JSON.stringify({ k: list, i: id })).toString("base64url")}`;

/** The id that a page comes after; refuses garbage and cursors of other lists. */
export function readCursor(list: string, page: string): string {
  const text = /^page_([A-Za-z0-9_-]+)$/.exec(page)?.[1];
  let place: unknown;
  try {
    place = JSON.parse(Buffer.from(text ?? "", "base64url").toString("utf8"));
  } catch {
    place = null;
  }
  const read = Place.safeParse(place);
  if (!read.success || read.data.k !== list) throw invalid("page: is not a cursor of this list");
  return read.data.i;
}

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZabcdefghjkmnpqrstvwxyz";
const TIME_CHARS = 8;
const RANDOM_CHARS = 16;
let newest = 0;

/** A fresh id and its time. Ids of one prefix sort as their times do, and no two of a process share one. */
export function mintOrdered(prefix: string): { readonly id: string; readonly at: number } {
  newest = Math.max(Date.now(), newest + 1);
  let spelled = "";
  for (let left = newest, at = 0; at < TIME_CHARS; at += 1, left = Math.floor(left / ALPHABET.length))
    spelled = `${ALPHABET[left % ALPHABET.length]}${spelled}`;
  let random = "";
  for (const byte of randomBytes(RANDOM_CHARS)) random += ALPHABET[byte % ALPHABET.length];
  return { id: `${prefix}_${spelled}${random}`, at: newest };
}

/** The time that an id was minted at. */
export function timeOf(id: string): number {
  let ms = 0;
  for (const letter of id.slice(id.indexOf("_") + 1).slice(0, TIME_CHARS)) ms = ms * ALPHABET.length + ALPHABET.indexOf(letter);
  return ms;
}

export function digestOf(...parts: readonly string[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(JSON.stringify(part));
  return hash.digest("hex");
}

/** A body as text in which the order of keys doesn't matter. */
export function canonical(body: unknown): string {
  return JSON.stringify(body, (_name, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)))
      : inner,
  );
}
