// Sending and listing events (contract §6). A test's own brain applies what waits.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { mintEvent } from "../../session-store/ids.ts";
import type { Api } from "../support/api.ts";
import { makeSession, say, startApi } from "../support/api.ts";
import { asks, Brain, calls, idle, note, running, says, spanEnd, spanStart } from "../support/brain.ts";

/** For walks of many requests, on a machine that others load too. */
const SLOW_MS = 60_000;

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

interface Event {
  readonly id: string;
  readonly type: string;
  readonly processed_at: string | null;
}
const post = (path: string, body?: unknown, headers?: Record<string, string>) => api.call("POST", path, body, headers);
const send = (id: string, events: unknown[], headers?: Record<string, string>) => post(`/v1/sessions/${id}/events`, { events }, headers);
const list = async (id: string, query = "") =>
  (await api.call("GET", `/v1/sessions/${id}/events?${query}`)).body as { data: Event[]; next_page: string | null };

async function pages(id: string, query: string): Promise<Event[][]> {
  const found: Event[][] = [];
  for (let page: string | null = ""; page !== null; ) {
    const body = await list(id, `${query}&page=${page}`);
    found.push(body.data);
    page = body.next_page;
  }
  return found;
}

/** A session with placed events of every kind, applied messages, and three that wait. */
async function busySession(): Promise<{ id: string; brain: Brain }> {
  const { id } = await makeSession(api);
  await send(id, [say("one"), say("two")]);
  const brain = await Brain.take(api.store, id);
  await brain.emit(running());
  await brain.apply();
  const span = mintEvent();
  await brain.emit(spanStart(span), note(), says("a"));
  await send(id, [say("three")]);
  await post(`/v1/sessions/${id}`, { title: "t" });
  await brain.emit(spanEnd(span));
  await send(id, [say("four"), say("five"), { type: "system.message", content: [{ type: "text", text: "s" }] }]);
  await brain.apply(1);
  return { id, brain };
}

describe("sending", () => {
  test("the answer holds the stored events in order; what waits has no time yet", async () => {
    const { id } = await makeSession(api);
    const { status, body } = await send(id, [say("one"), say("two")]);
    expect(status).toBe(200);
    expect(body).toEqual({
      data: ["one", "two"].map((text) => ({ id: expect.stringMatching(/^sevt_/), ...say(text), processed_at: null })),
    });
    expect((await list(id)).data).toEqual(body.data);
  });

  test("one bad event stores nothing", async () => {
    const { id } = await makeSession(api);
    for (const events of [
      [],
      [say("x"), { type: "user.message" }],
      [say("x"), { type: "user.message", content: "x" }],
      [{ type: "user.shout" }],
      [say("")],
    ])
      expect((await send(id, events)).status).toBe(400);
    for (const events of [Array.from({ length: 101 }, () => say("x")), [{ type: "user.tool_result", tool_use_id: "sevt_x" }]])
      expect((await send(id, events)).status).toBe(400);
    expect(await list(id)).toEqual({ data: [], next_page: null });
    expect(
      (
        await send(
          id,
          Array.from({ length: 100 }, () => say("x")),
        )
      ).status,
    ).toBe(200);
  });

  test("while a call waits only answers are taken; each is taken once, and shown at once where it is processed on receipt", async () => {
    const { id } = await makeSession(api);
    await send(id, [say("x")]);
    const brain = await Brain.take(api.store, id);
    const [custom, asked] = [mintEvent(), mintEvent()];
    await brain.emit(running());
    await brain.apply();
    await brain.emit(calls(custom), asks(asked));
    await brain.finish(...idle(custom, asked));
    const refused = await send(id, [say("hurry")]);
    expect([refused.status, refused.body.error.message]).toEqual([400, expect.stringContaining(`[${custom}, ${asked}]`)]);
    expect((await send(id, [{ type: "user.tool_confirmation", tool_use_id: custom, result: "allow" }])).status).toBe(400);
    const confirmed = await send(id, [{ type: "user.tool_confirmation", tool_use_id: asked, result: "deny", deny_message: "no" }]);
    expect(confirmed.body.data[0].processed_at).toBeNull();
    const answered = await send(id, [{ type: "user.custom_tool_result", custom_tool_use_id: custom, content: [] }]);
    expect(answered.body.data[0].processed_at).toMatch(/Z$/);
    expect((await send(id, [{ type: "user.custom_tool_result", custom_tool_use_id: custom, content: [] }])).status).toBe(400);
    const placed = (await list(id)).data.find(({ type }) => type === "user.custom_tool_result");
    expect(placed).toEqual(answered.body.data[0]);
  });
});

