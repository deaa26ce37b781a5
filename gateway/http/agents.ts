// Agents and their versions (contract §3). An agent is a document; each version is one of its own, written in the same step.

import { z } from "zod";
import type { Document } from "../../session-store/documents.ts";
import { Refusal } from "../../session-store/refusal.ts";
import { invalid } from "../answer.ts";
import { canonical } from "../idempotency.ts";
import type { AgentConfig, AgentCreate, AgentUpdate } from "./agent-schema.ts";
import { AgentList, AgentRetrieve, AgentCreate as CreateBody, modelOf, AgentUpdate as UpdateBody, VersionList } from "./agent-schema.ts";
import { refuseUnmatched, resolveTools } from "./agent-tools.ts";
import { Agent, pageOf } from "./answer-schema.ts";
import type { Asker, Body, Call, Door } from "./call.ts";
import { pageOfDocuments, WRITE_TRIES_MAX } from "./documents.ts";
import { refuseUnknownHands } from "./hands.ts";
import { patched } from "./metadata.ts";
import { isIdOf } from "./path-id.ts";
import { rangeOf } from "./query.ts";
import type { AddPath } from "./route.ts";
import { bare, withBody, withQuery } from "./route.ts";
import { rfc3339 } from "./wire.ts";

const KIND = "agent";
const versionKind = (id: string) => `agent_version:${id}`;
/** Zero-padded, so that ids sort as numbers do. */
const versionId = (version: number) => String(version).padStart(10, "0");

/** As it lies in the store. `digest` is that of the request that made it. */
interface AgentBody {
  readonly digest: string | null;
  readonly agent: AgentConfig;
}
const AgentBody = z.object({ digest: z.string().nullable(), agent: z.custom<AgentConfig>((value) => typeof value === "object" && value !== null) });
const bodyOf = (document: Document): AgentBody => AgentBody.parse(document.body);

export function addAgents(add: AddPath, door: Door): void {
  const id = { id: "agent" } as const;
  const page = pageOf(Agent);
  add("/v1/agents", {
    post: withBody({
      id: "agents.create",
      summary: "Create an agent",
      headers: ["idempotency-key"],
      body: CreateBody,
      answer: Agent,
      handle: (call, body) => create(door, call, body),
    }),
    get: withQuery({
      id: "agents.list",
      summary: "List agents, newest first",
      query: AgentList,
      answer: page,
      handle: (call, query) => listAgents(door, call, query),
    }),
  });
  const retrieving = { id: "agents.retrieve", summary: "Retrieve an agent, or one of its versions", query: AgentRetrieve, answer: Agent };
  const updating = { id: "agents.update", summary: "Update an agent: a change makes a version", body: UpdateBody, answer: Agent };
  add(
    "/v1/agents/:id",
    {
      get: withQuery({ ...retrieving, handle: (call, query) => retrieve(door, call, query.version) }),
      post: withBody({ ...updating, handle: (call, { value }) => update(door, call, value) }),
    },
    id,
  );
  const archiving = { id: "agents.archive", summary: "Archive an agent for good", answer: Agent };
  add("/v1/agents/:id/archive", { post: bare({ ...archiving, handle: (call) => archive(door, call) }) }, id);
  const versioning = { id: "agents.versions.list", summary: "List an agent's versions, newest first", query: VersionList, answer: page };
  add("/v1/agents/:id/versions", { get: withQuery({ ...versioning, handle: (call, query) => versions(door, call, query) }) }, id);
}

/** An agent as a session pins it. */
export async function findAgent(door: Door, workspace: string, id: string, version?: number | null): Promise<AgentConfig & { readonly id: string }> {
  const document = await agentDocument(door, workspace, id);
  if (document.isArchived) throw invalid(`Agent ${id} is archived.`);
  const latest = bodyOf(document).agent;
  if (version == null || version === latest.version) return { id, ...latest };
  return { id, ...bodyOf(await versionDocument(door, workspace, id, version)).agent };
}

async function create(door: Door, call: Call, { value, given }: Body<AgentCreate>): Promise<unknown> {
  const agent = configOf(value);
  const { id, digest, mayExist } = call.identify(door.unanswered, "agent", given);
  const { workspace } = call.principal;
  await refuseUnknownHands(door, workspace, agent.mcp_servers);
  const existing = async () => {
    const document = await door.store.get(workspace, KIND, id);
    if (document && bodyOf(document).digest !== digest) throw new Refusal("idempotency_conflict");
    return document;
  };
  const before = mayExist ? await existing() : null;
  if (before) return wireOf(before);
  const body: AgentBody = { digest, agent };
  try {
    const [document] = await door.store.put(workspace, [
      { kind: KIND, id, body, replaces: 0 },
      { kind: versionKind(id), id: versionId(1), body, replaces: 0 },
    ]);
    if (!document) throw new Error("a put of two documents gave none");
    return wireOf(document);
  } catch (error) {
    if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
    const document = await existing();
    if (!document) throw error;
    return wireOf(document);
  }
}

export async function listAgents(door: Door, call: Asker, query: z.infer<typeof AgentList>): Promise<unknown> {
  const { documents, next_page } = await pageOfDocuments(door, {
    workspace: call.principal.workspace,
    kind: KIND,
    limit: query.limit,
    page: query.page,
    range: rangeOf(query),
    includeArchived: query.include_archived,
  });
  return { data: documents.map(wireOf), next_page };
}

