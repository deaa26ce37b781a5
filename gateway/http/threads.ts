// Threads (contract §12): a session has its primary thread, which is its log.

import { z } from "zod";
import type { SessionId } from "../../session-store/ids.ts";
import { primaryThread } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import { invalid } from "../answer.ts";
import type { AddPath, Call, Door } from "./call.ts";
import { ownSession } from "./call.ts";
import { listThreadEvents } from "./event-list.ts";
import { limit, page } from "./query.ts";
import { wireOfThread } from "./session-object.ts";
import { openStream } from "./stream-route.ts";

const ThreadList = z.strictObject({ limit: limit(1000, 1000), page });

export function addThreads(add: AddPath, door: Door): void {
  add("/v1/sessions/:id/threads", { get: (call) => list(door, call) });
  add("/v1/sessions/:id/threads/:thread", { get: (call) => retrieve(door, call) });
  add("/v1/sessions/:id/threads/:thread/archive", { post: (call) => archive(door, call) });
  add("/v1/sessions/:id/threads/:thread/events", { get: (call) => listThreadEvents(door, call, ofThread(call)) });
  add("/v1/sessions/:id/threads/:thread/stream", { get: (call) => openStream(door, call, ofThread(call)) });
}

async function list(door: Door, call: Call): Promise<unknown> {
  const query = call.query(ThreadList);
  if (query.page !== undefined) throw invalid("page: is not a cursor of this list");
  return { data: [wireOfThread(await ownSession(door, call, call.sessionId()))], next_page: null };
}

async function retrieve(door: Door, call: Call): Promise<unknown> {
  call.noQuery();
  return wireOfThread(await ownSession(door, call, ofThread(call)));
}

async function archive(door: Door, call: Call): Promise<unknown> {
  const id = ofThread(call);
  await call.noBody();
  await ownSession(door, call, id);
  throw invalid("The primary thread can't be archived; archive its session.");
}

/** The session of a path that names its primary thread; no other thread is there. */
function ofThread(call: Call): SessionId {
  const id = call.sessionId();
  if (call.id("thread", "sthr") !== primaryThread(id)) throw new Refusal("not_found", "There is no such thread.");
  return id;
}
