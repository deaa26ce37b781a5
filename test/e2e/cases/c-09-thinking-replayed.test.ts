// What a model thought goes back to it exactly as it came: order, text (an empty one too), signatures and redacted data, whatever died in between;
// thinking that can never validate is left out instead.
//
// anthropics/claude-code#63277, agno-agi/agno#9924, agentforce314/clawcodex#862

import { afterAll, beforeAll, expect, test } from "vitest";
import type { FaultPointName } from "../../../session-store/fault-point.ts";
import type { ModelRequest } from "../../support/model/request.ts";
import { redact, sign } from "../../support/model/rules.ts";
import type { Step } from "../../support/model/script.ts";
import { proves } from "../../support/proves.ts";
import { type CaseSession, Stage, TOOLSET } from "./stage.ts";

const HOLDS: readonly FaultPointName[] = ["reply-stored", "result-stored"];

/** Thinking between the calls of one reply, which a script's lines can't say. */
const MIXED: Step = {
  actions: [
    { type: "thinking", text: "First 😀  two  spaces\nand a line. " },
    { type: "redacted_thinking", text: "hidden" },
    { type: "text", text: "I look at it. " },
    { type: "call", name: "bash", input: { command: "echo one", timeout_ms: 5_000 } },
    { type: "thinking", text: "" },
    { type: "call", name: "bash", input: { timeout_ms: 5_000, command: "echo two" } },
  ],
};
const id = expect.stringMatching(/^toolu_[0-9a-f]{24}$/);
const AS_IT_CAME = [
  { type: "thinking", thinking: "First 😀  two  spaces\nand a line. ", signature: sign("First 😀  two  spaces\nand a line. ") },
  { type: "redacted_thinking", data: redact("hidden") },
  { type: "text", text: "I look at it. " },
  { type: "tool_use", id, name: "bash", input: { command: "echo one", timeout_ms: 5_000 } },
  { type: "thinking", thinking: "", signature: sign("") },
  { type: "tool_use", id, name: "bash", input: { timeout_ms: 5_000, command: "echo two" } },
];
const SCRIPT = "mixed\nsay: (played otherwise)\n---\nthink: Now I know.\nsay: done";

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open({ model: { play } });
});
afterAll(() => stage.close());

function play({ messages }: ModelRequest): Step | null {
  const isFirst = messages.every(({ role }) => role === "user");
  return isFirst && JSON.stringify(messages).includes("mixed\\n") ? MIXED : null;
}

const repliesTo = (session: CaseSession) => session.lastRequest().messages.flatMap(({ role, content }) => (role === "assistant" ? [content] : []));

for (const point of HOLDS) {
  proves("history:exact", `a reply goes back as it came after a crash at ${point}, after a retry, and in later turns`, async () => {
    const session = await stage.session([TOOLSET]);
    const { installation } = stage;
    await installation.kill("node");
    await installation.start("node", point);
    await session.say(SCRIPT);
    await installation.reached("node", point);
    await installation.kill("node");
    await installation.start("node");
    await session.settled();

    expect(await session.lastWords()).toBe("done");
    expect(repliesTo(session)).toEqual([AS_IT_CAME]);
    await session.turn("error: 529 times=1\nsay: next");
    const again = [
      { type: "thinking", thinking: "Now I know.", signature: sign("Now I know.") },
      { type: "text", text: "done" },
    ];
    expect(repliesTo(session)).toEqual([AS_IT_CAME, again]);
    expect(session.requests().filter(({ rejected }) => rejected !== null)).toEqual([]);
  });
}

test("thinking without a signature is left out, and nothing else of its reply", async () => {
  const session = await stage.session([TOOLSET]);
  await session.turn('unsigned_think: never proved\nsay: I look.\ncall bash: {"command":"echo one"}\n---\nunsigned_think: again\nsay: done');
  await session.turn("say: next");
  expect(repliesTo(session)).toEqual([
    [
      { type: "text", text: "I look." },
      { type: "tool_use", id, name: "bash", input: { command: "echo one" } },
    ],
    [{ type: "text", text: "done" }],
  ]);
  expect(await session.lastWords()).toBe("next");
  expect(session.requests().filter(({ rejected }) => rejected !== null)).toEqual([]);
});
