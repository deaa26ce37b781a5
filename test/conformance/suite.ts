// Running the official conformance suite against a server, or with our client, and reading what came of it.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { startNode } from "../support/process.ts";

const RUN_MS = 240_000;
const CLIENT_RUN_MS = 900_000;
/** For one scenario; all are started at the same moment. */
const CLIENT_MS = 840_000;
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
  return judged("server", revision, ["--url", url]);
}

/** The same for our client: client.ts is what the suite starts, client-host.ts what plays. */
export async function runClientSuite(revision: string): Promise<Verdict> {
  await using host = startNode(["dist/test/conformance/client-host.js"]);
  const { address } = await host.logged("process.listening");
  const { port } = z.object({ port: z.number() }).parse(address);
  const command = `${process.execPath} dist/test/conformance/client.js`;
  return await judged("client", revision, ["--command", command, "--timeout", String(CLIENT_MS)], { MANYHANDS_CONFORMANCE_HOST: String(port) });
}

async function judged(
  side: "server" | "client",
  revision: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Verdict> {
  const folder = await mkdtemp(join(tmpdir(), "manyhands-conformance-"));
  const requirements = ["--requirements", revision];
  try {
    const listed = await run(["list", `--${side}`, ...requirements]);
    const names = new Set([...listed.said.matchAll(/^ {2}- (\S+)$/gm)].map(([, name]) => name));
    const limit = side === "client" ? CLIENT_RUN_MS : RUN_MS;
    const { code, said } = await run([side, ...args, ...requirements, "-o", folder, "--expected-failures", EXPECTED], env, limit);
    const summary = said.split(/=== (?:SUITE )?SUMMARY ===/)[1] ?? "";
    const results = [...summary.matchAll(/^([✓✗]) (\S+): /gm)].map(([, mark, name = ""]) => ({ name, isPassed: mark === "✓" }));
    return { code, scored: results.filter(({ name }) => names.has(name)), said };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function run(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  limitMs = RUN_MS,
): Promise<{ readonly code: number | null; readonly said: string }> {
  await using program = startNode(["--import", "./test/conformance/node20.mjs", SUITE, ...args], { env });
  const { code } = await program.exit(limitMs);
  return { code, said: program.stdout };
}
