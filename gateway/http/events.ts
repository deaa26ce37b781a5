// The events of a session: send, list, stream (contract §6, §7).
//
//   I1  With an idempotency key the ids of a send follow from it: a repeated one is answered with what is stored, even where it would be
//       refused by now.
//   I2  A retried send whose first answer never got out is answered with what that one stored.

import { admit } from "../../session-store/admit.ts";
import type { OutsideEntry, Stored } from "../../session-store/entry.ts";
import type { ClientEvent } from "../../session-store/events/client.ts";
import { eventOf, waits } from "../../session-store/events/client.ts";
import type { EventId, SessionId } from "../../session-store/ids.ts";
import { mintEvent, mintFrom, position } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import { canonical, digestOf } from "../idempotency.ts";
import type { Asker, Body, Door } from "./call.ts";
import { ownSession } from "./call.ts";
import { eventPage, sentEvents } from "./event-answer-schema.ts";
import { EventList, listEvents } from "./event-list.ts";
import { Send } from "./event-schema.ts";
import { receiveChecked } from "./receive.ts";
import type { AddPath } from "./route.ts";
import { withBody, withQuery } from "./route.ts";
import { streamOperation } from "./stream-route.ts";
import type { Received } from "./wire.ts";
import { readReceived, receivedOf, wireOfClient } from "./wire.ts";

/** No gate is ever this one: a receive that is checked against it stores nothing new. */
const NEVER = position(-1);

export function addEvents(add: AddPath, door: Door): void {
  const id = { id: "session" } as const;
  add(
    "/v1/sessions/:id/events",
    {
      post: withBody({
        id: "sessions.events.send",
        summary: "Send events to a session: all are stored, or none",
        headers: ["idempotency-key"],
        body: Send,
        answer: sentEvents,
        handle: (call, body) => sendEvents(door, call, body),
      }),
      get: withQuery({
        id: "sessions.events.list",
        summary: "List a session's events, oldest first unless asked otherwise",
        query: EventList,
        answer: eventPage,
        handle: (call, query) => listEvents(door, call, query),
      }),
    },
    id,
  );
  const streamed = (name: string) => streamOperation(name, door, (call) => call.sessionId());
  add("/v1/sessions/:id/events/stream", { get: streamed("sessions.events.stream") }, id);
  add("/v1/sessions/:id/stream", { get: streamed("sessions.stream") }, id);
}

export async function sendEvents(door: Door, call: Asker, { value, bytes, given }: Body<Send>): Promise<unknown> {
  const id = call.sessionId();
  const { key, principal } = call;
  const events = value.events.map((input, index): ClientEvent => {
    const eventId = key === null ? mintEvent() : (mintFrom("sevt", principal.workspace, `/v1/sessions/${id}/events`, key, index) as EventId);
    return eventOf(eventId, input);
  });
  const retryDigest = digestOf(id, principal.name, bytes);
  if (key === null && call.retries > 0) {
    const before = await recalled(door, call, id, retryDigest);
    if (before) return answer(before);
  }
  const digest = key === null ? undefined : digestOf(canonical(given));
  const stored = await receiveEvents(door, call, id, events, digest, retryDigest);
  if (key === null) forgetOnceAnswered(door, call, id, retryDigest);
  await door.fault("stored");
  return answer(stored.flatMap((one) => receivedOf(one) ?? []));
}

async function receiveEvents(
  door: Door,
  call: Asker,
  id: SessionId,
  events: readonly ClientEvent[],
  digest: string | undefined,
  retryDigest: string,
): Promise<readonly Stored[]> {
  const options = digest === undefined ? { retryDigest } : { digest };
  try {
    const isInterrupt = events.every(({ type }) => type === "user.interrupt");
    const { stored } = await receiveChecked(
      door,
      call,
      id,
      (record) => {
        const admission = admit(record, events);
        return { ...admission, isAlwaysWelcome: isInterrupt && !admission.onlyIdle };
      },
      options,
    );
    return stored;
  } catch (error) {
    if (digest === undefined || !(error instanceof Refusal && error.code === "invalid_request")) throw error;
    // I1. Known ids are answered before the gate is looked at; with this gate nothing else is.
    const entries = events.map((event): OutsideEntry => ({ type: "log.received", event, waits: waits(event) }));
    const known = await door.store.receive(id, entries, { digest, gate: NEVER });
    if (known === "moved") throw error;
    return known;
  }
}

/** I2 */
async function recalled(door: Door, call: Asker, id: SessionId, retryDigest: string): Promise<readonly Received[] | null> {
  await ownSession(door, call, id);
  const positions = await door.store.recall(id, retryDigest);
  if (!positions) return null;
  forgetOnceAnswered(door, call, id, retryDigest);
  const found = await readReceived(door.store, id, positions);
  return positions.flatMap((at) => found.get(at) ?? []);
}

function forgetOnceAnswered(door: Door, call: Asker, id: SessionId, retryDigest: string): void {
  call.onAnswered(() => {
    door.store.forget(id, retryDigest).catch((error: unknown) => {
      // It is forgotten by itself within a minute.
      door.log.warn({ sessionId: id, error: error instanceof Refusal ? error.code : "unknown" }, "send.not_forgotten");
    });
  });
}

/** What waits has no time yet, whatever became of it since: a repeated send gets the first one's answer. */
function answer(received: readonly Received[]): unknown {
  return { data: received.map(({ event, waits: isWaiting, at }) => wireOfClient(event, isWaiting ? null : at)) };
}