async function retrieve(door: Door, call: Call, version: number | undefined): Promise<unknown> {
  const id = call.id();
  const document = await agentDocument(door, call.principal.workspace, id);
  if (version === undefined || version === bodyOf(document).agent.version) return wireOf(document);
  return wireOfVersion(document, await versionDocument(door, call.principal.workspace, id, version));
}

async function update(door: Door, call: Call, value: AgentUpdate): Promise<unknown> {
  const id = call.id();
  const { workspace } = call.principal;
  await refuseUnknownHands(door, workspace, value.mcp_servers ?? []);
  for (let tries = 0; tries < WRITE_TRIES_MAX; tries += 1) {
    const document = await agentDocument(door, workspace, id);
    if (document.isArchived) throw invalid(`Agent ${id} is archived and can't be changed.`);
    const { digest, agent: before } = bodyOf(document);
    if (value.version != null && value.version !== before.version)
      throw new Refusal("conflict", `version: the agent is at version ${before.version} now`);
    const after = changed(before, value);
    if (canonical(after) === canonical(before)) return wireOf(document);
    const agent = { ...after, version: before.version + 1 };
    try {
      const [written] = await door.store.put(workspace, [
        { kind: KIND, id, body: { digest, agent }, replaces: document.revision },
        { kind: versionKind(id), id: versionId(agent.version), body: { digest: null, agent }, replaces: 0 },
      ]);
      if (written) return wireOf(written);
    } catch (error) {
      if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
    }
  }
  throw new Refusal("store_busy");
}

async function archive(door: Door, call: Call): Promise<unknown> {
  const id = call.id();
  const { workspace } = call.principal;
  for (let tries = 0; tries < WRITE_TRIES_MAX; tries += 1) {
    const document = await agentDocument(door, workspace, id);
    if (document.isArchived) return wireOf(document);
    try {
      const [written] = await door.store.put(workspace, [{ kind: KIND, id, body: document.body, replaces: document.revision, isArchived: true }]);
      if (written) return wireOf(written);
    } catch (error) {
      if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
    }
  }
  throw new Refusal("store_busy");
}

async function versions(door: Door, call: Call, query: z.infer<typeof VersionList>): Promise<unknown> {
  const id = call.id();
  const { workspace } = call.principal;
  const document = await agentDocument(door, workspace, id);
  const { documents, next_page } = await pageOfDocuments(door, {
    workspace,
    kind: versionKind(id),
    limit: query.limit,
    page: query.page,
    includeArchived: true,
  });
  return { data: documents.map((version) => wireOfVersion(document, version)), next_page };
}

function configOf(given: AgentCreate): AgentConfig {
  const tools = resolveTools(given.tools ?? []);
  const mcp_servers = given.mcp_servers ?? [];
  refuseUnmatched(tools, mcp_servers);
  return {
    version: 1,
    name: given.name,
    description: given.description || null,
    model: modelOf(given.model),
    system: given.system || null,
    tools,
    mcp_servers,
    metadata: given.metadata ?? {},
  };
}

/** The patched configuration, its version not yet raised. Scalars and lists replace, null clears, metadata is patched. */
function changed(before: AgentConfig, given: AgentUpdate): AgentConfig {
  const tools = given.tools === undefined ? before.tools : resolveTools(given.tools ?? []);
  const mcp_servers = given.mcp_servers === undefined ? before.mcp_servers : (given.mcp_servers ?? []);
  refuseUnmatched(tools, mcp_servers);
  return {
    version: before.version,
    name: given.name ?? before.name,
    description: given.description === undefined ? before.description : given.description || null,
    model: given.model === undefined ? before.model : modelOf(given.model, before.model),
    system: given.system === undefined ? before.system : given.system || null,
    tools,
    mcp_servers,
    metadata: patched(before.metadata, given.metadata),
  };
}

async function agentDocument(door: Door, workspace: string, id: string): Promise<Document> {
  const document = isIdOf("agent", id) ? await door.store.get(workspace, KIND, id) : null;
  if (!document) throw new Refusal("not_found", "There is no such agent.");
  return document;
}

async function versionDocument(door: Door, workspace: string, id: string, version: number): Promise<Document> {
  const document = await door.store.get(workspace, versionKind(id), versionId(version));
  if (!document) throw new Refusal("not_found", "There is no such version of the agent.");
  return document;
}

const wireOf = (document: Document) => wire(document, bodyOf(document).agent, document.updatedAt);
const wireOfVersion = (document: Document, version: Document) => wire(document, bodyOf(version).agent, version.createdAt);

function wire(document: Document, { version, metadata, ...agent }: AgentConfig, updatedAt: number): unknown {
  return {
    id: document.id,
    type: "agent",
    ...agent,
    skills: [],
    multiagent: null,
    metadata,
    execution_identity: { type: "service_account" },
    version,
    created_at: rfc3339(document.createdAt),
    updated_at: rfc3339(updatedAt),
    archived_at: document.isArchived ? rfc3339(document.updatedAt) : null,
  };
}
