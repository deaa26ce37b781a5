// Making a session (contract §5): everything is checked before anything is written.

import { eventOf, waits } from "../../session-store/events/client.ts";
import type { AgentSnapshot, LogCreated } from "../../session-store/events/log.ts";
import type { EventId, SessionId } from "../../session-store/ids.ts";
import { mintEvent, mintFrom } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionRecord } from "../../session-store/session.ts";
import { invalid } from "../answer.ts";
import { keepRepositories } from "../repository-tokens.ts";
import { modelOf } from "./agent-schema.ts";
import { refuseUnmatched, resolveTools } from "./agent-tools.ts";
import { findAgent } from "./agents.ts";
import type { Asker, Body, Door, Explain } from "./call.ts";
import { checkVaults } from "./check-vaults.ts";
import { findEnvironment, leaveEnvironment, useEnvironment } from "./environments.ts";
import { refuseUnknownHands } from "./hands.ts";
import { resourcesFrom } from "./resources.ts";
import { wireOfSession } from "./session-object.ts";
import type { AgentChoice, SessionCreate } from "./session-schema.ts";
import { tellUnmet } from "./unmet.ts";

export async function createSession(door: Door, call: Asker, { value, given }: Body<SessionCreate>): Promise<unknown> {
  const { workspace } = call.principal;
  const inputs = value.initial_events ?? [];
  let outcomes = 0;
  for (const [index, { type }] of inputs.entries()) {
    if (type !== "user.message" && type !== "user.define_outcome")
      throw invalid(`initial_events.${index}.type: only \`user.message\` and \`user.define_outcome\` start a session`);
    if (type === "user.define_outcome") outcomes += 1;
    if (outcomes > 1) throw invalid(`initial_events.${index}: at most one \`user.define_outcome\``);
  }

  const identity = call.identify(door.unanswered, "sesn", given);
  const id = identity.id as SessionId;
  const { digest } = identity;
  if (identity.mayExist) {
    const before = await stored(door, id, digest);
    if (before) return wireOfSession(before);
  }

  const chosen = typeof value.agent === "string" ? { type: "agent" as const, id: value.agent } : value.agent;
  const vaultIds = [...new Set(value.vault_ids ?? [])];
  const [agent, environment] = await Promise.all([
    findAgent(door, workspace, chosen.id, chosen.version),
    findEnvironment(door, workspace, value.environment_id),
    checkVaults(door, call, vaultIds),
  ]);
  const wanted = value.resources ?? [];
  if (environment.config.type === "self_hosted" && wanted.length > 0)
    throw invalid(`Environment ${value.environment_id} is a self-hosted environment. \`resources\` are not supported on self-hosted environments.`);
  if (environment.config.type === "self_hosted")
    throw invalid(`Environment ${value.environment_id} is a self-hosted environment. Sessions on self-hosted environments are not supported.`);
  tellUnmet(door, call, value.environment_id, environment.config);
  const { metadata: _, ...pinned } = agent;
  const snapshot = withOverrides({ type: "agent", ...pinned, skills: [], multiagent: null }, chosen);
  await refuseUnknownHands(door, workspace, snapshot.mcp_servers, "agent.");
  const created: LogCreated = {
    type: "log.created",
    workspace,
    agent: snapshot,
    environment_id: value.environment_id,
    title: value.title ?? null,
    metadata: value.metadata ?? {},
    resources: resourcesFrom(id, wanted, Date.now()),
    vault_ids: vaultIds,
  };
  const entries = inputs.map((input, index) => ({
    type: "log.received" as const,
    event: eventOf(call.key === null ? mintEvent() : (mintFrom("sevt", workspace, call.path, call.key, index) as EventId), input),
    waits: waits(input),
  }));

  // Before the session is there: one that is there can use them. What comes of no session is swept.
  if (wanted.length > 0)
    await keepRepositories(
      door.vaultProxy,
      call,
      id,
      wanted.map((each) => ({ url: each.url, token: each.authorization_token ?? null })),
    );
  await useEnvironment(door, workspace, value.environment_id, id);
  try {
    const record = await door.store.create({ id, created, entries, digest });
    await door.fault("stored");
    return wireOfSession(record);
  } catch (error) {
    // In doubt it may be there: its use stays, and is pruned if it never came.
    if (error instanceof Refusal && error.code !== "store_in_doubt") await leaveUnlessThere(door, workspace, value.environment_id, id);
    throw error;
  }
}

/** A session that an earlier try of this request made. The store compares the digests; what else is given is not looked at for a known id. */
async function stored(door: Door, id: SessionId, digest: string): Promise<SessionRecord | null> {
  try {
    const [first] = await door.store.getEvents(id, { limit: 1 });
    if (first?.entry.type !== "log.created") return null;
    return await door.store.create({ id, created: first.entry, entries: [], digest });
  } catch (error) {
    if (error instanceof Refusal && error.code === "session_not_found") return null;
    throw error;
  }
}

async function leaveUnlessThere(door: Door, workspace: string, environmentId: string, id: SessionId): Promise<void> {
  try {
    await door.store.getSession(id);
  } catch (error) {
    if (error instanceof Refusal && error.code === "session_not_found") await leaveEnvironment(door, workspace, environmentId, id);
    else door.log.warn({ sessionId: id }, "environment.use_left");
  }
}

/** Left out inherits; an empty list, or null for `system`, clears; a value replaces whole. */
function withOverrides(agent: AgentSnapshot, chosen: Exclude<AgentChoice, string> | { readonly type: "agent" }): AgentSnapshot {
  if (chosen.type === "agent") return agent;
  const tools = chosen.tools == null ? agent.tools : resolveTools(chosen.tools, "agent.tools");
  const mcp_servers = chosen.mcp_servers == null ? agent.mcp_servers : chosen.mcp_servers;
  refuseUnmatched(tools, [...mcp_servers], "agent.");
  return {
    ...agent,
    ...(chosen.model !== undefined && { model: modelOf(chosen.model) }),
    ...(chosen.system !== undefined && { system: chosen.system || null }),
    tools,
    mcp_servers,
  };
}

export const explainCreate: Explain = (path) => (path === "agent.model" ? { error_code: "agent_model_required" } : undefined);
