// Sessions (contract §5): list, retrieve, archive, delete; create and update have files of their own.

import type { SessionId } from "../../session-store/ids.ts";
import { mintEvent, primaryThread } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionRecord } from "../../session-store/session.ts";
import { agentOf, environmentOf, statusOf } from "../../session-store/session.ts";
import { invalid } from "../answer.ts";
import { sealBody } from "../repository-tokens.ts";
import { Deleted, Session, sessionPage } from "./answer-schema.ts";
import type { Asker, Call, Door } from "./call.ts";
import { ownSession } from "./call.ts";
import type { PlaceCursor } from "./cursor.ts";
import { placeCursor, readCursor, refuseOtherOrder, writeCursor } from "./cursor.ts";
import { leaveEnvironment } from "./environments.ts";
import { isWithin, rangeOf } from "./query.ts";
import { receiveChecked } from "./receive.ts";
import type { AddPath } from "./route.ts";
import { bare, withBody, withQuery } from "./route.ts";
import { createSession, explainCreate } from "./session-create.ts";
import { wireOfSession } from "./session-object.ts";
import { SessionCreate, SessionList, SessionUpdate } from "./session-schema.ts";
import { updateSession } from "./session-update.ts";

const LIST = "sessions";

export function addSessions(add: AddPath, door: Door): void {
  const id = { id: "session" } as const;
  const answer = Session;
  add("/v1/sessions", {
    post: withBody({
      id: "sessions.create",
      summary: "Create a session; with initial events it starts at once",
      headers: ["idempotency-key"],
      body: SessionCreate,
      explain: explainCreate,
      seal: (call, bytes) => sealBody(door.vaultProxy, call, bytes),
      answer,
      handle: (call, body) => createSession(door, call, body),
    }),
    get: withQuery({
      id: "sessions.list",
      summary: "List sessions, newest first unless asked otherwise",
      query: SessionList,
      answer: sessionPage,
      handle: (call, query) => listSessions(door, call, query),
    }),
  });
  const retrieving = { id: "sessions.retrieve", summary: "Retrieve a session", answer };
  const updating = { id: "sessions.update", summary: "Update a session; its agent only while it is idle", body: SessionUpdate, answer };
  const deleting = { id: "sessions.delete", summary: "Delete a session that is not running", answer: Deleted("session_deleted") };
  add(
    "/v1/sessions/:id",
    {
      get: bare({ ...retrieving, handle: async (call) => wireOfSession(await ownSession(door, call, call.sessionId())) }),
      post: withBody({ ...updating, handle: (call, { value }) => updateSession(door, call, value) }),
      delete: bare({ ...deleting, handle: (call) => remove(door, call) }),
    },
    id,
  );
  const archiving = { id: "sessions.archive", summary: "Archive a session that is not running: it is terminated", answer };
  add("/v1/sessions/:id/archive", { post: bare({ ...archiving, handle: (call) => archiveSession(door, call) }) }, id);
}

export async function listSessions(door: Door, call: Asker, query: SessionList): Promise<unknown> {
  const range = rangeOf(query);
  const cursor = query.page === undefined ? null : readCursor(placeCursor(LIST), query.page);
  if (cursor) refuseOtherOrder(cursor, query.order);
  if (cursor && range && !isWithin(cursor.c, range)) throw invalid("page: the created_at filter leaves out this cursor's place");
  // Neither deployments nor memory stores are there yet: no session belongs to one.
  if (query.deployment_id !== undefined || query.memory_store_id !== undefined) return { data: [], next_page: null, prev_page: null };

  const isBack = cursor?.d === "prev";
  const found = await door.store.listSessions(call.principal.workspace, {
    order: isBack ? opposite(query.order) : query.order,
    limit: query.limit + 1,
    ...(cursor && { beyond: { createdAt: cursor.c, id: cursor.i as SessionId } }),
    ...(range && { createdAt: range }),
    ...(query.agent_id !== undefined && { agentId: query.agent_id }),
    ...(query.agent_version !== undefined && { agentVersion: query.agent_version }),
    ...(query.statuses && { statuses: query.statuses }),
    includeArchived: query.include_archived,
  });
  const hasMore = found.length > query.limit;
  const records = isBack ? found.slice(0, query.limit).reverse() : found.slice(0, query.limit);
  const at = (record: SessionRecord | undefined, d: PlaceCursor["d"]) =>
    record ? writeCursor({ k: LIST, o: query.order, d, c: record.createdAt, i: record.id }) : null;
  const now = Date.now();
  return {
    data: records.map((record) => wireOfSession(record, now)),
    next_page: isBack || hasMore ? at(records.at(-1), "next") : null,
    prev_page: (isBack ? hasMore : cursor !== null) ? at(records[0], "prev") : null,
  };
}

const opposite = (order: "asc" | "desc") => (order === "asc" ? "desc" : "asc");

export async function archiveSession(door: Door, call: Asker): Promise<unknown> {
  const id = call.sessionId();
  const { record } = await receiveChecked(door, call, id, (present) => {
    const status = statusOf(present);
    if (status === "terminated") return null;
    if (status !== "idle") throw invalid(`Session ${id} cannot be archived while its status is ${status}`);
    const agent_name = agentOf(present).name;
    return {
      onlyIdle: true,
      entries: [
        { id: mintEvent(), type: "session.thread_status_terminated", session_thread_id: primaryThread(id), agent_name },
        { id: mintEvent(), type: "session.status_terminated" },
      ],
    };
  });
  await door.vaultProxy?.revoke(id, call);
  return wireOfSession(record);
}

async function remove(door: Door, call: Call): Promise<unknown> {
  const id = call.sessionId();
  const record = await ownSession(door, call, id);
  try {
    await door.store.remove(id);
  } catch (error) {
    if (error instanceof Refusal && error.code === "session_busy")
      throw new Refusal("session_busy", `Session ${id} cannot be deleted while its status is running`);
    throw error;
  }
  await door.vaultProxy?.revoke(id, call);
  // A crash before this leaves a use without a session: the deletion of the environment prunes it.
  await leaveEnvironment(door, record.workspace, environmentOf(record), id);
  return { id, type: "session_deleted" };
}
