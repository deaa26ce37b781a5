// A model that is overloaded, limits the rate, or falls silent in mid-answer: bounded tries, never sooner than it asked and not all at once, no text
// twice, and at the end a typed error in a session that goes on with the next message.
//
// griffinwork40/agent-afk#762, Alcova-AI/adk-anthropic-go#32, anthropics/anthropic-sdk-typescript#867, anthropics/claude-code#75087,
// NousResearch/hermes-agent#109234, superduck-ai/open-managed-agents#251

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { proves } from "../../support/proves.ts";
import { type CaseSession, errorsOf, Stage, stopsOf } from "./stage.ts";

const SILENCE_MS = 1_500;
const ATTEMPTS = 5;
const GIVEN_UP_MS = 60_000;
const WORDS = "one two three four five six seven eight";

let stage: Stage;
beforeAll(async () => {
  const env = { MANYHANDS_MODEL_IDLE_TIMEOUT_MS: String(SILENCE_MS), MANYHANDS_MODEL_HEADERS_TIMEOUT_MS: String(SILENCE_MS) };
  stage = await Stage.open({ env });
});
afterAll(() => stage.close());

describe.concurrent("one failure", () => {
  test.each([
    ["an error event before any text", "sse_error: overloaded_error times=1", "model_overloaded_error"],
    ["an error event after half a sentence", "sse_error: overloaded_error times=1 after=20", "model_overloaded_error"],
    ["an error event of a type that nobody knows", "sse_error: strange_error times=1 after=20", "model_request_failed_error"],
    ["silence before any text", "stall: 60000 times=1", "model_request_failed_error"],
    ["silence after half a sentence", "stall: 60000 times=1 after=20", "model_request_failed_error"],
    ["a cut connection", "drop: times=1 after=20", "model_request_failed_error"],
    ["529", "error: 529 times=1", "model_overloaded_error"],
    ["429", "error: 429 times=1 retry_after=1", "model_rate_limited_error"],
    ["500", "error: 500 times=1", "model_request_failed_error"],
  ])("%s: one clean answer", async (_name, fault, type) => {
    const session = await stage.session();
    await session.say(`${fault}\nsay: ${WORDS}`);
    const events = await session.settled();
    expect(session.requests()).toHaveLength(2);
    expect(events.filter((event) => event.type === "agent.message")).toMatchObject([{ content: [{ type: "text", text: WORDS }] }]);
    expect(errorsOf(events)).toEqual([{ type, message: expect.any(String), retry: "retrying" }]);
    expect(stopsOf(events)).toEqual(["end_turn"]);
  });
});

describe.concurrent("a failure that stays", () => {
  test.each([
    ["529", "error: 529", "model_overloaded_error"],
    ["an error event", "sse_error: overloaded_error after=20", "model_overloaded_error"],
    ["silence", "stall: 60000 after=20", "model_request_failed_error"],
    ["an answer that never begins", "wait: 60000", "model_request_failed_error"],
  ])(
    "%s: bounded tries, a typed error, and the next message works",
    async (_name, fault, type) => {
      const session = await stage.session();
      await session.say(`${fault}\nsay: ${WORDS}`);
      const events = await session.settled(GIVEN_UP_MS);
      expect(session.requests()).toHaveLength(ATTEMPTS);
      const retrying = Array.from({ length: ATTEMPTS - 1 }, () => ({ type, message: expect.any(String), retry: "retrying" }));
      expect(errorsOf(events)).toEqual([...retrying, { type, message: expect.any(String), retry: "exhausted" }]);
      expect(events.filter((event) => event.type === "agent.message")).toEqual([]);
      expect(stopsOf(events)).toEqual(["retries_exhausted"]);
      expect(await session.turn("say: back")).toBe("back");
    },
    2 * GIVEN_UP_MS,
  );
});

describe("twenty sessions that are limited at once", () => {
  /** The time from being refused to asking again, for each. */
  const waitsOf = (sessions: readonly CaseSession[]) =>
    sessions.map((session) => {
      const [first, second, ...more] = session.requests();
      expect(more).toEqual([]);
      return (second?.at ?? 0) - (first?.at ?? 0);
    });

  // The first wait is short enough to be waited for by its worker, the second one gives the session back until it is due.
  proves("model:bounded", "wait as long as each was told to, and do not come back together", async () => {
    const asked = [...Array.from({ length: 14 }, () => 3), ...Array.from({ length: 6 }, () => 6)];
    const sessions = await Promise.all(asked.map(() => stage.session()));
    await Promise.all(sessions.map((session, at) => session.say(`error: 429 times=1 retry_after=${asked[at]}\nsay: ${WORDS}`)));
    const events = await Promise.all(sessions.map((session) => session.settled()));
    const waits = waitsOf(sessions);
    for (const [at, ms] of waits.entries()) expect(ms).toBeGreaterThanOrEqual((asked[at] ?? 0) * 1_000);
    const short = waits.slice(0, 14);
    expect(Math.max(...short) - Math.min(...short)).toBeGreaterThan(200);
    for (const each of events) expect(each.filter((event) => event.type === "agent.message")).toHaveLength(1);
    const rescheduled = events.map((each) => each.some((event) => event.type === "session.status_rescheduled"));
    expect(rescheduled).toEqual(asked.map((seconds) => seconds > 5));
  });
});
