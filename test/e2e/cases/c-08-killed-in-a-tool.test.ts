// Whatever the moment of a hard kill, "continue" works: each call has one result right after it, the model refuses nothing, and starting everything once
// more adds nothing.
//
// kagent-dev/kagent#2277, charmbracelet/crush#2622, aaif-goose/goose#2951, github/copilot-cli#3366, openclaw/openclaw#104993 and #95866

import { afterAll, beforeAll, expect, test } from "vitest";
import type { FaultPointName } from "../../../session-store/fault-point.ts";
import { danglingSpansOf, disorderedEventsOf, unpairedCallsOf, type WireEvent } from "../../chaos/wire-checkers.ts";
import { type CaseSession, Stage, stopsOf, TOOLSET } from "./stage.ts";

const POINTS: readonly FaultPointName[] = ["model-streaming", "reply-stored", "tool-running", "result-stored"];
const SCRIPT =
  'token_delay: 5\nsay: two calls, side by side\ncall bash: {"command":"echo one; sleep 0.3"}\ncall bash: {"command":"echo two"}\n---\nsay: done';

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

/** Sessions that went on, as they were then. */
const past: { readonly session: CaseSession; readonly events: readonly WireEvent[] }[] = [];

for (const point of POINTS) {
  test(`killed at ${point} and told to continue`, async () => {
    const session = await stage.session([TOOLSET]);
    const { installation } = stage;
    await installation.kill("node");
    await installation.start("node", point);
    await session.say(SCRIPT);
    await installation.reached("node", point);
    // Without the hand host nobody can tell any more what its tools came to.
    await Promise.all([installation.kill("node"), installation.kill("hands")]);
    await installation.startMissing();
    await session.say("say: continued");
    const events = await session.settled();

    expect(await session.lastWords()).toBe("continued");
    expect([...unpairedCallsOf(events), ...danglingSpansOf(events), ...disorderedEventsOf(events)]).toEqual([]);
    expect(stopsOf(events).at(-1)).toBe("end_turn");
    expect(session.requests().filter(({ rejected }) => rejected !== null)).toEqual([]);
    past.push({ session, events });
  });
}

test("started once more, nothing is added, and each takes another turn", async () => {
  expect(past).toHaveLength(POINTS.length);
  const asked = past.map(({ session }) => session.requests().length);
  await stage.restart("node");
  for (const [at, { session, events }] of past.entries()) {
    expect(await session.settled()).toEqual(events);
    expect(await session.turn("say: and again")).toBe("and again");
    const after = await session.events();
    expect(after.slice(0, events.length)).toEqual(events);
    expect(after.slice(events.length).filter(({ type }) => type.includes("tool"))).toEqual([]);
    expect(session.requests()).toHaveLength((asked[at] ?? 0) + 1);
  }
});
