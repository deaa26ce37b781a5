// Threads (contract §12): a session has its primary thread, which is its log.

import { z } from "zod";
import type { SessionId } from "../../session-store/ids.ts";
import { primaryThread } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import { invalid } from "../answer.ts";
import { pageOf, Thread } from "./answer-schema.ts";
import type { Call, Door } from "./call.ts";
import { ownSession } from "./call.ts";
import { eventPage } from "./event-answer-schema.ts";
import { listThreadEvents, ThreadEventList } from "./event-list.ts";
import { limit, page } from "./query.ts";
import type { AddPath } from "./route.ts";
import { bare, withQuery } from "./route.ts";
import { wireOfThread } from "./session-object.ts";
import { streamOperation } from "./stream-route.ts";

const ThreadList = z.strictObject({ limit: limit(1000, 1000), page });

export function addThreads(add: AddPath, door: Door): void {
  const session = { id: "session" } as const;
  const thread = { id: "session", thread: "thread" } as const;
  const listing = { id: "sessions.threads.list", summary: "List a session's threads", query: ThreadList, answer: pageOf(Thread) };
  add("/v1/sessions/:id/threads", { get: withQuery({ ...listing, handle: (call, query) => list(door, call, query.page) }) }, session);
  const retrieving = { id: "sessions.threads.retrieve", summary: "Retrieve a thread", answer: Thread };
  add(
    "/v1/sessions/:id/threads/:thread",
    { get: bare({ ...retrieving, handle: async (call) => wireOfThread(await ownSession(door, call, ofThread(call))) }) },
    thread,
  );
  const archiving = { id: "sessions.threads.archive", summary: "Archive a thread; the primary one is refused", answer: Thread };
  add("/v1/sessions/:id/threads/:thread/archive", { post: bare({ ...archiving, handle: (call) => archive(door, call) }) }, thread);
  const reading = { id: "sessions.threads.events.list", summary: "List a thread's events, oldest first", query: ThreadEventList, answer: eventPage };
  add(
    "/v1/sessions/:id/threads/:thread/events",
    { get: withQuery({ ...reading, handle: (call, query) => listThreadEvents(door, call, ofThread(call), query) }) },
    thread,
  );
  add("/v1/sessions/:id/threads/:thread/stream", { get: streamOperation("sessions.threads.stream", door, ofThread) }, thread);
}

async function list(door: Door, call: Call, cursor: string | undefined): Promise<unknown> {
  if (cursor !== undefined) throw invalid("page: is not a cursor of this list");
  return { data: [wireOfThread(await ownSession(door, call, call.sessionId()))], next_page: null };
}

async function archive(door: Door, call: Call): Promise<unknown> {
  await ownSession(door, call, ofThread(call));
  throw invalid("The primary thread can't be archived; archive its session.");
}

/** The session of a path that names its primary thread; no other thread is there. */
function ofThread(call: Call): SessionId {
  const id = call.sessionId();
  if (call.id("thread") !== primaryThread(id)) throw new Refusal("not_found", "There is no such thread.");
  return id;
}
