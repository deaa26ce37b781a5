// What a session is made from, and how it may be changed (contract §5).

import { z } from "zod";
import { Model, NoSkills, System, VERSION_MAX } from "./agent-schema.ts";
import { absent, McpServers, Tools } from "./agent-tools.ts";
import { VAULTS_MAX } from "./check-vaults.ts";
import { SentEvent } from "./event-schema.ts";
import { Metadata, MetadataPatch } from "./metadata.ts";
import { CREATED_AT, flag, integer, limit, list, order, page } from "./query.ts";
import { Resources } from "./resource-schema.ts";

const INITIAL_EVENTS_MAX = 50;
const TITLE_CHARS_MAX = 1024;

const id = z.string().min(1).max(128);
const version = z.int().min(1).nullish();
const title = z.string().max(TITLE_CHARS_MAX).nullish();

const agent = z.union([
  id,
  z.discriminatedUnion("type", [
    z.strictObject({ type: z.literal("agent"), id, version }),
    z.strictObject({
      type: z.literal("agent_with_overrides"),
      id,
      version,
      model: Model.optional(),
      system: System.nullish(),
      tools: Tools.nullish(),
      mcp_servers: McpServers.nullish(),
      skills: NoSkills,
    }),
  ]),
]);
export type AgentChoice = z.infer<typeof agent>;

export const SessionCreate = z.strictObject({
  agent,
  environment_id: id,
  title,
  metadata: Metadata.nullish(),
  vault_ids: z.array(z.string().min(1).max(128)).max(VAULTS_MAX).nullish(),
  resources: Resources.nullish(),
  budget: absent(),
  initial_events: z.array(SentEvent).max(INITIAL_EVENTS_MAX, `at most ${INITIAL_EVENTS_MAX} events`).nullish(),
});
export type SessionCreate = z.infer<typeof SessionCreate>;

export const SessionUpdate = z.strictObject({
  title,
  metadata: MetadataPatch.nullish(),
  agent: z.strictObject({ tools: Tools.nullish(), mcp_servers: McpServers.nullish() }).nullish(),
  budget: absent(),
  vault_ids: z.never({ error: "can't be changed after the session was created" }).optional(),
});
export type SessionUpdate = z.infer<typeof SessionUpdate>;

const STATUSES = ["idle", "running", "rescheduling", "terminated"] as const;

export const SessionList = z
  .strictObject({
    agent_id: id.optional(),
    agent_version: integer(1, VERSION_MAX),
    deployment_id: id.optional(),
    memory_store_id: id.optional(),
    statuses: list(z.enum(STATUSES), 100).optional(),
    ...CREATED_AT,
    order: order.default("desc"),
    include_archived: flag,
    limit: limit(100, 20),
    page,
  })
  .refine((query) => query.agent_version === undefined || query.agent_id !== undefined, {
    path: ["agent_version"],
    message: "needs agent_id",
  });
export type SessionList = z.infer<typeof SessionList>;
