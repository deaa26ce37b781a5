// Running the official conformance suite against a server, and reading what came of it.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startNode } from "../support/process.ts";

const RUN_MS = 240_000;
const EXPECTED = "test/conformance/expected-failures.yml";
const SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

export interface Verdict {
  readonly code: number | null;
  /** The scenarios that count for the revision. */
  readonly scored: readonly { readonly name: string; readonly isPassed: boolean }[];
  readonly said: string;
}

/** Runs the scenarios of a revision; exit code 0 only if each scored one passed, or failed as the list of expected failures says. */
export async function runSuite(url: string, revision: string): Promise<Verdict> {
  const folder = await mkdtemp(join(tmpdir(), "manyhands-conformance-"));
  const requirements = ["--requirements", revision];
  try {
    const listed = await run(["list", "--server", ...requirements]);
    const names = new Set([...listed.said.matchAll(/^ {2}- (\S+)$/gm)].map(([, name]) => name));
    const { code, said } = await run(["server", "--url", url, ...requirements, "-o", folder, "--expected-failures", EXPECTED]);
    const summary = said.split("=== SUMMARY ===")[1] ?? "";
    const results = [...summary.matchAll(/^([✓✗]) (\S+): /gm)].map(([, mark, name = ""]) => ({ name, isPassed: mark === "✓" }));
    return { code, scored: results.filter(({ name }) => names.has(name)), said };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function run(args: readonly string[]): Promise<{ readonly code: number | null; readonly said: string }> {
  await using program = startNode(["--import", "./test/conformance/node20.mjs", SUITE, ...args]);
  const { code } = await program.exit(RUN_MS);
  return { code, said: program.stdout };
}
