// Outcomes at the HTTP door (contract §6.1, §6.2, §13): defining one, its echo, lists, streams, the session object.

import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { BrainEntry } from "../../session-store/entry.ts";
import type { EventId } from "../../session-store/ids.ts";
import { mintEvent } from "../../session-store/ids.ts";
import type { Api } from "../support/api.ts";
import { makeSession, say, startApi } from "../support/api.ts";
import { Brain, idle, running } from "../support/brain.ts";
import { FrameReader } from "../support/frames.ts";

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

const OUTCOME = { type: "user.define_outcome", description: "a report", rubric: { type: "text", content: "short" } } as const;
const NO_TOKENS = { input_tokens: 0, output_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 };
const send = (id: string, events: unknown[], headers?: Record<string, string>) => api.call("POST", `/v1/sessions/${id}/events`, { events }, headers);
const listed = async (id: string, query = "") => (await api.call("GET", `/v1/sessions/${id}/events?${query}`)).body.data;

const takenUp = ({ id, outcome_id }: { id: string; outcome_id: string }): BrainEntry => ({ type: "log.outcome", id: id as EventId, outcome_id });
const judged = (outcome_id: string): BrainEntry[] => {
  const [start, fields] = [mintEvent(), { outcome_id, iteration: 0 }];
  return [
    { id: start, type: "span.outcome_evaluation_start", ...fields },
    { id: mintEvent(), type: "span.outcome_evaluation_ongoing", ...fields },
    {
      id: mintEvent(),
      type: "span.outcome_evaluation_end",
      outcome_evaluation_start_id: start,
      ...fields,
      result: "satisfied",
      explanation: "yes",
      usage: NO_TOKENS,
    },
  ];
};

test("an outcome is processed on receipt, starts work without a message, and is shown once wherever one looks", async () => {
  const { id } = await makeSession(api);
  const reader = await FrameReader.open(`${api.url}/v1/sessions/${id}/events/stream`);
  onTestFinished(() => reader.close());
  const { status, body } = await send(id, [OUTCOME]);
  const [defined] = body.data;
  expect([status, defined]).toEqual([
    200,
    {
      id: expect.stringMatching(/^sevt_/),
      ...OUTCOME,
      max_iterations: 3,
      outcome_id: expect.stringMatching(/^outc_[0-9A-Za-z]{24}$/),
      processed_at: expect.stringMatching(/Z$/),
    },
  ]);
  const session = async () => (await api.client.beta.sessions.retrieve(id)) as { status: string; outcome_evaluations: unknown[] };
  const state = { type: "outcome_evaluation", outcome_id: defined.outcome_id, description: "a report", iteration: 0 };
  expect(await session()).toMatchObject({
    status: "running",
    outcome_evaluations: [{ ...state, result: "pending", explanation: null, completed_at: null }],
  });
  const brain = await Brain.take(api.store, id);
  await brain.emit(running(), takenUp(defined), ...judged(defined.outcome_id));
  await brain.finish(...idle());
  await reader.next("session.status_idle");
  const events = await listed(id);
  expect(reader.frames.map(({ data }) => data)).toEqual(events);
  expect(events.map(({ type }: { type: string }) => type)).toEqual([
    "user.define_outcome",
    "session.status_running",
    "span.outcome_evaluation_start",
    "span.outcome_evaluation_ongoing",
    "span.outcome_evaluation_end",
    "session.usage",
    "session.status_idle",
  ]);
  expect(events[0]).toEqual(defined);
  for (const type of ["user.define_outcome", "span.outcome_evaluation_ongoing", "span.outcome_evaluation_end"])
    expect(await listed(id, `types[]=${type}`)).toEqual(events.filter((event: { type: string }) => event.type === type));
  expect(await listed(id, "order=desc")).toEqual(events.toReversed());
  expect(await session()).toMatchObject({
    status: "idle",
    outcome_evaluations: [{ ...state, result: "satisfied", explanation: "yes", completed_at: events[4].processed_at }],
  });
});

test("one is active at a time, and a send that is repeated under its key is answered with what is stored", async () => {
  const { id } = await makeSession(api);
  const first = await send(id, [OUTCOME], { "idempotency-key": "one" });
  const again = await send(id, [OUTCOME], { "idempotency-key": "one" });
  expect([again.status, again.body]).toEqual([200, first.body]);
  const second = await send(id, [{ ...OUTCOME, description: "another" }]);
  expect([second.status, second.body.error.message]).toEqual([400, expect.stringContaining(`outcome ${first.body.data[0].outcome_id} is active`)]);
  const both = await send((await makeSession(api)).id, [OUTCOME, OUTCOME]);
  expect([both.status, both.body.error.message]).toEqual([400, expect.stringContaining("events.1")]);
  expect(await listed(id)).toHaveLength(1);
});

test("two that are sent at once: one is taken, the other is refused", async () => {
  const { id } = await makeSession(api);
  const answers = await Promise.all([OUTCOME, OUTCOME, OUTCOME].map((outcome) => send(id, [outcome])));
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 400, 400]);
  expect(await listed(id)).toHaveLength(1);
});

test("what is no outcome is refused with its path", async () => {
  const { id } = await makeSession(api);
  const cases: [fields: object, says: string][] = [
    [{ rubric: undefined }, "events.0.rubric: Field required"],
    [{ rubric: { type: "file", file_id: "file_x" } }, "events.0.rubric: `file` rubrics are not supported: there are no files here yet"],
    [{ rubric: { type: "text", content: "x".repeat(262_145) } }, "events.0.rubric.content: Too big"],
    [{ description: undefined }, "events.0.description: Field required"],
    [{ max_iterations: 21 }, "events.0.max_iterations: Too big"],
    [{ max_iterations: 0 }, "events.0.max_iterations: Too small"],
    [{ outcome_id: "outc_x" }, "events.0.outcome_id: Extra inputs are not permitted"],
  ];
  for (const [fields, says] of cases) {
    const { status, body } = await send(id, [{ ...OUTCOME, ...fields }]);
    expect([status, body.error.message]).toEqual([400, expect.stringContaining(says)]);
  }
  expect(await listed(id)).toEqual([]);
  const taken = await send(id, [{ ...OUTCOME, rubric: { type: "text", content: "x".repeat(262_144) }, max_iterations: 20 }]);
  expect([taken.status, taken.body.data[0].max_iterations]).toEqual([200, 20]);
});

test("a message behind an outcome shows queued, and an archive ends what is active", async () => {
  const { id } = await makeSession(api);
  const reader = await FrameReader.open(`${api.url}/v1/sessions/${id}/events/stream`);
  onTestFinished(() => reader.close());
  const { body } = await send(id, [OUTCOME]);
  await send(id, [say("hurry")]);
  await reader.next("user.message");
  expect(reader.frames.map(({ data }) => [data.type, data.processed_at === null])).toEqual([
    ["user.define_outcome", false],
    ["user.message", true],
  ]);
  const brain = await Brain.take(api.store, id);
  const call = mintEvent();
  await brain.apply();
  await brain.emit(running(), takenUp(body.data[0]), { id: call, type: "agent.custom_tool_use", name: "look_up", input: {} });
  await brain.finish(...idle(call));
  const archived = (await api.call("POST", `/v1/sessions/${id}/archive`)).body;
  expect(archived.outcome_evaluations).toMatchObject([{ result: "interrupted", explanation: null, completed_at: archived.archived_at }]);
});
