// What makes a repeated POST one request (contract §1.2): an idempotency key, or a retry that says so.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Api } from "../support/api.ts";
import { makeSession, newName, say, startApi } from "../support/api.ts";
import { Brain } from "../support/brain.ts";

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

const post = (path: string, body?: unknown, headers?: Record<string, string>) => api.call("POST", path, body, headers);
const send = (id: string, events: unknown[], headers?: Record<string, string>) => post(`/v1/sessions/${id}/events`, { events }, headers);
const list = async (id: string, query = "") => (await api.call("GET", `/v1/sessions/${id}/events?${query}`)).body as { data: { id: string }[] };

describe("an idempotency key", () => {
  const key = () => ({ "idempotency-key": newName() });

  test("gives the same events again, one after the other and at once, and even when they would be refused by now", async () => {
    const { id } = await makeSession(api);
    const headers = key();
    const first = await send(id, [say("x"), say("y")], headers);
    const again = await Promise.all([1, 2, 3, 4].map(() => send(id, [say("x"), say("y")], headers)));
    for (const answer of again) expect([answer.status, answer.body]).toEqual([200, first.body]);
    await Brain.turn(api.store, id);
    await post(`/v1/sessions/${id}/archive`);
    expect((await send(id, [say("x"), say("y")], headers)).body).toEqual(first.body);
    expect((await list(id, "types[]=user.message")).data).toHaveLength(2);
  });

  test("eight parallel sends with one key store one event", async () => {
    const { id } = await makeSession(api);
    const headers = key();
    const answers = await Promise.all(Array.from({ length: 8 }, () => send(id, [say("x")], headers)));
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
    expect((await list(id)).data).toHaveLength(1);
  });

  test("with another body it is 409 and says not to retry; with another session it is another send", async () => {
    const { id } = await makeSession(api);
    const headers = key();
    await send(id, [say("x")], headers);
    for (const events of [[say("y")], [say("x"), say("x")]]) {
      const conflict = await send(id, events, headers);
      expect([conflict.status, conflict.headers.get("x-should-retry")]).toEqual([409, "false"]);
    }
    expect((await send((await makeSession(api)).id, [say("y")], headers)).status).toBe(200);
    for (const bad of ["", " ", "a b", "x".repeat(256)]) expect((await send(id, [say("x")], { "idempotency-key": bad })).status).toBe(400);
  });

  test("makes creates one, whatever is created", async () => {
    const base = await makeSession(api);
    const cases: [path: string, body: object, other: object][] = [
      ["/v1/agents", { name: newName(), model: "m" }, { name: "other", model: "m" }],
      ["/v1/environments", { name: newName() }, { name: newName() }],
      [
        "/v1/sessions",
        { agent: base.agent.id, environment_id: base.environment_id, initial_events: [say("x")] },
        { agent: base.agent.id, environment_id: base.environment_id },
      ],
    ];
    for (const [path, body, other] of cases) {
      const headers = key();
      const answers = await Promise.all([1, 2, 3, 4].map(() => post(path, body, headers)));
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
      expect(new Set(answers.map((answer) => answer.body.id)).size).toBe(1);
      expect((await post(path, body, headers)).body.id).toBe(answers[0]?.body.id);
      expect((await post(path, other, headers)).status).toBe(409);
      expect((await post(path, body, key())).status).toBe(path === "/v1/environments" ? 409 : 200);
    }
  });

  test("still finds its session when agent and environment are archived, and not when it was deleted", async () => {
    const base = await makeSession(api);
    const headers = key();
    const body = { agent: base.agent.id, environment_id: base.environment_id };
    const made = await post("/v1/sessions", body, headers);
    await post(`/v1/agents/${base.agent.id}/archive`);
    await post(`/v1/environments/${base.environment_id}/archive`);
    expect((await post("/v1/sessions", body, headers)).body.id).toBe(made.body.id);
    await api.call("DELETE", `/v1/sessions/${made.body.id}`);
    expect((await post("/v1/sessions", body, headers)).status).toBeGreaterThanOrEqual(400);
  });
});

describe("a retry that says so", () => {
  const retried = { "x-stainless-retry-count": "1" };

  test("of a send whose answer got out is a new send", async () => {
    const { id } = await makeSession(api);
    const first = await send(id, [say("x")]);
    const second = await untilForgotten(id, first.body.data[0].id);
    expect(second).not.toBe(first.body.data[0].id);
  });

  /** The answer is forgotten just after it went out. */
  async function untilForgotten(id: string, first: string): Promise<string> {
    for (let tries = 0; tries < 50; tries += 1) {
      const answer = (await send(id, [say("x")], retried)).body.data[0].id;
      if (answer !== first) return answer;
    }
    return first;
  }

  test("of a send or create whose answer never got out is answered, not stored again", async () => {
    const held = await startApi();
    try {
      const session = await makeSession(held);
      const events = `/v1/sessions/${session.id}/events`;
      const agent = { name: newName(), model: "m" };
      await cut(held, events, { events: [say("x")] });
      await cut(held, "/v1/agents", agent);
      const again = await held.call("POST", events, { events: [say("x")] }, retried);
      expect(again.status).toBe(200);
      expect((await held.call("GET", events)).body.data.map(({ id }: { id: string }) => id)).toEqual([again.body.data[0].id]);
      await held.call("POST", "/v1/agents", agent, retried);
      const { data } = (await held.call("GET", "/v1/agents")).body;
      expect(data.filter(({ name }: { name: string }) => name === agent.name)).toHaveLength(1);
    } finally {
      await held.close();
    }
  });

  /** Sends, and hangs up as soon as it is stored, before the answer is written. */
  async function cut(held: Api, path: string, body: object): Promise<void> {
    const abort = new AbortController();
    held.holdAnswers(() => abort.abort());
    await fetch(`${held.url}${path}`, {
      method: "POST",
      headers: { "x-api-key": "test-key-1" },
      body: JSON.stringify(body),
      signal: abort.signal,
    }).then(
      () => expect.unreachable("the answer got out"),
      (error: Error) => expect(error.name).toBe("AbortError"),
    );
    await held.answersHeld();
  }
});
