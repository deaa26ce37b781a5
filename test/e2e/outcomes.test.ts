// Outcomes (contract §13) on real processes: the agent works, a grader judges, the agent revises, until there is a result that ends it; whatever
// dies meanwhile, and whatever the model does.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { WireEvent } from "../chaos/wire-checkers.ts";
import { proves } from "../support/proves.ts";
import { CaseSession, errorsOf, type ModelBody, Stage, stopsOf, TOOLSET, textOf } from "./cases/stage.ts";

const STOPPED_MS = 5_000;

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

const verdict = (result: string, explanation: string) => `forced call verdict: ${JSON.stringify({ explanation, result })}`;

interface Defined {
  readonly agent: string;
  readonly grader?: readonly string[];
  readonly max_iterations?: number;
}

/** Defines an outcome whose description is the agent's script, and whose rubric is the grader's. */
async function define(session: CaseSession, { agent, grader = [], ...fields }: Defined): Promise<WireEvent> {
  const rubric = { type: "text" as const, content: ["It is good.", ...grader].join("\n") };
  const [stored] = await session.send({ type: "user.define_outcome", description: `${agent}\n(${session.nonce})`, rubric, ...fields });
  if (!stored) throw new Error("an answer without an event");
  return stored;
}

const evaluationsOf = async (session: CaseSession) => (await stage.client.beta.sessions.retrieve(session.id)).outcome_evaluations;
const endsOf = (events: readonly WireEvent[]) =>
  events
    .filter(({ type }) => type === "span.outcome_evaluation_end")
    .map(({ iteration, result, explanation }) => ({ iteration, result, explanation }));
const isGrading = (body: ModelBody): boolean => body.tools?.some(({ name }) => name === "verdict") ?? false;
const messagesOf = (events: readonly WireEvent[]) => events.filter(({ type }) => type === "agent.message").map(({ content }) => textOf(content));

