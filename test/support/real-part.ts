// Parts that a test needs for real (a program on this machine). In CI a missing one is a failure; on a laptop the tests are skipped, loudly.

import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { describe } from "vitest";

export type RealPart = "redis-server" | "gcc" | "docker" | "chromium";

export function isThere(part: RealPart): boolean {
  return (process.env.PATH ?? "").split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, part), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** `describe`, if all `parts` are here; else in CI an error, and on a laptop a `describe.skip` that says why. */
export function needs(...parts: readonly RealPart[]): typeof describe | typeof describe.skip {
  const missing = parts.filter((part) => !isThere(part));
  if (missing.length === 0) return describe;
  const reason = `${missing.join(" and ")} not found on PATH`;
  if (process.env.CI) throw new Error(`In CI nothing is skipped: ${reason}.`);
  process.stderr.write(`\n*** SKIPPED: ${reason}. ***\n`);
  return describe.skip;
}
