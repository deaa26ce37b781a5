// Streams (contract §7): SDK-driven and frame by frame.

import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionStore } from "../../session-store/store.ts";
import type { Api } from "../support/api.ts";
import { makeSession, say, startApi } from "../support/api.ts";
import { Brain, idle, note, running, says } from "../support/brain.ts";
import { FrameReader } from "../support/frames.ts";
import { until } from "../support/until.ts";

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

const send = (id: string, ...events: unknown[]) => api.call("POST", `/v1/sessions/${id}/events`, { events });
const list = async (id: string) => (await api.call("GET", `/v1/sessions/${id}/events`)).body.data as { id: string; type: string }[];

async function open(id: string, query = "", headers: Record<string, string> = {}, from = api): Promise<FrameReader> {
  const reader = await FrameReader.open(`${from.url}/v1/sessions/${id}/events/stream${query}`, headers);
  onTestFinished(() => reader.close());
  return reader;
}

test("headers and a first comment come at once, and every frame has a name, one line of data and a place", async () => {
  const { id } = await makeSession(api);
  const reader = await open(id, "", { accept: "application/json" });
  expect(reader.response.statusCode).toBe(200);
  expect(reader.response.headers).toMatchObject({ "content-type": "text/event-stream", "x-accel-buffering": "no" });
  expect(reader.response.headers["cache-control"]).toContain("no-cache");
  await until(() => reader.comments.includes("open"));
  await send(id, say("line one\nline two\r\n\nend"));
  await Brain.turn(api.store, id);
  await reader.next("session.status_idle");
  for (const { id: place, event, data } of reader.frames) {
    expect(event).toBe(data.type);
    expect(place).toMatch(/^[0-9A-Za-z]+\.\d+$/);
    expect(place).not.toContain("sevt");
  }
});

test("a turn on the stream is the same as in the list, and nothing from before is replayed", async () => {
  const { id } = await makeSession(api);
  await send(id, say("before"));
  await Brain.turn(api.store, id);
  const old = new Set((await list(id)).map((event) => event.id));
  const events: { id: string; type: string }[] = [];
  const stream = await api.client.beta.sessions.events.stream(id);
  await send(id, say("now"));
  const turn = Brain.turn(api.store, id);
  for await (const event of stream) {
    events.push(event as { id: string; type: string });
    if (event.type === "session.status_idle") break;
  }
  await turn;
  expect(events).toEqual((await list(id)).filter((event) => !old.has(event.id)));
});

test("a message to an idle session shows once, processed; one that waits behind work shows queued, too", async () => {
  const { id } = await makeSession(api);
  const reader = await open(id);
  await send(id, say("first"), { type: "system.message", content: [{ type: "text", text: "with it" }] });
  const brain = await Brain.take(api.store, id);
  await brain.emit(running(), note());
  await brain.apply();
  await send(id, say("second"));
  await until(() => reader.frames.some(({ data }) => data.processed_at === null));
  await brain.apply();
  await brain.finish(...idle());
  await reader.next("session.status_idle");
  const talk = reader.frames.filter(({ event }) => event === "user.message" || event === "system.message");
  expect(talk.map(({ data }) => [data.content[0].text, data.processed_at === null])).toEqual([
    ["first", false],
    ["with it", false],
    ["second", true],
    ["second", false],
  ]);
  expect(talk[2]?.data.id).toBe(talk[3]?.data.id);
  expect(reader.types).not.toContain("log.note");
});

test("an event that was streamed is listed already", async () => {
  const { id } = await makeSession(api);
  const reader = await open(id);
  await send(id, say("x"));
  const turn = Brain.turn(api.store, id);
  for (const type of ["user.message", "agent.message", "session.status_idle"]) {
    const { data } = await reader.next(type);
    expect((await list(id)).map((event) => event.id)).toContain(data.id);
  }
  await turn;
});

describe("the end of a stream", () => {
  test("unknown sessions are 404 before any header of a stream", async () => {
    const answer = await api.call("GET", "/v1/sessions/sesn_x/events/stream");
    expect([answer.status, answer.headers.get("content-type")]).toEqual([404, "application/json"]);
  });

  test("archive: the last events come, then the end; a stream that opens afterwards ends at once", async () => {
    const { id } = await makeSession(api);
    const reader = await open(id);
    await api.call("POST", `/v1/sessions/${id}/archive`);
    await until(() => reader.isEnded);
    expect(reader.types).toEqual(["session.thread_status_terminated", "session.status_terminated"]);
    const late = await open(id);
    await until(() => late.isEnded);
    expect([late.response.statusCode, late.frames]).toEqual([200, []]);
  });

  test("deletion: session.deleted, then the end, on every stream", async () => {
    const { id } = await makeSession(api);
    const readers = await Promise.all([open(id), open(id), open(id)]);
    expect((await api.call("DELETE", `/v1/sessions/${id}`)).status).toBe(200);
    for (const reader of readers) {
      await until(() => reader.isEnded);
      expect(reader.frames.map(({ data }) => data)).toEqual([{ id: expect.any(String), type: "session.deleted", processed_at: expect.any(String) }]);
    }
  });

  test("shutdown: open streams end, new requests are refused with a time to come back", async () => {
    const other = await startApi();
    try {
      const { id } = await makeSession(other);
      const reader = await open(id, "", {}, other);
      other.stop();
      await until(() => reader.isEnded);
      const refused = await other.call("GET", "/v1/agents");
      expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "1"]);
      expect((await fetch(`${other.url}/healthz`)).status).toBe(200);
      expect((await fetch(`${other.url}/readyz`)).status).toBe(503);
    } finally {
      await other.close();
    }
  });
});

