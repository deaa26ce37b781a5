// Parts that a test needs for real (a program on this machine). In CI a missing one is a failure; on a laptop the tests are skipped, loudly.

import { accessSync, constants, existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { describe } from "vitest";

export type RealPart = "redis-server" | "gcc" | "docker" | "chromium" | "claude" | "unshare";

/** Claude Code's program: installed in a folder of its own, where this variable says, or on PATH. */
export const CLAUDE_CODE = process.env.TEST_CLAUDE_CODE || "claude";

/** A container engine is there when it listens. */
export const ENGINE_SOCKET = "/var/run/docker.sock";

export function isThere(part: RealPart): boolean {
  if (part === "docker") return existsSync(ENGINE_SOCKET);
  // A name space of its own is root's to make.
  if (part === "unshare" && process.getuid?.() !== 0) return false;
  if (part === "claude" && CLAUDE_CODE !== part) return existsSync(CLAUDE_CODE);
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
  const reason = missing.map(whyMissing).join(" and ");
  if (process.env.CI) throw new Error(`In CI nothing is skipped: ${reason}.`);
  process.stderr.write(`\n*** SKIPPED: ${reason}. ***\n`);
  return describe.skip;
}

function whyMissing(part: RealPart): string {
  if (part === "docker") return `no container engine at ${ENGINE_SOCKET}`;
  if (part === "unshare") return "unshare not found on PATH, or not run as root";
  return part === "claude" ? "no Claude Code where TEST_CLAUDE_CODE says, nor on PATH" : `${part} not found on PATH`;
}
