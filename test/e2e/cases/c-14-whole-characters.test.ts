// Every string that is stored or sent is well-formed: cuts never part a character, stray halves from tools and from the model are replaced before they
// reach the log, and a client's are refused. A half in a log would have every later request of its session refused.
//
// anthropics/claude-code#69927 and #56064, elizaOS/eliza#18079

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { proves } from "../../support/proves.ts";
import { type CaseSession, Stage, TOOLSET, textOf } from "./stage.ts";

const EMOJI = "😀";
/** A code unit that is half a character, in JSON's spelling. */
const HALF = "\\ud83d";

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

function isWhole(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (Array.isArray(value)) return value.every(isWhole);
  return typeof value !== "object" || value === null || Object.entries(value).every(([name, inner]) => name.isWellFormed() && isWhole(inner));
}

/** What everybody sees is whole, and three more turns work. */
async function expectWhole(session: CaseSession): Promise<void> {
  for (const words of ["one", "two", "three"]) expect(await session.turn(`say: ${words}`)).toBe(words);
  expect((await session.events()).filter((event) => !isWhole(event))).toEqual([]);
  expect(session.requests().filter(({ body, rejected }) => rejected !== null || !isWhole(body))).toEqual([]);
}

const call = (tool: string, input: string) => `call ${tool}: ${input}\n---\nsay: seen`;

describe.concurrent("tool output", () => {
  proves("text:whole", "with an emoji across both ends of what is left out", async () => {
    const session = await stage.session([TOOLSET]);
    const long = `${"x".repeat(9_999)}${EMOJI.repeat(50_001)}y`;
    await session.turn(`call write: ${JSON.stringify({ file_path: "long.txt", content: long })}\n---\n${call("bash", '{"command":"cat long.txt"}')}`);
    const shown = (await session.results()).at(-1)?.text ?? "";
    expect(shown.length).toBeLessThan(25_000);
    expect(shown.startsWith(`${"x".repeat(9_999)}\n`)).toBe(true);
    expect(shown.endsWith(`${EMOJI}y`)).toBe(true);
    await expectWhole(session);
  });

  test("of grep, with an emoji across its cut of a long line", async () => {
    const session = await stage.session([TOOLSET]);
    const line = `${"x".repeat(499)}${EMOJI.repeat(600)}`;
    await session.turn(`call write: ${JSON.stringify({ file_path: "line.txt", content: line })}\n---\n${call("grep", '{"pattern":"x"}')}`);
    expect((await session.results()).at(-1)?.text).toMatch(/x…$/);
    await expectWhole(session);
  });

  test.each([
    ["printed by an escape", `printf '${HALF}'`],
    ["cut out of a variable", `x=${EMOJI}; echo "\${x:0:1}"; echo "\${x:1}" >&2`],
    ["cut out of a line", `echo ${EMOJI} | cut -c1; echo ${EMOJI} | head -c 2`],
    ["in bytes that are none", "printf '\\355\\240\\275\\200\\377'"],
    ["in a file's name", `touch "$(printf '${HALF}')"; ls; cat "$(printf '${HALF}')x"`],
  ])("with half a character %s", async (_name, command) => {
    const session = await stage.session([TOOLSET]);
    await session.turn(call("bash", JSON.stringify({ command }).replaceAll("\\\\ud83d", HALF)));
    expect(await session.results()).toHaveLength(1);
    await expectWhole(session);
  });

  test("of a custom tool, with half a character, is refused at the door", async () => {
    const session = await stage.session([{ type: "custom", name: "look_up", description: "Looks.", input_schema: { type: "object" } }]);
    await session.say("call look_up: {}\n---\nsay: seen");
    const use = await session.has("agent.custom_tool_use");
    const result = `{"type":"user.custom_tool_result","custom_tool_use_id":"${use.id}","content":[{"type":"text","text":"a${HALF}b"}]}`;
    expect(await postRaw(session, result)).toBe(400);
    await session.send({ type: "user.custom_tool_result", custom_tool_use_id: use.id, content: [{ type: "text", text: "whole" }] });
    await session.settled();
    await expectWhole(session);
  });
});

describe.concurrent("what the model says", () => {
  test("with half a character in its text and in its thinking's neighbour", async () => {
    const session = await stage.session();
    await session.turn("think: hm\nsay: a\\u{D83D}b\\u{DE00}");
    expect(await session.lastWords()).toBe("a\uFFFDb\uFFFD");
    await expectWhole(session);
  });

  test.each([
    ["a value", `{"command":"echo a${HALF}b"}`],
    ["a name", `{"command":"echo a","${HALF}":"x"}`],
    ["a name within", `{"command":"echo a","env":{"${HALF}":["${HALF}"]}}`],
  ])("with half a character in %s of a tool's input", async (_name, input) => {
    const session = await stage.session([TOOLSET]);
    await session.turn(call("bash", input));
    await expectWhole(session);
  });

  test("in an error message that is cut in the middle of an emoji", async () => {
    const session = await stage.session();
    await session.say(`error: 400 message="${"x".repeat(999)}${EMOJI.repeat(20)}"\nsay: never`);
    await session.settled();
    await expectWhole(session);
  });
});

describe.concurrent("what a client sends", () => {
  test.each([
    ["a message", `{"type":"user.message","content":[{"type":"text","text":"a${HALF}"}]}`],
    ["a name in a message", `{"type":"user.message","content":[{"type":"text","text":"a"}],"${HALF}":1}`],
    [
      "a document's title",
      `{"type":"user.message","content":[{"type":"document","title":"${HALF}","source":{"type":"text","media_type":"text/plain","data":"x"}}]}`,
    ],
  ])("half a character in %s is refused, and nothing is stored", async (_name, event) => {
    const session = await stage.session();
    expect(await postRaw(session, event)).toBe(400);
    expect(await session.events()).toEqual([]);
    await expectWhole(session);
  });

  test("a whole pair in JSON's spelling is one character", async () => {
    const session = await stage.session();
    expect(await postRaw(session, `{"type":"user.message","content":[{"type":"text","text":"echo: \\ud83d\\ude00 ${session.nonce}"}]}`)).toBe(200);
    await session.settled();
    expect(textOf((await session.eventsOf("user.message"))[0]?.content)).toContain(EMOJI);
    await expectWhole(session);
  });
});

/** One event as this text, unescaped by any client. */
async function postRaw(session: CaseSession, event: string): Promise<number> {
  const { url, apiKey } = stage.installation;
  const headers = { "x-api-key": apiKey, "content-type": "application/json" };
  const answer = await fetch(`${url}/v1/sessions/${session.id}/events`, { method: "POST", headers, body: `{"events":[${event}]}` });
  await answer.body?.cancel();
  return answer.status;
}
