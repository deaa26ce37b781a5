// A tool's effect happens once. A call whose outcome nobody can tell is not run again: the model is told that it may have run. A result that was
// produced is what the model sees, and trouble with the model afterwards runs nothing again.
//
// microsoft/agent-framework#3938, agentarea/agentarea#320, QwenLM/qwen-code#9573

import { afterAll, beforeAll, expect, test } from "vitest";
import type { FaultPointName } from "../../../session-store/fault-point.ts";
import { effectsBelow } from "../../chaos/kill.ts";
import { proves } from "../../support/proves.ts";
import { until } from "../../support/until.ts";
import { type CaseSession, resultsIn, Stage, stopsOf, TOOLSET, textOf } from "./stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

/** Counts in the hand, then goes on for a while. */
const count = (session: CaseSession, after = "sleep 0.2") =>
  `call bash: ${JSON.stringify({ command: `echo ${session.nonce} >> effects.txt; ${after}; echo counted $(grep -c . effects.txt)` })}\n---\nsay: done`;
const counted = async (session: CaseSession) => (await effectsBelow(stage.installation.dataDir)).filter((line) => line === session.nonce).length;
const toldIn = (session: CaseSession) =>
  resultsIn(session.lastRequest()).map((result) => ({ text: textOf(result.content), isError: result.is_error === true }));

async function holdAt(point: FaultPointName, session: CaseSession, script: string): Promise<void> {
  const { installation } = stage;
  await installation.kill("node");
  await installation.start("node", point);
  await session.say(script);
  await installation.reached("node", point);
}

test.each(["tool-running", "result-stored"] as const)(
  "a brain that is killed at %s: the tool ran once, and the model sees what it said",
  async (point) => {
    const session = await stage.session([TOOLSET]);
    await holdAt(point, session, count(session));
    await until(async () => (await counted(session)) === 1);
    await stage.restart("node");
    expect(stopsOf(await session.settled())).toEqual(["end_turn"]);
    expect(await counted(session)).toBe(1);
    expect(toldIn(session)).toEqual([{ text: "counted 1", isError: false }]);
  },
);

test("a hand that is killed in a call: the effect happened once, and the model is told that it may have", async () => {
  const session = await stage.session([TOOLSET]);
  await session.say(count(session, "sleep 30"));
  await until(async () => (await counted(session)) === 1);
  await stage.restart("hands");
  expect(stopsOf(await session.settled())).toEqual(["end_turn"]);
  expect(await counted(session)).toBe(1);
  expect(toldIn(session)).toEqual([{ text: expect.stringMatching(/may have run/), isError: true }]);
});

proves("tool:at-most-once", "brain and hand killed together in a call: the same, and later turns don't run it either", async () => {
  const session = await stage.session([TOOLSET]);
  await holdAt("tool-running", session, count(session, "sleep 30"));
  await until(async () => (await counted(session)) === 1);
  await Promise.all([stage.installation.kill("node"), stage.installation.kill("hands")]);
  await stage.installation.startMissing();
  expect(stopsOf(await session.settled())).toEqual(["end_turn"]);
  expect(toldIn(session)).toEqual([{ text: expect.stringMatching(/may have run/), isError: true }]);
  await stage.restart("node");
  expect(await session.turn("say: next")).toBe("next");
  expect(await counted(session)).toBe(1);
});

test.each(["error: 500 times=2", "sse_error: overloaded_error times=1 after=2", "drop: times=1 after=2"])(
  "a model that fails after the result (%s) runs nothing again",
  async (fault) => {
    const session = await stage.session([TOOLSET]);
    await session.turn(count(session).replace("say: done", `${fault}\nsay: done`));
    expect(await session.lastWords()).toBe("done");
    expect(await counted(session)).toBe(1);
    expect(toldIn(session)).toEqual([{ text: "counted 1", isError: false }]);
  },
);

test("a model that refuses the request after the result ends the turn; the next message runs nothing again", async () => {
  const session = await stage.session([TOOLSET]);
  await session.turn(count(session).replace("say: done", "error: 400\nsay: done"));
  expect(stopsOf(await session.events())).toEqual(["retries_exhausted"]);
  expect(await session.turn("say: next")).toBe("next");
  expect(await counted(session)).toBe(1);
  expect(toldIn(session)).toEqual([{ text: "counted 1", isError: false }]);
});
