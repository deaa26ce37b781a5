// A harness whose thinking is done by a process of its own: it reaches the session's hands by `hands()` alone, over HTTP.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import type { Harness, HarnessSession } from "../../harnesses/harness.ts";

const PROGRAM = fileURLToPath(new URL("./outside-process.mjs", import.meta.url));
const NO_USAGE = { input_tokens: 0, output_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 };

const Answer = z.object({ text: z.string(), structured: z.unknown().optional(), isError: z.boolean() });
const Report = z.object({ tools: z.array(z.string()), bash: Answer, docs: Answer, log: Answer });
export type Report = z.infer<typeof Report>;

/** Each turn starts the process, hands it what `hands()` gives, and says what it said; `heard` gets the whole report and the key. */
export function outsideHarness(heard: (report: Report, given: { url: string; key: string }) => void): Harness {
  return {
    name: "outside",
    async run(session: HarnessSession) {
      const span = await session.begin();
      const given = await session.hands();
      const report = await work(given, session.signal);
      heard(report, given);
      const content = [{ type: "text" as const, text: `outside says: ${report.bash.text}` }];
      await session.respond(span, { model: "outside", stop_reason: "end_turn", content, truncated: [], usage: NO_USAGE });
      return { type: "end_turn" };
    },
  };
}

async function work(given: { url: string; key: string }, signal: AbortSignal): Promise<Report> {
  const child = spawn(process.execPath, [PROGRAM], { env: { PATH: process.env.PATH ?? "" }, stdio: ["pipe", "pipe", "inherit"], signal });
  try {
    // Not in its arguments: everybody on the machine can read those.
    child.stdin.end(`${JSON.stringify({ ...given, marks: "marks" })}\n`);
    for await (const line of createInterface({ input: child.stdout })) return Report.parse(JSON.parse(line));
    throw new Error("the process ended without a word");
  } finally {
    child.kill();
  }
}