describe("Last-Event-ID", () => {
  test("resumes after any frame without a hole or a double", async () => {
    const { id } = await makeSession(api);
    const whole = await open(id);
    await send(id, say("x"));
    await Brain.turn(api.store, id);
    await send(id, say("y"));
    await Brain.turn(api.store, id, "again");
    await until(() => whole.types.filter((type) => type === "session.status_idle").length === 2);
    for (const [index, frame] of whole.frames.entries()) {
      const rest = await open(id, "", { "last-event-id": frame.id ?? "" });
      const processed = () => rest.frames.filter(({ data }) => data.processed_at !== null);
      await until(() => processed().length >= whole.frames.length - index - 1);
      expect(processed()).toEqual(whole.frames.slice(index + 1));
      rest.close();
    }
  });

  test("of another session, ahead of the log, or garbage is refused", async () => {
    const [one, other] = [await makeSession(api), await makeSession(api)];
    const places = [`${other.id.slice(5)}.1`, `${one.id.slice(5)}.999`, "sevt_x", "1", `${one.id.slice(5)}.1.1`];
    for (const place of places)
      expect((await api.call("GET", `/v1/sessions/${one.id}/stream`, undefined, { "last-event-id": place })).status).toBe(400);
  });

  test("on an archived session gives the rest, then the end", async () => {
    const { id } = await makeSession(api);
    await send(id, say("x"));
    await Brain.turn(api.store, id);
    await api.call("POST", `/v1/sessions/${id}/archive`);
    const rest = await open(id, "", { "last-event-id": `${id.slice(5)}.1` });
    await until(() => rest.isEnded);
    expect(rest.types.at(-1)).toBe("session.status_terminated");
    expect(rest.types).toContain("agent.message");
  });
});

describe("a connection", () => {
  test("that is silent is kept alive by comments", async () => {
    const quick = await startApi({ keepAliveMs: 20 });
    try {
      const { id } = await makeSession(quick);
      const reader = await open(id, "", {}, quick);
      await until(() => reader.comments.filter((comment) => comment === "ping").length >= 3);
      expect(reader.frames).toEqual([]);
      reader.close();
    } finally {
      await quick.close();
    }
  });

  test("that does not read is cut off, and others do not notice", { timeout: 40_000 }, async () => {
    const strict = await startApi({ slowReaderMs: 2_000 });
    try {
      const { id } = await makeSession(strict);
      const slow = await open(id, "", {}, strict);
      slow.response.pause();
      const fast = await open(id, "", {}, strict);
      await strict.call("POST", `/v1/sessions/${id}/events`, { events: [say("x")] });
      const brain = await Brain.take(strict.store, id);
      await brain.emit(running());
      const text = "x".repeat(1024 * 1024);
      for (let count = 0; count < 24; count += 1) await brain.emit(says(text));
      await brain.finish(...idle());
      await until(() => fast.types.includes("session.status_idle"), { timeoutMs: 20_000 });
      expect(fast.types.filter((type) => type === "agent.message")).toHaveLength(24);
      await until(() => strict.logged.some((line) => line.includes("stream.cut")));
      slow.response.resume();
      await until(() => slow.isCut);
      expect(slow.types).not.toContain("session.status_idle");
    } finally {
      await strict.close();
    }
  });

  test("goes on by itself when the store could not be read for a while", { timeout: 20_000 }, async () => {
    let isDown = false;
    const wrap = (store: SessionStore): SessionStore =>
      new Proxy(store, {
        get(target, name) {
          const value: unknown = Reflect.get(target, name);
          if (typeof value !== "function") return value;
          return (...args: unknown[]) => {
            if (isDown && name === "getEvents") return Promise.reject(new Refusal("store_busy"));
            return value.apply(target, args);
          };
        },
      });
    const shaky = await startApi({ wrap });
    try {
      const { id } = await makeSession(shaky);
      const reader = await open(id, "", {}, shaky);
      isDown = true;
      await shaky.call("POST", `/v1/sessions/${id}`, { title: "unseen" });
      await new Promise((resolve) => setTimeout(resolve, 700));
      expect([reader.frames, reader.isEnded]).toEqual([[], false]);
      isDown = false;
      expect((await reader.next("session.updated")).data.title).toBe("unseen");
      reader.close();
    } finally {
      await shaky.close();
    }
  });
});

test("the thread's stream is the session's", async () => {
  const { id } = await makeSession(api);
  const reader = await FrameReader.open(`${api.url}/v1/sessions/${id}/threads/sthr_${id.slice(5)}/stream`);
  await api.call("POST", `/v1/sessions/${id}`, { title: "t" });
  await reader.next("session.updated");
  reader.close();
});
