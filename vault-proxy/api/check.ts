// Outside data meets a schema here: what does not fit is refused with its path in front, and no value of the caller's is ever said back.

import type { z } from "zod";
import { invalid } from "./refusal.ts";

const ISSUES_MAX = 5;
const NAME_CHARS_MAX = 100;
const DEPTH_MAX = 64;

/** Reads `value` by `schema`; refuses with `<path>: <what is wrong>`, several joined by "; ". */
export function check<T>(schema: z.ZodType<T>, value: unknown): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const findings = read.error.issues.flatMap((issue) => findingsOf(issue));
  const says = findings.slice(0, ISSUES_MAX).map(({ path, message }) => `${path || "body"}: ${message}`);
  if (findings.length > ISSUES_MAX) says.push(`and ${findings.length - ISSUES_MAX} more`);
  throw invalid(says.join("; "));
}

/** A body as JSON: UTF-8, of bounded depth, without half characters and without names that JavaScript treats apart. */
export function parseJson(bytes: Buffer): unknown {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    // The parser's own words quote the body, which may hold a secret.
    throw invalid("body: The request body is not valid JSON");
  }
  const left: [value: unknown, depth: number][] = [[value, 0]];
  for (let next = left.pop(); next; next = left.pop()) {
    const [inner, depth] = next;
    if (typeof inner === "string" && !inner.isWellFormed()) throw halved();
    if (typeof inner !== "object" || inner === null) continue;
    if (depth >= DEPTH_MAX) throw invalid(`body: nested deeper than ${DEPTH_MAX} levels`);
    if (Object.hasOwn(inner, "__proto__")) throw invalid("__proto__: Extra inputs are not permitted");
    if (!Array.isArray(inner) && Object.keys(inner).some((name) => !name.isWellFormed())) throw halved();
    for (const each of Array.isArray(inner) ? inner : Object.values(inner)) left.push([each, depth + 1]);
  }
  return value;
}

/** A query string by a strict schema; `beta` says nothing, and an empty value counts as not given. */
export function readQuery<T>(schema: z.ZodType<T>, search: URLSearchParams): T {
  const given: Record<string, string | string[]> = {};
  for (const [name, value] of search) {
    if (name === "beta" || value === "") continue;
    if (name === "__proto__") throw invalid("__proto__: Extra inputs are not permitted");
    const before = given[name];
    given[name] = before === undefined ? value : [before, value].flat();
  }
  return check(schema, given);
}

const halved = () => invalid("body: The request body is not valid JSON: a string holds half of a surrogate pair");

interface Finding {
  readonly path: string;
  readonly message: string;
}

function findingsOf(issue: z.core.$ZodIssue, under: readonly PropertyKey[] = []): Finding[] {
  const path = [...under, ...issue.path];
  const find = (message: string) => [{ path: pathOf(path), message }];
  switch (issue.code) {
    case "unrecognized_keys":
      return issue.keys.map((key) => ({ path: pathOf([...path, key]), message: "Extra inputs are not permitted" }));
    case "invalid_key":
    case "invalid_element":
      return find(issue.issues[0]?.message ?? issue.message);
    case "invalid_type":
      return find(issue.message.endsWith("received undefined") ? "Field required" : issue.message);
    default:
      return find(issue.message);
  }
}

const pathOf = (path: readonly PropertyKey[]): string => path.map((part) => String(part).slice(0, NAME_CHARS_MAX)).join(".");
