// Running the official conformance suite against a server, and reading what came of it.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startNode } from "../support/process.ts";

const RUN_MS = 240_000;
const SUITE = "node_modules/@modelcontextprotocol/conformance/dist/index.js";

export interface Verdict {
  readonly code: number | null;
  readonly said: string;
}

/** Runs the scored scenarios of a revision; exit code 0 only if each passed, or failed as the list says. */
export async function runSuite(url: string, revision: string, more: readonly string[] = []): Promise<Verdict> {
  const folder = await mkdtemp(join(tmpdir(), "manyhands-conformance-"));
  const expected = ["--expected-failures", "test/conformance/expected-failures.yml"];
  const args = [
    "--import",
    "./test/conformance/node20.mjs",
    SUITE,
    "server",
    "--url",
    url,
    "--requirements",
    revision,
    "-o",
    folder,
    ...expected,
    ...more,
  ];
  await using program = startNode(args);
  try {
    const { code } = await program.exit(RUN_MS);
    return { code, said: `${program.stdout}\n${program.stderr}` };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
