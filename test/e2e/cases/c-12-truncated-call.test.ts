// A reply that ends at the token limit inside a call: the call is not run, the model is told that the limit was the cause, and after three in a row
// the turn ends with a typed error.
//
// DataDog/integrations-core#24260, OpenRouterTeam/typescript-agent#125, aaif-goose/goose#7527

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { errorsOf, resultsIn, Stage, stopsOf, TOOLSET, textOf } from "./stage.ts";

const PARSES = '{"command":"echo ran >> ran.txt"}';
const BROKEN = '{"command":"echo ran >> ran.txt; echo \\"';
const cutWith = (...inputs: readonly string[]) => inputs.map((input) => `truncated_call bash: ${input}`).join("\n---\n");
const LOOK = 'call bash: {"command":"cat ran.txt || echo nothing ran"}\n---\necho: saw';

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

describe.each([
  ["half-written input that parses", PARSES],
  ["broken JSON", BROKEN],
])("%s", (_name, input) => {
  test("is not run; the model hears of the limit and goes on", async () => {
    const session = await stage.session([TOOLSET]);
    expect(await session.turn(`${cutWith(input)}\n---\n${LOOK}`)).toContain("nothing ran");
    const [told] = resultsIn(session.lastRequest());
    expect(told).toMatchObject({ is_error: true });
    expect(textOf(told?.content)).toMatch(/not run.*output token limit/);
    const uses = await session.eventsOf("agent.tool_use");
    expect(uses.map(({ evaluated_permission }) => evaluated_permission)).toEqual(["deny", "allow"]);
    expect(session.requests().filter(({ rejected }) => rejected !== null)).toEqual([]);
  });

  test("three times in a row ends the turn with an error that names the limit; the next message works", async () => {
    const session = await stage.session([TOOLSET]);
    await session.say(cutWith(input, input, input, input, input));
    const events = await session.settled();
    expect(session.requests()).toHaveLength(3);
    expect(errorsOf(events)).toEqual([{ type: "model_request_failed_error", message: expect.stringContaining("token limit"), retry: "exhausted" }]);
    expect(stopsOf(events)).toEqual(["retries_exhausted"]);
    expect(events.filter(({ type }) => type === "agent.tool_result")).toHaveLength(3);
    expect(await session.turn(LOOK)).toContain("nothing ran");
  });
});

test("whole calls before the cut one run, and a whole reply between cut ones starts the count afresh", async () => {
  const session = await stage.session([TOOLSET]);
  const both = `call bash: {"command":"echo whole"}\ntruncated_call bash: ${PARSES}`;
  const whole = 'call bash: {"command":"echo between"}';
  expect(await session.turn([both, cutWith(BROKEN), whole, cutWith(PARSES, BROKEN), LOOK].join("\n---\n"))).toContain("nothing ran");
  const results = resultsIn(session.lastRequest());
  expect(results.map(({ is_error }) => is_error ?? false)).toEqual([false, true, true, false, true, true, false]);
  expect(textOf(results[0]?.content)).toBe("whole");
  expect(errorsOf(await session.events())).toEqual([]);
});

test("a text that ends at the limit is kept and is no error", async () => {
  const session = await stage.session();
  expect(await session.turn("say: half of wha\nstop: max_tokens")).toBe("half of wha");
  expect(stopsOf(await session.events())).toEqual(["end_turn"]);
});
