// Whatever the moment of a hard kill, "continue" works: each call has one result right after it, the model refuses nothing, and starting everything once
// more adds nothing.
//
// kagent-dev/kagent#2277, charmbracelet/crush#2622, aaif-goose/goose#2951, github/copilot-cli#3366, openclaw/openclaw#104993 and #95866

import { afterAll, beforeAll, expect, test } from "vitest";
import type { FaultPointName } from "../../../session-store/fault-point.ts";
import { danglingSpansOf, disorderedEventsOf, unpairedCallsOf } from "../../chaos/wire-checkers.ts";
import { Stage, stopsOf, TOOLSET } from "./stage.ts";

const POINTS: readonly FaultPointName[] = ["model-streaming", "reply-stored", "tool-running", "result-stored", "before-finish"];
const SCRIPT =
  'token_delay: 5\nsay: two calls, side by side\ncall bash: {"command":"echo one; sleep 0.3"}\ncall bash: {"command":"echo two"}\n---\nsay: done';

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

for (const point of POINTS) {
  test(`killed at ${point}, told to continue, and started once more`, async () => {
    const session = await stage.session([TOOLSET]);
    const { installation } = stage;
    await installation.stop("node");
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

    const asked = session.requests().length;
    await stage.restart("node");
    expect(await session.settled()).toEqual(events);
    expect(await session.turn("say: and again")).toBe("and again");
    const after = await session.events();
    expect(after.slice(0, events.length)).toEqual(events);
    expect(after.slice(events.length).filter(({ type }) => type.includes("tool"))).toEqual([]);
    expect(session.requests()).toHaveLength(asked + 1);
  });
}
