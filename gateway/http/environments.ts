// Environments (contract §4), and who uses them.
//
//   V1  A name is unique among the environments that are not archived.
//   V2  A session's use is written before the session itself, and only while the environment is live: an environment that a session refers to
//       can't be deleted. A use whose session never came, or is gone, is pruned once it is older than USE_GRACE_MS.

import { z } from "zod";
import type { Document } from "../../session-store/documents.ts";
import { parseSessionId } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import { invalid } from "../answer.ts";
import { Deleted, Environment, pageOf } from "./answer-schema.ts";
import type { Asker, Body, Call, Door } from "./call.ts";
import { pageOfDocuments, WRITE_TRIES_MAX } from "./documents.ts";
import type { EnvironmentFields } from "./environment-schema.ts";
import { configOf, EnvironmentCreate, EnvironmentList, EnvironmentUpdate } from "./environment-schema.ts";
import { patched } from "./metadata.ts";
import { isIdOf } from "./path-id.ts";
import type { AddPath } from "./route.ts";
import { bare, withBody, withQuery } from "./route.ts";
import { rfc3339 } from "./wire.ts";

const KIND = "environment";
const useKind = (id: string) => `environment_use:${id}`;
const USE_GRACE_MS = 60_000;
const PRUNE_PAGE = 100;

interface EnvironmentBody {
  readonly digest: string;
  readonly environment: EnvironmentFields;
}
const EnvironmentBody = z.object({
  digest: z.string(),
  environment: z.custom<EnvironmentFields>((value) => typeof value === "object" && value !== null),
});
const bodyOf = (document: Document): EnvironmentBody => EnvironmentBody.parse(document.body);

const BAD_METADATA = { error_code: "invalid_metadata" };
const explain = (path: string) => (path.startsWith("metadata") ? BAD_METADATA : undefined);

export function addEnvironments(add: AddPath, door: Door): void {
  const id = { id: "environment" } as const;
  const answer = Environment;
  add("/v1/environments", {
    post: withBody({
      id: "environments.create",
      summary: "Create an environment",
      headers: ["idempotency-key"],
      body: EnvironmentCreate,
      explain,
      answer,
      handle: (call, body) => create(door, call, body),
    }),
    get: withQuery({
      id: "environments.list",
      summary: "List environments, newest first",
      query: EnvironmentList,
      answer: pageOf(Environment),
      handle: (call, query) => listEnvironments(door, call, query),
    }),
  });
  const updating = { id: "environments.update", summary: "Update an environment: what is left out stays", body: EnvironmentUpdate, explain, answer };
  const deleting = { id: "environments.delete", summary: "Delete an environment that no session uses", answer: Deleted("environment_deleted") };
  add(
    "/v1/environments/:id",
    {
      get: bare({
        id: "environments.retrieve",
        summary: "Retrieve an environment",
        answer,
        handle: async (call) => wire(await environmentDocument(door, call)),
      }),
      post: withBody({ ...updating, handle: (call, { value }) => update(door, call, value) }),
      delete: bare({ ...deleting, handle: (call) => remove(door, call) }),
    },
    id,
  );
  const archiving = { id: "environments.archive", summary: "Archive an environment for good", answer };
  add("/v1/environments/:id/archive", { post: bare({ ...archiving, handle: (call) => archive(door, call) }) }, id);
}

/** Refuses unless a session can be made there; see V2 for `useEnvironment`. */
export async function findEnvironment(door: Door, workspace: string, id: string): Promise<EnvironmentFields> {
  const document = await find(door, workspace, id);
  if (document.isArchived) throw invalid(`Environment ${id} is archived.`);
  return bodyOf(document).environment;
}

/** V2. Again for the same session is nothing new. */
export async function useEnvironment(door: Door, workspace: string, id: string, sessionId: string): Promise<void> {
  try {
    await door.store.put(workspace, [{ kind: useKind(id), id: sessionId, body: {}, replaces: 0 }], { requires: [{ kind: KIND, id }] });
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (error.code === "document_not_found") throw invalid(`Environment ${id} was archived or deleted.`);
    if (error.code !== "document_changed") throw error;
  }
}

/** The session is gone, or never came. */
export async function leaveEnvironment(door: Door, workspace: string, id: string, sessionId: string): Promise<void> {
  try {
    await door.store.discard(workspace, useKind(id), sessionId);
  } catch (error) {
    if (!(error instanceof Refusal && error.code === "document_not_found")) throw error;
  }
}