describe("the loop", () => {
  test("works, is judged, revises, is judged again, and ends satisfied", async () => {
    const session = await stage.session([TOOLSET]);
    const defined = await define(session, {
      agent: 'call bash: {"command":"echo draft"}\nsay: first\n---\nsay: second',
      grader: [verdict("needs_revision", "say: improved"), "forced ---", verdict("satisfied", "all of it")],
    });
    expect(defined).toMatchObject({ outcome_id: expect.stringMatching(/^outc_/), max_iterations: 3, processed_at: expect.any(String) });
    const events = await session.settled();
    expect(events.map(({ type }) => type)).toEqual([
      "user.define_outcome",
      "session.status_running",
      "session.thread_status_running",
      "span.model_request_start",
      "agent.tool_use",
      "span.model_request_end",
      "agent.tool_result",
      "span.model_request_start",
      "agent.message",
      "span.model_request_end",
      "span.outcome_evaluation_start",
      "span.outcome_evaluation_end",
      "span.model_request_start",
      "agent.message",
      "span.model_request_end",
      "span.outcome_evaluation_start",
      "span.outcome_evaluation_end",
      "session.thread_status_idle",
      "session.usage",
      "session.status_idle",
    ]);
    expect(events[0]).toEqual(defined);
    expect(messagesOf(events)).toEqual(["first", "improved"]);
    expect(endsOf(events)).toEqual([
      { iteration: 0, result: "needs_revision", explanation: "say: improved" },
      { iteration: 1, result: "satisfied", explanation: "all of it" },
    ]);
    const [start, end] = [events[10], events[11]];
    expect(end).toMatchObject({ outcome_evaluation_start_id: start?.id, outcome_id: defined.outcome_id });
    expect(await evaluationsOf(session)).toEqual([
      {
        type: "outcome_evaluation",
        outcome_id: defined.outcome_id,
        description: defined.description,
        iteration: 1,
        result: "satisfied",
        explanation: "all of it",
        completed_at: events[16]?.processed_at,
      },
    ]);
    const usages = events.flatMap(({ usage, model_usage }) => ((usage ?? model_usage) ? [usage ?? model_usage] : [])) as { output_tokens: number }[];
    const total = usages.pop()?.output_tokens;
    expect(total).toBe(usages.reduce((sum, { output_tokens }) => sum + output_tokens, 0));
    expect(total).toBeGreaterThan(0);

    // The grader has a context of its own, without the agent's tools; what the agent was told stays where it was.
    const bodies = session.requests().map(({ body }) => body);
    expect(bodies.map(isGrading)).toEqual([false, false, true, false, true]);
    expect(JSON.stringify(bodies[2])).toContain("draft");
    expect(session.requests().every(({ rejected }) => rejected === null)).toBe(true);
    const talk = bodies.filter((body) => !isGrading(body)).map(({ messages }) => messages.map((message) => bare(message)));
    for (const [at, messages] of talk.entries()) if (at > 0) expect(messages.slice(0, talk[at - 1]?.length)).toEqual(talk[at - 1]);
    expect(await session.turn("say: next")).toBe("next");
  });

  test("after the last iteration the agent has one more word, which nobody judges", async () => {
    const session = await stage.session();
    await define(session, { agent: "say: first", grader: [verdict("needs_revision", "say: sorry")], max_iterations: 2 });
    const events = await session.settled();
    expect(messagesOf(events)).toEqual(["first", "sorry", "sorry"]);
    expect(endsOf(events).map(({ result }) => result)).toEqual(["needs_revision", "max_iterations_reached"]);
    expect(stopsOf(events)).toEqual(["end_turn"]);
    expect(await evaluationsOf(session)).toMatchObject([{ result: "max_iterations_reached", iteration: 1, explanation: "say: sorry" }]);
  });

  test("a rubric that does not fit ends it, and the next outcome can be defined", async () => {
    const session = await stage.session();
    await define(session, { agent: "say: first", grader: [verdict("failed", "about something else")] });
    expect(endsOf(await session.settled())).toEqual([{ iteration: 0, result: "failed", explanation: "about something else" }]);
    await define(session, { agent: "say: second", grader: [verdict("satisfied", "that is it")] });
    expect(messagesOf(await session.settled())).toEqual(["first", "second"]);
    expect((await evaluationsOf(session)).map(({ result }) => result)).toEqual(["failed", "satisfied"]);
  });

  test("an initial event starts it; a message during its work joins it; a second outcome is refused", async () => {
    const made = await stage.session();
    const { agent, environment_id } = await stage.client.beta.sessions.retrieve(made.id);
    const rubric = { type: "text" as const, content: `good\nforced wait: 1500\n${verdict("satisfied", "yes")}` };
    const outcome = { type: "user.define_outcome" as const, description: "say: first", rubric };
    const both = { agent: agent.id, environment_id, initial_events: [outcome, outcome] };
    await expect(stage.client.beta.sessions.create(both)).rejects.toThrow(/400.*initial_events.1/);
    const { id, status } = await stage.client.beta.sessions.create({ ...both, initial_events: [outcome] });
    expect(status).toBe("running");
    const session = new CaseSession(stage, id);
    await session.has("span.outcome_evaluation_start");
    expect(await evaluationsOf(session)).toMatchObject([{ result: "evaluating", iteration: 0, explanation: null, completed_at: null }]);
    await expect(define(session, { agent: "say: other" })).rejects.toThrow(/400.*is active/);
    await session.say("say: heard");
    const events = await session.settled();
    expect(messagesOf(events)).toEqual(["first", "heard"]);
    expect(stopsOf(events)).toEqual(["end_turn"]);
    expect(endsOf(events).map(({ result }) => result)).toEqual(["satisfied"]);
  });
});

