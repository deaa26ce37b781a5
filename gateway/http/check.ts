// Outside data meets a schema here: what does not fit is refused with its path in front, and no value of the caller's is ever said back.

import type { z } from "zod";
import { invalid } from "../answer.ts";

const ISSUES_MAX = 5;
const NAME_CHARS_MAX = 100;

type Issue = z.core.$ZodIssue;

/** Reads `value` by `schema`; refuses with `<path>: <what is wrong>`, several joined by "; ". `explain` may add details
 *  by the first path. */
export function check<T>(schema: z.ZodType<T>, value: unknown, explain?: (path: string) => Record<string, unknown> | undefined): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const findings = read.error.issues.flatMap((issue) => findingsOf(issue));
  const says = findings.slice(0, ISSUES_MAX).map(({ path, message }) => `${path || "body"}: ${message}`);
  if (findings.length > ISSUES_MAX) says.push(`and ${findings.length - ISSUES_MAX} more`);
  throw invalid(says.join("; "), explain?.(findings[0]?.path ?? ""));
}

interface Finding {
  readonly path: string;
  readonly message: string;
}

function findingsOf(issue: Issue, under: readonly PropertyKey[] = []): Finding[] {
  const path = [...under, ...issue.path];
  const find = (message: string) => [{ path: pathOf(path), message }];
  switch (issue.code) {
    case "unrecognized_keys":
      return issue.keys.map((key) => ({ path: pathOf([...path, key]), message: "Extra inputs are not permitted" }));
    case "invalid_key":
    case "invalid_element":
      return find(issue.issues[0]?.message ?? issue.message);
    case "invalid_union": {
      // The branch that got furthest says most; one that failed at its very root says nothing about the rest.
      const branch = issue.errors.find((issues) => issues.some((inner) => inner.path.length > 0));
      return branch ? branch.flatMap((inner) => findingsOf(inner, path)) : find(issue.message);
    }
    case "invalid_type":
      return find(issue.message.endsWith("received undefined") ? "Field required" : issue.message);
    default:
      return find(issue.message);
  }
}

const pathOf = (path: readonly PropertyKey[]): string => path.map((part) => String(part).slice(0, NAME_CHARS_MAX)).join(".");
