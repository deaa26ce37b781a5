// What an agent is made from (contract §3), and what is kept of it.

import { z } from "zod";
import type { AgentModel, AgentTool } from "../../session-store/events/log.ts";
import { absent, McpServers, Tools } from "./agent-tools.ts";
import type { Metadata as MetadataPairs } from "./metadata.ts";
import { Metadata, MetadataPatch } from "./metadata.ts";
import { CREATED_AT, flag, integer, limit, page } from "./query.ts";

const EFFORTS = ["low", "medium", "high", "xhigh", "max"] as const;
const effort = z.union([z.enum(EFFORTS), z.strictObject({ type: z.enum(EFFORTS) })]);
const modelId = z.string().min(1).max(256);

export const Model = z.union([
  modelId,
  z.strictObject({
    id: modelId,
    effort: effort.nullish(),
    inference_geo: z.string().min(1).max(64).nullish(),
    speed: z.enum(["standard", "fast"]).nullish(),
  }),
]);
type Model = z.infer<typeof Model>;

/** What a query can name: fifteen digits. */
export const VERSION_MAX = 999_999_999_999_999;

const name = z.string().min(1).max(256);
const description = z.string().max(2048).nullish();
export const System = z.string().max(100_000);
/** Skills are not there yet: only an empty list is taken. */
export const NoSkills = z.array(z.unknown()).max(0, "is not supported").nullish();
const executionIdentity = z.strictObject({ type: z.literal("service_account", { error: "only service_account is supported" }) }).nullish();

const common = {
  description,
  system: System.nullish(),
  tools: Tools.nullish(),
  mcp_servers: McpServers.nullish(),
  skills: NoSkills,
  multiagent: absent(),
  execution_identity: executionIdentity,
};

export const AgentCreate = z.strictObject({ name, model: Model, ...common, metadata: Metadata.nullish() });
export type AgentCreate = z.infer<typeof AgentCreate>;

export const AgentUpdate = z.strictObject({
  name: name.optional(),
  model: Model.optional(),
  ...common,
  metadata: MetadataPatch.nullish(),
  version: z.int().min(1).nullish(),
});
export type AgentUpdate = z.infer<typeof AgentUpdate>;

export const AgentList = z.strictObject({
  "created_at[gte]": CREATED_AT["created_at[gte]"],
  "created_at[lte]": CREATED_AT["created_at[lte]"],
  include_archived: flag,
  limit: limit(100, 20),
  page,
});
export const AgentRetrieve = z.strictObject({ version: integer(1, VERSION_MAX) });
export const VersionList = z.strictObject({ limit: limit(100, 20), page });

/** What is kept of an agent: everything but its times. */
export interface AgentConfig {
  readonly version: number;
  readonly name: string;
  readonly description: string | null;
  readonly model: AgentModel;
  readonly system: string | null;
  readonly tools: readonly AgentTool[];
  readonly mcp_servers: McpServers;
  readonly metadata: MetadataPairs;
}

/** The wire's model object. On update (`before` given) an effort that was left out keeps the stored one; null takes it away. */
export function modelOf(given: Model, before?: AgentModel): AgentModel {
  const model = typeof given === "string" ? { id: given } : given;
  const level = model.effort === undefined ? before?.effort : model.effort;
  return {
    id: model.id,
    ...(level && { effort: typeof level === "string" ? { type: level } : level }),
    ...(model.inference_geo && { inference_geo: model.inference_geo }),
    ...(model.speed && { speed: model.speed }),
  };
}
