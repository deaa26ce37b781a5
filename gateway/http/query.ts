// Query strings: bracket arrays (`types[]=`), the bare repeated form, flat date names (`created_at[gte]`); unknown names are refused.

import { z } from "zod";
import { invalid } from "../answer.ts";
import { check } from "./check.ts";
import { shownAs } from "./shown.ts";

/** Query names that SDKs send to every path and that say nothing to us. */
const IGNORED = new Set(["beta"]);

/** Reads a query string by a strict schema. An empty value counts as not given. */
export function readQuery<T>(schema: z.ZodType<T>, search: URLSearchParams): T {
  const given: Record<string, string | string[]> = {};
  for (const [name, value] of search) {
    if (IGNORED.has(name) || value === "") continue;
    if (name === "__proto__") throw invalid("__proto__: Extra inputs are not permitted");
    const isList = name.endsWith("[]");
    const key = isList ? name.slice(0, -2) : name;
    const before = given[key];
    given[key] = before === undefined ? (isList ? [value] : value) : [before, value].flat();
  }
  return check(schema, given);
}

export const page = z.string().max(2048).optional().describe("A cursor of the page before.");
export const order = z.enum(["asc", "desc"]);
const trueOrFalse = z.enum(["true", "false"]).transform((text) => text === "true");
export const flag = shownAs(trueOrFalse.default(false), { type: "boolean", default: false });

const wholeNumber = (min: number, max: number) =>
  z
    .string()
    .regex(/^-?\d{1,15}$/, "must be an integer")
    .transform(Number)
    .refine((value) => value >= min && value <= max, `must be from ${min} to ${max}`);

export const integer = (min: number, max: number) => shownAs(wholeNumber(min, max).optional(), { type: "integer", minimum: min, maximum: max });

export const limit = (max: number, usual: number) =>
  shownAs(wholeNumber(1, max).default(usual), { type: "integer", minimum: 1, maximum: max, default: usual });

/** One or many values of a list parameter. */
export const list = <T extends z.ZodType>(item: T, max: number) =>
  z.preprocess((given) => (typeof given === "string" ? [given] : given), z.array(item).max(max));

const TIME = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+ -]\d\d:\d\d)$/;
/** RFC 3339 → milliseconds. A plus sign that the query string turned into a space is taken for one. */
const instant = z.string().transform((text, context) => {
  const at = TIME.test(text) ? Date.parse(text.replace(/ (\d\d:\d\d)$/, "+$1")) : Number.NaN;
  if (Number.isNaN(at)) context.addIssue({ code: "custom", message: "must be an RFC 3339 time" });
  return at;
});
const time = () => shownAs(instant.optional(), { type: "string", format: "date-time" });

/** `created_at[…]` filters; all four, or those that a list has. */
export const CREATED_AT = {
  "created_at[gt]": time(),
  "created_at[gte]": time(),
  "created_at[lt]": time(),
  "created_at[lte]": time(),
};

export interface Range {
  readonly gt?: number;
  readonly gte?: number;
  readonly lt?: number;
  readonly lte?: number;
}

/** The filters that were given, or null. */
export function rangeOf(query: Readonly<Record<string, unknown>>): Range | null {
  const range: { -readonly [side in keyof Range]: Range[side] } = {};
  for (const side of ["gt", "gte", "lt", "lte"] as const) {
    const at = query[`created_at[${side}]`];
    if (typeof at === "number") range[side] = at;
  }
  return Object.keys(range).length > 0 ? range : null;
}

export function isWithin(at: number, { gt, gte, lt, lte }: Range): boolean {
  return !(gt !== undefined && at <= gt) && !(gte !== undefined && at < gte) && !(lt !== undefined && at >= lt) && !(lte !== undefined && at > lte);
}
