// The Claude harness: asks the model through the vault proxy's model route, hands over its reply, asks again with the results.

import type { Harness, HarnessSession, RunEnd } from "../harness.ts";
import { ModelClient } from "./client.ts";
import { gradingRequest, judgedOf } from "./grade.ts";
import { noteRefusal } from "./refused.ts";
import { requestOf } from "./request.ts";

export interface ClaudeOptions {
  /** Output tokens of one reply, the same for every request. */
  readonly maxTokens?: number;
  /** A stream that says nothing for so long has failed. */
  readonly idleMs?: number;
}

const MAX_TOKENS = 16_384;
/** The vault proxy ends a silent answer long before; this is for a proxy that is silent itself. */
const IDLE_MS = 660_000;

export function claudeHarness(options: ClaudeOptions = {}): Harness {
  const client = new ModelClient(options.idleMs ?? IDLE_MS);
  const maxTokens = options.maxTokens ?? MAX_TOKENS;
  return {
    name: "claude",
    run: (session) => run(session, client, maxTokens),
    async evaluate(task) {
      const model = await task.model();
      return judgedOf(await client.ask(model, gradingRequest(task, maxTokens), task.signal, () => {}));
    },
  };
}

async function run(session: HarnessSession, client: ModelClient, maxTokens: number): Promise<RunEnd> {
  for (;;) {
    const span = await session.begin();
    const [tools, model] = await Promise.all([session.listTools(), session.model()]);
    const request = requestOf(session.agent, tools, session.getEvents(), maxTokens);
    const answer = await client.ask(model, request, session.signal, (piece) => session.preview(span, piece));
    if (answer.type === "failed") {
      if (answer.refused !== null) await noteRefusal(session, answer.refused);
      if ((await session.fail(span, answer.failure)) === "stop") return { type: "stopped" };
      continue;
    }
    const { waiting } = await session.respond(span, answer.reply);
    if (waiting) return { type: "waiting" };
    if (answer.reply.stop_reason === "refusal") return { type: "refusal", ...answer.refusal };
    const hasCalls = answer.reply.content.some((block) => block.type === "tool_use");
    if (!hasCalls && answer.reply.stop_reason !== "pause_turn") return { type: "end_turn" };
  }
}
