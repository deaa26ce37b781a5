// Previews on a stream (contract §7.3): only of what is open on this connection, and only in order.

import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { EventId, Fence } from "../../session-store/ids.ts";
import { mintEvent } from "../../session-store/ids.ts";
import type { SessionStore } from "../../session-store/store.ts";
import type { Api } from "../support/api.ts";
import { makeSession, say, startApi } from "../support/api.ts";
import { Brain, idle, running, says, spanEnd, spanStart } from "../support/brain.ts";
import { FrameReader } from "../support/frames.ts";
import { until } from "../support/until.ts";

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

const send = (id: string, ...events: unknown[]) => api.call("POST", `/v1/sessions/${id}/events`, { events });
const list = async (id: string) => (await api.call("GET", `/v1/sessions/${id}/events`)).body.data as { id: string; type: string }[];

async function open(id: string, query = ""): Promise<FrameReader> {
  const reader = await FrameReader.open(`${api.url}/v1/sessions/${id}/events/stream${query}`);
  onTestFinished(() => reader.close());
  return reader;
}

describe("previews", () => {
  const preview = (id: string, fence: Fence, span: EventId, event: EventId, n: number, text?: string) =>
    api.store.preview(id as Parameters<SessionStore["preview"]>[0], {
      fence,
      span,
      n,
      event: { type: "agent.message", id: event },
      ...(text !== undefined && { delta: { index: 0, text } }),
    });

  test("come on connections that asked, before the message, and never in the list", async () => {
    const { id } = await makeSession(api);
    const asked = await open(id, "?event_deltas[]=agent.message");
    const plain = await open(id);
    await send(id, say("x"));
    const brain = await Brain.take(api.store, id);
    const [span, message] = [mintEvent(), mintEvent()];
    await brain.emit(running(), spanStart(span));
    await asked.next("span.model_request_start");
    preview(id, brain.lease.fence, span, message, 0);
    preview(id, brain.lease.fence, span, message, 1, "he");
    preview(id, brain.lease.fence, span, message, 2, "ll");
    preview(id, brain.lease.fence, span, message, 4, "lost before");
    preview(id, (brain.lease.fence - 1) as Fence, span, message, 3, "zombie");
    await brain.emit(says("hello", message), spanEnd(span));
    preview(id, brain.lease.fence, span, message, 5, "too late");
    await brain.finish(...idle());
    await asked.next("session.status_idle");
    await plain.next("session.status_idle");
    const from = asked.types.indexOf("span.model_request_start") + 1;
    expect(asked.frames.slice(from, from + 4).map(({ id: place, data }) => [place, data.type, data.delta?.content.text])).toEqual([
      [null, "event_start", undefined],
      [null, "event_delta", "he"],
      [null, "event_delta", "ll"],
      [expect.any(String), "agent.message", undefined],
    ]);
    expect(asked.frames[from]?.data).toEqual({ type: "event_start", event: { type: "agent.message", id: message } });
    expect(asked.types.slice(from + 4)).not.toContain("event_delta");
    expect(plain.types.filter((type) => type?.startsWith("event_"))).toEqual([]);
    expect((await list(id)).filter(({ type }) => type.startsWith("event_"))).toEqual([]);
  });

  test("do not come on a connection that was opened in the middle of the request", async () => {
    const { id } = await makeSession(api);
    await send(id, say("x"));
    const brain = await Brain.take(api.store, id);
    const [span, message] = [mintEvent(), mintEvent()];
    await brain.emit(running(), spanStart(span));
    const late = await open(id, "?event_deltas[]=agent.message");
    await until(() => late.comments.includes("open"));
    preview(id, brain.lease.fence, span, message, 0);
    preview(id, brain.lease.fence, span, message, 1, "he");
    await brain.emit(says("hello", message), spanEnd(span));
    await brain.finish(...idle());
    await late.next("session.status_idle");
    expect(late.types.filter((type) => type?.startsWith("event_"))).toEqual([]);
  });
});
