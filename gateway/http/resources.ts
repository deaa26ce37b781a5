// The resources of a session (contract §14): its repositories. They are given when it is made; later only a token can be changed.

import { z } from "zod";
import type { SessionResource as Resource } from "../../session-store/events/log.ts";
import type { SessionId } from "../../session-store/ids.ts";
import { mintEvent, mintFrom } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionRecord } from "../../session-store/session.ts";
import { resourcesOf, statusOf } from "../../session-store/session.ts";
import { invalid } from "../answer.ts";
import { keepRepositories, sealBody } from "../repository-tokens.ts";
import { Deleted, pageOf, SessionResource } from "./answer-schema.ts";
import type { Call, Door } from "./call.ts";
import { ownSession } from "./call.ts";
import { readCursor, writeCursor } from "./cursor.ts";
import { receiveChecked } from "./receive.ts";
import { mountOf, type RepositoryWanted, ResourceAdd, ResourceList, ResourceUpdate } from "./resource-schema.ts";
import type { AddPath } from "./route.ts";
import { bare, withBody, withQuery } from "./route.ts";

const Cursor = z.strictObject({ k: z.literal("resources"), n: z.int().min(1).max(1_000) });

export function addResources(add: AddPath, door: Door): void {
  const answer = SessionResource;
  const seal = (call: Call, bytes: Buffer) => sealBody(door.vaultProxy, call, bytes);
  const listing = { id: "sessions.resources.list", summary: "List a session's resources", query: ResourceList, answer: pageOf(SessionResource) };
  const adding = { id: "sessions.resources.add", summary: "Add a resource; none can be added yet", body: ResourceAdd, seal, answer };
  add(
    "/v1/sessions/:id/resources",
    {
      get: withQuery({ ...listing, handle: (call, query) => list(door, call, query) }),
      post: withBody({ ...adding, handle: (call, { value }) => refuseToAdd(door, call, value.type) }),
    },
    { id: "session" },
  );
  const retrieving = { id: "sessions.resources.retrieve", summary: "Retrieve a resource of a session", answer };
  const updating = { id: "sessions.resources.update", summary: "Change the token of a repository", body: ResourceUpdate, seal, answer };
  const deleting = { id: "sessions.resources.delete", summary: "Delete a resource; repositories stay", answer: Deleted("session_resource_deleted") };
  add(
    "/v1/sessions/:id/resources/:resource",
    {
      get: bare({ ...retrieving, handle: async (call) => find(await ownSession(door, call, call.sessionId()), call.id("resource")) }),
      post: withBody({ ...updating, handle: (call, { value }) => update(door, call, value.authorization_token) }),
      delete: bare({ ...deleting, handle: (call) => refuseToDelete(door, call) }),
    },
    { id: "session", resource: "resource" },
  );
}

/** What a session is made with. A repeated create gives the same ids. */
export function resourcesFrom(session: SessionId, wanted: readonly RepositoryWanted[], now: number): readonly Resource[] {
  const at = new Date(now).toISOString();
  return wanted.map((each, index) => ({
    id: mintFrom("sesrsc", session, index),
    type: each.type,
    url: each.url,
    mount_path: mountOf(each),
    checkout: each.checkout ?? null,
    created_at: at,
    updated_at: at,
  }));
}

async function list(door: Door, call: Call, query: ResourceList): Promise<unknown> {
  const all = resourcesOf(await ownSession(door, call, call.sessionId()));
  const from = query.page === undefined ? 0 : readCursor(Cursor, query.page).n;
  const to = from + query.limit;
  return { data: all.slice(from, to), next_page: to < all.length ? writeCursor({ k: "resources", n: to }) : null };
}

/** The vault proxy has the new token before the log says that there is one. */
async function update(door: Door, call: Call, token: string): Promise<unknown> {
  const id = call.sessionId();
  const wanted = call.id("resource");
  const record = await ownSession(door, call, id);
  refuseTerminated(record);
  find(record, wanted);
  const repositories = resourcesOf(record).map((each) => ({ url: each.url, token: each.id === wanted ? token : undefined }));
  await keepRepositories(door.vaultProxy, call, id, repositories);
  const updated_at = new Date().toISOString();
  const { record: changed } = await receiveChecked(door, call, id, (present) => {
    refuseTerminated(present);
    const resources = resourcesOf(present).map((each) => (each.id === wanted ? { ...each, updated_at } : each));
    return { entries: [{ type: "log.resources", id: mintEvent(), resources }], onlyIdle: false };
  });
  return find(changed, wanted);
}

async function refuseToAdd(door: Door, call: Call, type: string): Promise<never> {
  await ownSession(door, call, call.sessionId());
  throw invalid(
    type === "github_repository"
      ? "type: a repository can't be added to a session; it is given when the session is created"
      : "type: only `file` resources can be added to a session, and they are not supported here",
  );
}

async function refuseToDelete(door: Door, call: Call): Promise<never> {
  find(await ownSession(door, call, call.sessionId()), call.id("resource"));
  throw invalid("Only `file` resources can be deleted; a repository stays as long as its session.");
}

function find(record: SessionRecord, id: string): Resource {
  const found = resourcesOf(record).find((each) => each.id === id);
  if (found === undefined) throw new Refusal("not_found", "There is no such resource.");
  return found;
}

function refuseTerminated(record: SessionRecord): void {
  if (statusOf(record) === "terminated") throw invalid(`Session ${record.id} is terminated and can't be changed.`);
}