async function create(door: Door, call: Call, { value, given }: Body<z.infer<typeof EnvironmentCreate>>): Promise<unknown> {
  const environment: EnvironmentFields = {
    name: value.name,
    description: value.description || null,
    config: configOf(value.config),
    metadata: value.metadata ?? {},
  };
  const { id, digest, mayExist } = call.identify(door.unanswered, "env", given);
  const { workspace } = call.principal;
  const existing = async () => {
    const document = await door.store.get(workspace, KIND, id);
    if (document && bodyOf(document).digest !== digest) throw new Refusal("idempotency_conflict");
    return document;
  };
  const before = mayExist ? await existing() : null;
  if (before) return wire(before);
  const body: EnvironmentBody = { digest, environment };
  try {
    const [document] = await door.store.put(workspace, [{ kind: KIND, id, body, replaces: 0, name: environment.name }]);
    if (!document) throw new Error("a put of one document gave none");
    return wire(document);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    // A parallel request with the same key was first: its name is this one's, and so is its environment.
    const document = error.code === "document_changed" || error.code === "name_taken" ? await existing() : null;
    if (document) return wire(document);
    throw error.code === "name_taken" ? nameTaken() : error;
  }
}

export async function listEnvironments(door: Door, call: Asker, query: z.infer<typeof EnvironmentList>): Promise<unknown> {
  const { documents, next_page } = await pageOfDocuments(door, {
    workspace: call.principal.workspace,
    kind: KIND,
    limit: query.limit,
    page: query.page,
    includeArchived: query.include_archived,
  });
  return { data: documents.map(wire), next_page };
}

async function update(door: Door, call: Call, value: z.infer<typeof EnvironmentUpdate>): Promise<unknown> {
  return rewrite(door, call, (document) => {
    if (document.isArchived) throw invalid("The environment is archived and can't be changed.", { error_code: "environment_archived" });
    const { digest, environment: before } = bodyOf(document);
    const environment: EnvironmentFields = {
      name: value.name ?? before.name,
      description: value.description === undefined ? before.description : value.description || null,
      config: configOf(value.config, before.config),
      metadata: patched(before.metadata, value.metadata, { emptyDeletes: true, details: BAD_METADATA }),
    };
    return { body: { digest, environment }, isArchived: false };
  });
}

async function archive(door: Door, call: Call): Promise<unknown> {
  return rewrite(door, call, (document) => (document.isArchived ? null : { body: bodyOf(document), isArchived: true }));
}

/** Reads, changes, writes; again where another write came between. `change` gives null for "as it is". */
async function rewrite(
  door: Door,
  call: Call,
  change: (document: Document) => { readonly body: EnvironmentBody; readonly isArchived: boolean } | null,
): Promise<unknown> {
  for (let tries = 0; tries < WRITE_TRIES_MAX; tries += 1) {
    const document = await environmentDocument(door, call);
    const next = change(document);
    if (!next) return wire(document);
    const { body, isArchived } = next;
    try {
      const name = isArchived ? null : body.environment.name;
      const [written] = await door.store.put(call.principal.workspace, [
        { kind: KIND, id: document.id, body, replaces: document.revision, isArchived, name },
      ]);
      if (written) return wire(written);
    } catch (error) {
      if (error instanceof Refusal && error.code === "name_taken") throw nameTaken();
      if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
    }
  }
  throw new Refusal("store_busy");
}

async function remove(door: Door, call: Call): Promise<unknown> {
  const { id } = await environmentDocument(door, call);
  const { workspace } = call.principal;
  await prune(door, workspace, id);
  try {
    await door.store.discard(workspace, KIND, id, { unlessAny: useKind(id) });
  } catch (error) {
    if (error instanceof Refusal && error.code === "document_in_use") throw new Refusal(error.code, "The environment is in use by a session.");
    throw error;
  }
  return { id, type: "environment_deleted" };
}

/** Drops uses whose session is gone, until one is met that is in use: that one refuses the deletion anyway. V2 */
async function prune(door: Door, workspace: string, id: string): Promise<void> {
  for (;;) {
    const uses = await door.store.list(workspace, useKind(id), { order: "asc", limit: PRUNE_PAGE, includeArchived: true });
    for (const use of uses) {
      if (use.createdAt > Date.now() - USE_GRACE_MS || (await isThere(door, use.id))) return;
      await leaveEnvironment(door, workspace, id, use.id);
    }
    if (uses.length < PRUNE_PAGE) return;
  }
}

async function isThere(door: Door, sessionId: string): Promise<boolean> {
  const id = parseSessionId(sessionId);
  if (!id) return false;
  try {
    await door.store.getSession(id);
    return true;
  } catch (error) {
    if (error instanceof Refusal && error.code === "session_not_found") return false;
    throw error;
  }
}

const environmentDocument = (door: Door, call: Call): Promise<Document> => find(door, call.principal.workspace, call.id());

async function find(door: Door, workspace: string, id: string): Promise<Document> {
  const document = isIdOf("environment", id) ? await door.store.get(workspace, KIND, id) : null;
  if (!document) throw new Refusal("not_found", "There is no such environment.");
  return document;
}

const nameTaken = (): Refusal => new Refusal("name_taken", "name: an environment of this name exists");

function wire(document: Document): unknown {
  const { metadata, ...fields } = bodyOf(document).environment;
  return {
    id: document.id,
    type: "environment",
    ...fields,
    metadata,
    scope: "organization",
    created_at: rfc3339(document.createdAt),
    updated_at: rfc3339(document.updatedAt),
    archived_at: document.isArchived ? rfc3339(document.updatedAt) : null,
  };
}