describe("an interrupt", () => {
  test("ends an evaluation within seconds", async () => {
    const session = await stage.session();
    await define(session, { agent: "say: first", grader: ["forced wait: 60000", verdict("satisfied", "never")] });
    const start = await session.has("span.outcome_evaluation_start");
    const from = performance.now();
    await session.interrupt();
    const events = await session.settled();
    expect(performance.now() - from).toBeLessThan(STOPPED_MS);
    expect(events.filter(({ type }) => type === "span.outcome_evaluation_end")).toMatchObject([
      { result: "interrupted", outcome_evaluation_start_id: start.id, iteration: 0 },
    ]);
    expect(stopsOf(events)).toEqual(["end_turn"]);
    expect(await evaluationsOf(session)).toMatchObject([{ result: "interrupted", completed_at: expect.any(String) }]);
    expect(await session.turn("say: next")).toBe("next");
  });

  test("before the first evaluation ends the outcome without one, and one that comes with it begins", async () => {
    const session = await stage.session();
    await define(session, { agent: "token_delay: 100\nrepeat: 600 word" });
    await session.has("span.model_request_start");
    const rubric = { type: "text" as const, content: "good" };
    const other = { type: "user.define_outcome" as const, description: "say: other", rubric };
    await session.send({ type: "user.interrupt" }, other);
    const events = await session.settled();
    const ends = events.filter(({ type }) => type === "span.outcome_evaluation_end");
    expect(ends).toMatchObject([{ result: "interrupted", outcome_evaluation_start_id: "" }, { result: "satisfied" }]);
    expect(stopsOf(events)).toEqual(["end_turn", "end_turn"]);
    expect(messagesOf(events)).toEqual(["other"]);
  });
});

describe("trouble", () => {
  proves("outcome:one-result", "a node that is killed during an evaluation goes on with it, with signs of life", async () => {
    const session = await stage.session();
    await define(session, { agent: "say: first", grader: ["forced wait: 7000", verdict("satisfied", "yes")] });
    const start = await session.has("span.outcome_evaluation_start");
    await session.has("span.outcome_evaluation_ongoing");
    await stage.restart("node");
    await session.has("span.outcome_evaluation_ongoing", 2);
    const events = await session.settled();
    expect(events.filter(({ type }) => type === "span.outcome_evaluation_start")).toHaveLength(1);
    expect(events.filter(({ type }) => type === "span.outcome_evaluation_end")).toMatchObject([
      { result: "satisfied", outcome_evaluation_start_id: start.id },
    ]);
    expect(messagesOf(events)).toEqual(["first"]);
    expect(stopsOf(events)).toEqual(["end_turn"]);
  });

  test("a grader that is overloaded, or gives no verdict, is asked again; what it took is counted", async () => {
    const session = await stage.session();
    const grader = ["forced error: 529 times=1", "forced usage: input=10 output=20", "forced say: well", "forced ---"];
    await define(session, { agent: "say: first", grader: [...grader, "forced usage: input=1 output=2", verdict("satisfied", "yes")] });
    const events = await session.settled();
    expect(errorsOf(events).map(({ type, retry }) => ({ type, retry }))).toEqual([
      { type: "model_overloaded_error", retry: "retrying" },
      { type: "model_request_failed_error", retry: "retrying" },
    ]);
    expect(endsOf(events)).toEqual([{ iteration: 0, result: "satisfied", explanation: "yes" }]);
    const end = events.find(({ type }) => type === "span.outcome_evaluation_end");
    expect(end).toMatchObject({ usage: { input_tokens: 11, output_tokens: 22 } });
  });

  test("a grader that asks for time gives the session back until then", async () => {
    const session = await stage.session();
    const grader = ["forced error: 429 times=1 retry_after=6", verdict("satisfied", "yes")];
    await define(session, { agent: "say: first", grader });
    const types = (await session.settled()).map(({ type }) => type);
    expect(types).toContain("session.status_rescheduled");
    expect(types.filter((type) => type === "span.outcome_evaluation_start")).toHaveLength(1);
    expect(types.filter((type) => type === "session.status_running")).toHaveLength(2);
  });

  test("a grader that stays silent ends the turn and the outcome, and the session goes on", async () => {
    const session = await stage.session();
    await define(session, { agent: "say: first", grader: ["forced error: 400"] });
    const events = await session.settled();
    expect(errorsOf(events).map(({ retry }) => retry)).toEqual(["exhausted"]);
    expect(stopsOf(events)).toEqual(["retries_exhausted"]);
    expect(endsOf(events).map(({ result }) => result)).toEqual(["failed"]);
    expect(await session.turn("say: next")).toBe("next");
    await define(session, { agent: "say: again" });
    expect(messagesOf(await session.settled()).at(-1)).toBe("again");
  });
});

/** A message without its marker, which moves on with the conversation. */
const bare = (message: unknown): string => JSON.stringify(message, (name, value: unknown) => (name === "cache_control" ? undefined : value));