describe("listing", () => {
  test("placed events by position, then what waits; nothing of ours leaves", async () => {
    const { id } = await busySession();
    const { data } = await list(id);
    expect(data.map(({ type }) => type)).toEqual([
      "session.status_running",
      "user.message",
      "user.message",
      "span.model_request_start",
      "agent.message",
      "session.updated",
      "span.model_request_end",
      "user.message",
      "user.message",
      "user.message",
      "system.message",
    ]);
    expect(data.map(({ processed_at }) => processed_at !== null)).toEqual([...Array(8).fill(true), false, false, false]);
    const times = data.flatMap(({ processed_at }) => processed_at ?? []);
    expect(times).toEqual([...times].sort());
    expect(new Set(data.map((event) => event.id)).size).toBe(data.length);
  });

  test("pages of every size are the whole list, both ways; descending is the exact reverse", { timeout: SLOW_MS }, async () => {
    const { id } = await busySession();
    const whole = (await list(id)).data;
    for (let limit = 1; limit <= whole.length + 1; limit += 1) {
      const up = await pages(id, `limit=${limit}`);
      const down = await pages(id, `limit=${limit}&order=desc`);
      expect(up.flat()).toEqual(whole);
      expect(down.flat()).toEqual([...whole].reverse());
      for (const page of [...up, ...down]) expect(page.length).toBeGreaterThan(0);
    }
  });

  test("a walk meets nothing twice and misses nothing while the log grows and what waited is applied", { timeout: SLOW_MS }, async () => {
    for (const order of ["asc", "desc"])
      for (const limit of [1, 4]) {
        const { id, brain } = await busySession();
        const before = (await list(id, `order=${order}`)).data.map((event) => event.id);
        const seen: Event[] = [];
        for (let page: string | null = ""; page !== null; ) {
          const body: { data: Event[]; next_page: string | null } = await list(id, `order=${order}&limit=${limit}&page=${page}`);
          seen.push(...body.data);
          page = body.next_page;
          await brain.apply(1);
          await brain.emit(says("more"));
          await send(id, [say("late")]);
        }
        expect(seen.map((event) => event.id)).toEqual(before);
      }
  });

  test("types and times filter; what waits is left out by a time", { timeout: SLOW_MS }, async () => {
    const { id } = await busySession();
    const whole = (await list(id)).data;
    for (const types of [["user.message"], ["agent.message", "system.message"], ["session.updated"], ["user.interrupt"]]) {
      const query = types.map((type) => `types[]=${type}`).join("&");
      const wanted = whole.filter(({ type }) => types.includes(type));
      for (const limit of [1, 1000]) expect((await pages(id, `${query}&limit=${limit}`)).flat()).toEqual(wanted);
      expect((await pages(id, `${query}&limit=1&order=desc`)).flat()).toEqual([...wanted].reverse());
    }
    const placed = whole.filter(({ processed_at }) => processed_at !== null);
    for (const cut of new Set(placed.map(({ processed_at }) => processed_at ?? ""))) {
      const at = encodeURIComponent(cut);
      const before = (await pages(id, `created_at[lt]=${at}&limit=5`)).flat();
      const since = (await pages(id, `created_at[gte]=${at}&limit=5&order=desc`)).flat().reverse();
      expect([...before, ...since]).toEqual(placed);
      expect((await list(id, `created_at[gt]=${at}`)).data).toEqual(placed.filter(({ processed_at }) => (processed_at ?? "") > cut));
      expect((await list(id, `created_at[lte]=${at}`)).data).toEqual(placed.filter(({ processed_at }) => (processed_at ?? "") <= cut));
    }
  });

  test("a cursor of another order, another session, another list, or garbage is refused; another limit is not", async () => {
    const { id } = await busySession();
    const other = await busySession();
    const { next_page } = await list(id, "limit=2");
    const forged = (place: object) => `page_${Buffer.from(JSON.stringify(place)).toString("base64url")}`;
    const cases = [
      `/v1/sessions/${id}/events?order=desc&page=${next_page}`,
      `/v1/sessions/${other.id}/events?page=${next_page}`,
      `/v1/sessions?page=${next_page}`,
      `/v1/sessions/${id}/events?page=${next_page}&created_at[lt]=2020-01-01T00:00:00Z`,
      `/v1/sessions/${id}/events?page=page_e30`,
      `/v1/sessions/${id}/events?page=${forged({ k: "events", s: id, h: 1e9, w: true, o: "asc", f: "placed", p: 1 })}`,
      `/v1/sessions/${id}/events?page=${forged({ k: "events", s: id, h: -1, w: true, o: "asc", f: "placed", p: 1 })}`,
    ];
    for (const path of cases) expect([path, (await api.call("GET", path)).status]).toEqual([path, 400]);
    expect((await list(id, `limit=5&page=${next_page}`)).data).toHaveLength(5);
  });

  test("the SDK walks all pages", async () => {
    const { id } = await busySession();
    const ids: string[] = [];
    for await (const event of api.client.beta.sessions.events.list(id, { limit: 2 })) ids.push(event.id);
    expect(ids).toEqual((await list(id)).data.map((event) => event.id));
  });

  test("a long list of applied messages is read in ranges, not one by one", async () => {
    const { id } = await makeSession(api);
    for (let count = 0; count < 6; count += 1)
      await send(
        id,
        Array.from({ length: 100 }, (_, index) => say(`${count}-${index}`)),
      );
    const brain = await Brain.take(api.store, id);
    await brain.apply();
    const { data, next_page } = await list(id);
    expect([data.length, next_page, data.every(({ processed_at }) => processed_at !== null)]).toEqual([600, null, true]);
    expect((await pages(id, "limit=7")).flat()).toEqual(data);
  });
});
