// What answers look like (contract §3 to §5, §12): for the OpenAPI document, and for the test that holds answers against it.

import { z } from "zod";
import { HAND_TOOLS } from "../../hands/toolset.ts";
import { shownAs } from "./shown.ts";

/** Schemas with a name of their own in the document. */
export const named = new Map<z.ZodType, string>();
export const name = <T extends z.ZodType>(id: string, schema: T): T => {
  named.set(schema, id);
  return schema;
};

/** An answer that is server-sent events instead of JSON. */
export const EVENT_STREAM = Symbol("text/event-stream");

export const time = shownAs(z.iso.datetime(), { type: "string", format: "date-time" });
const count = z.int().min(0);
const text = z.string();
const metadata = z.record(text, text);
const own = { created_at: time, updated_at: time, archived_at: time.nullable() };

const setting = {
  enabled: z.boolean(),
  permission_policy: z.strictObject({ type: z.enum(["always_allow", "always_ask", "auto"]) }),
};
const lists = { allowed_domains: z.array(text).optional(), blocked_domains: z.array(text).optional() };
const userLocation = z.strictObject({
  type: z.literal("approximate"),
  city: text.nullable(),
  region: text.nullable(),
  country: text.nullable(),
  timezone: text.nullable(),
});
const tools = z.array(
  z.discriminatedUnion("type", [
    z.strictObject({
      type: z.literal("agent_toolset_20260401"),
      default_config: z.strictObject(setting),
      configs: z.array(
        z.discriminatedUnion("name", [
          z.strictObject({ name: z.enum(HAND_TOOLS), type: text, ...setting }),
          z.strictObject({
            name: z.literal("web_fetch"),
            type: text,
            ...setting,
            ...lists,
            max_content_tokens: count.nullable(),
            url_sources: z.null(),
          }),
          z.strictObject({ name: z.literal("web_search"), type: text, ...setting, ...lists, user_location: userLocation.nullable() }),
        ]),
      ),
    }),
    z.strictObject({
      type: z.literal("mcp_toolset"),
      mcp_server_name: text,
      default_config: z.strictObject(setting),
      configs: z.array(z.strictObject({ name: text, ...setting })),
    }),
    z.strictObject({ type: z.literal("custom"), name: text, description: text, input_schema: z.record(text, z.unknown()) }),
  ]),
);

/** What an agent and its snapshot in a session have in common. */
const agent = {
  id: text,
  type: z.literal("agent"),
  version: z.int().min(1),
  name: text,
  description: text.nullable(),
  model: z.strictObject({
    id: text,
    effort: z.strictObject({ type: z.enum(["low", "medium", "high", "xhigh", "max"]) }).optional(),
    inference_geo: text.optional(),
    speed: z.enum(["standard", "fast"]).optional(),
  }),
  system: text.nullable(),
  tools,
  mcp_servers: z.array(z.strictObject({ type: z.literal("url"), name: text, url: text })),
  skills: z.array(z.unknown()),
  multiagent: z.null(),
  execution_identity: z.strictObject({ type: z.literal("service_account") }),
};
export const Agent = name("Agent", z.strictObject({ ...agent, metadata, ...own }));
export const AgentSnapshot = name("AgentSnapshot", z.strictObject(agent));

const packages = z.array(text);
export const Environment = name(
  "Environment",
  z.strictObject({
    id: text,
    type: z.literal("environment"),
    name: text,
    description: text.nullable(),
    config: z.discriminatedUnion("type", [
      z.strictObject({
        type: z.literal("cloud"),
        networking: z.discriminatedUnion("type", [
          z.strictObject({ type: z.literal("unrestricted") }),
          z.strictObject({
            type: z.literal("limited"),
            allowed_hosts: z.array(text),
            allow_mcp_servers: z.boolean(),
            allow_package_managers: z.boolean(),
          }),
        ]),
        packages: z.strictObject({
          type: z.literal("packages"),
          apt: packages,
          cargo: packages,
          gem: packages,
          go: packages,
          npm: packages,
          pip: packages,
        }),
      }),
      z.strictObject({ type: z.literal("self_hosted") }),
    ]),
    metadata,
    scope: z.literal("organization"),
    ...own,
  }),
);

export const Usage = name(
  "Usage",
  z.strictObject({
    input_tokens: count,
    output_tokens: count,
    cache_read_input_tokens: count,
    cache_creation: z.strictObject({ ephemeral_5m_input_tokens: count, ephemeral_1h_input_tokens: count }),
    active_seconds: z.number().min(0),
    server_tool_use: z.strictObject({ web_search_requests: count, web_fetch_requests: count }),
  }),
);
const status = z.enum(["idle", "running", "rescheduling", "terminated"]);
const stats = z.strictObject({ active_seconds: z.number().min(0), duration_seconds: z.number().min(0) });

export const SessionResource = name(
  "SessionResource",
  z.strictObject({
    id: text,
    type: z.literal("github_repository"),
    url: text,
    mount_path: text,
    checkout: z
      .discriminatedUnion("type", [
        z.strictObject({ type: z.literal("branch"), name: text }),
        z.strictObject({ type: z.literal("commit"), sha: text }),
      ])
      .nullable(),
    created_at: time,
    updated_at: time,
  }),
);

export const Session = name(
  "Session",
  z.strictObject({
    id: text,
    type: z.literal("session"),
    title: text.nullable(),
    status,
    agent: AgentSnapshot,
    environment_id: text,
    resources: z.array(SessionResource),
    vault_ids: z.array(text),
    deployment_id: text.nullable(),
    metadata,
    budget: z.null(),
    outcome_evaluations: z.array(
      z.strictObject({
        type: z.literal("outcome_evaluation"),
        outcome_id: text,
        description: text,
        iteration: count,
        result: z.enum(["pending", "running", "evaluating", "satisfied", "max_iterations_reached", "failed", "interrupted"]),
        explanation: text.nullable(),
        completed_at: time.nullable(),
      }),
    ),
    usage: Usage,
    stats,
    ...own,
  }),
);

export const Thread = name(
  "Thread",
  z.strictObject({
    id: text,
    type: z.literal("session_thread"),
    session_id: text,
    parent_thread_id: text.nullable(),
    agent: AgentSnapshot,
    status,
    stats,
    usage: Usage,
    workflow_run_id: text.nullable(),
    ...own,
  }),
);

const cursor = text.nullable().describe("A cursor for `page`; null: there is no more.");
export const pageOf = (item: z.ZodType) => z.strictObject({ data: z.array(item), next_page: cursor });
export const sessionPage = z.strictObject({ data: z.array(Session), next_page: cursor, prev_page: cursor });
export const Deleted = (type: string) => z.strictObject({ id: text, type: z.literal(type) });
