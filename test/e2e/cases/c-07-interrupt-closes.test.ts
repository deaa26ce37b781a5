// An interrupt stops what runs within seconds and closes each open call in the log for good: the turn ends as a normal stop, a late result is one clear
// refusal, and nothing offers or runs those calls again, whoever is started again.
//
// anthropics/anthropic-sdk-go#393, anthropics/anthropic-sdk-python#1750, anthropics/claude-agent-sdk-typescript#405

import Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { proves } from "../../support/proves.ts";
import { asking, type CaseSession, errorsOf, LOOK_UP, Stage, stopsOf, TOOLSET, textOf } from "./stage.ts";

const STOPPED_MS = 5_000;
const LONG = '{"command":"echo started >> marks.txt; sleep 60; echo ended >> marks.txt"}';

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

/** Interrupts, and gives how long it took until the session was idle with everything applied. */
async function stop(session: CaseSession): Promise<number> {
  const from = performance.now();
  await session.interrupt();
  await session.settled();
  return performance.now() - from;
}

/** Each use has one result, and the last idle is a normal stop without an error. */
async function expectClosed(session: CaseSession, uses: number): Promise<void> {
  const events = await session.events();
  const open = events.filter(({ type }) => type.endsWith("tool_use")).map(({ id }) => id);
  const closed = events.filter(({ type }) => type.endsWith("tool_result")).map((event) => event.tool_use_id ?? event.custom_tool_use_id);
  expect(open).toHaveLength(uses);
  expect([...closed].sort()).toEqual([...open].sort());
  expect(stopsOf(events).at(-1)).toBe("end_turn");
  expect(errorsOf(events)).toEqual([]);
}

/** The refusal's status, or null when it was taken. */
const refusalOf = (sent: Promise<unknown>): Promise<number | null> =>
  sent.then(
    () => null,
    (error: unknown) => (error instanceof Anthropic.APIError ? (error.status ?? 0) : Promise.reject(error)),
  );

describe.concurrent("an interrupt", () => {
  test("stops a tool of sixty seconds, and those that wait behind it", async () => {
    const session = await stage.session([TOOLSET]);
    await session.say(`call bash: ${LONG}\ncall bash: {"command":"echo second >> marks.txt"}\n---\nsay: never`);
    await session.has("agent.tool_use", 2);
    expect(await stop(session)).toBeLessThan(STOPPED_MS);
    await expectClosed(session, 2);
    expect((await session.results()).map(({ isError, text }) => isError && text.includes("interrupted"))).toEqual([true, true]);
    expect(await session.turn('call bash: {"command":"cat marks.txt || echo nothing"}\necho: saw')).toMatch(/^saw (started$|nothing)/);
    expect(session.requests().filter(({ rejected }) => rejected !== null)).toEqual([]);
  });

  test("keeps the results that are there, and the model sees them", async () => {
    const session = await stage.session([TOOLSET]);
    await session.say(`call bash: {"command":"echo quick"}\ncall bash: ${LONG}\n---\nsay: never`);
    await session.has("agent.tool_result");
    expect(await stop(session)).toBeLessThan(STOPPED_MS);
    await expectClosed(session, 2);
    await session.turn("say: next");
    const results = session.lastRequest().messages.flatMap(({ content }) => content.filter(({ type }) => type === "tool_result"));
    expect(results.map(({ content }) => textOf(content))).toEqual(["quick", expect.stringContaining("interrupted")]);
  });

  test("stops the model in mid-answer", async () => {
    const session = await stage.session();
    await session.say("token_delay: 100\nrepeat: 600 word");
    await session.has("span.model_request_start");
    expect(await stop(session)).toBeLessThan(STOPPED_MS);
    await expectClosed(session, 0);
    expect(await session.turn("say: next")).toBe("next");
  });

  test("stops a wait for the model that is to be asked again much later", async () => {
    const session = await stage.session();
    await session.say("error: 429 retry_after=60\nsay: never");
    await session.has("session.status_rescheduled");
    expect(await stop(session)).toBeLessThan(STOPPED_MS);
    expect(stopsOf(await session.events()).at(-1)).toBe("end_turn");
    expect(await session.turn("say: next")).toBe("next");
  });

  test("closes a client's own tool; the late result is one refusal and is not stored", async () => {
    const session = await stage.session([LOOK_UP]);
    await session.say("call look_up: {}\n---\nsay: never");
    const { id } = await session.has("agent.custom_tool_use");
    await session.has("session.status_idle");
    expect(await stop(session)).toBeLessThan(STOPPED_MS);
    const before = await session.events();
    const late = () => session.send({ type: "user.custom_tool_result", custom_tool_use_id: id, content: [{ type: "text", text: "late" }] });
    for (const _ of [1, 2]) expect(await refusalOf(late())).toBe(400);
    expect(await session.events()).toEqual(before);
    await expectClosed(session, 1);
    expect(await session.turn("say: next")).toBe("next");
  });

  test("closes a call that waits for a confirmation; the late one is one refusal and runs nothing", async () => {
    const session = await stage.session([asking("bash")]);
    await session.say('call bash: {"command":"echo ran >> marks.txt"}\n---\nsay: never');
    const { id } = await session.has("agent.tool_use");
    await session.has("session.status_idle");
    expect(await stop(session)).toBeLessThan(STOPPED_MS);
    expect(await refusalOf(session.send({ type: "user.tool_confirmation", tool_use_id: id, result: "allow" }))).toBe(400);
    await expectClosed(session, 1);
    expect(await session.turn("say: next")).toBe("next");
  });
});

proves("interrupt:closes", "what an interrupt closed is offered to nobody, also not after everything was started again", async () => {
  const [inTool, waiting] = [await stage.session([TOOLSET]), await stage.session([LOOK_UP])];
  await Promise.all([inTool.say(`call bash: ${LONG}\n---\nsay: never`), waiting.say("call look_up: {}\n---\nsay: never")]);
  await Promise.all([inTool.has("agent.tool_use"), waiting.has("session.status_idle")]);
  await Promise.all([stop(inTool), stop(waiting)]);
  const before = [await inTool.events(), await waiting.events()];
  await stage.restart("hands");
  await stage.restart("node");
  for (const session of [inTool, waiting]) expect(await session.turn("say: next")).toBe("next");
  const after = [await inTool.events(), await waiting.events()];
  for (const [at, events] of after.entries()) {
    expect(events.slice(0, before[at]?.length)).toEqual(before[at]);
    const added = events.slice(before[at]?.length).map(({ type }) => type);
    expect(added.filter((type) => type.includes("tool"))).toEqual([]);
  }
  for (const session of [inTool, waiting]) await expectClosed(session, 1);
});
