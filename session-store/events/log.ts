// Entries of ours: what a log must hold beside the wire events. They never leave by the API as they are.

import type { EventId, Fence, Position } from "../ids.ts";
import type { ModelUsage } from "./brain.ts";
import type { ClientEvent } from "./client.ts";

/** Position 1 of every log: what the session was made from. `agent` is the wire's agent snapshot (contract §5). */
export interface LogCreated {
  readonly type: "log.created";
  readonly workspace: string;
  readonly agent: AgentSnapshot;
  readonly environment_id: string;
  readonly title: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly resources: readonly SessionResource[];
  readonly vault_ids: readonly string[];
}

/** A repository of a session, as the wire shows it (contract §14). Its token is the vault proxy's. */
export interface SessionResource {
  readonly id: string;
  readonly type: "github_repository";
  readonly url: string;
  readonly mount_path: string;
  readonly checkout: { readonly type: "branch"; readonly name: string } | { readonly type: "commit"; readonly sha: string } | null;
  readonly created_at: string;
  readonly updated_at: string;
}

/** What the session's resources are from here on: a token of one was changed. */
export interface LogResources {
  readonly type: "log.resources";
  readonly id: EventId;
  readonly resources: readonly SessionResource[];
}

/** What a client said, whole, when it arrived. */
export interface LogReceived {
  readonly type: "log.received";
  readonly event: ClientEvent;
  readonly waits: boolean;
}

/** The event received at `ref` takes effect here; this entry's time is its `processed_at`, this position its place in lists. */
export interface LogApplied {
  readonly type: "log.applied";
  readonly ref: Position;
  readonly id: EventId;
}

/** The outcome that the event `id` defined is taken up here: from here on the agent knows of it and works toward it. */
export interface LogOutcome {
  readonly type: "log.outcome";
  readonly id: EventId;
  readonly outcome_id: string;
}

/** A grader's answer within the evaluation `span` that held no verdict: what it took counts all the same. */
export interface LogGrading {
  readonly type: "log.grading";
  readonly span: EventId;
  readonly usage: ModelUsage;
}

/** A block of a model reply, as it must go back to the model. Tool input is the original JSON text. */
export type ReplyBlock =
  | { readonly type: "text"; readonly text: string; readonly citations?: unknown }
  | { readonly type: "thinking"; readonly thinking: string; readonly signature: string }
  | { readonly type: "redacted_thinking"; readonly data: string }
  | { readonly type: "tool_use"; readonly id: string; readonly name: string; readonly input_json: string };

/** A model reply, block for block. `calls` ties the model's tool use ids to our event ids. */
export interface LogReply {
  readonly type: "log.reply";
  readonly harness: string;
  readonly span: EventId;
  readonly model: string;
  readonly stop_reason: string | null;
  readonly content: readonly ReplyBlock[];
  readonly calls: readonly { readonly tool_use_id: string; readonly event_id: EventId }[];
  readonly usage: ModelUsage & { readonly cache_creation_1h_input_tokens?: number };
}

/** Which hand host holds this session's hands; bound before the first call, `lost` when that host is gone for good. */
export interface LogHand {
  readonly type: "log.hand";
  readonly hand: string;
  readonly host: string;
  readonly state: "bound" | "lost";
  /** The MCP server that the hand is; absent: it is the session's sandbox. */
  readonly server?: ServerRef;
}

/** This hand was asked to have the session's repositories; those of `failed` it does not have, which an error before this said. */
export interface LogRepositories {
  readonly type: "log.repositories";
  readonly hand: string;
  /** By the ids of the resources. */
  readonly failed: readonly string[];
}

/** A server as an agent names it. Another address under the same name is another server. */
export interface ServerRef {
  readonly name: string;
  readonly url: string;
}

/** A tool of a server as the model was told of it. */
export interface FrozenTool {
  /** Towards the model. */
  readonly name: string;
  /** Towards the server. */
  readonly original: string;
  readonly description: string;
  readonly input_schema: Readonly<Record<string, unknown>>;
  readonly annotations?: Readonly<Record<string, unknown>> | undefined;
  /** Of the definition as the server gave it. */
  readonly hash: string;
}

/** What the model is told of a server's tools from here on: the whole list, so that every later request says the same. */
export interface LogTools {
  readonly type: "log.tools";
  readonly server: ServerRef;
  /** Of the server's list. */
  readonly hash: string;
  readonly tools: readonly FrozenTool[];
  /** Tools, by the server's names, whose definition is another one than the list before had. */
  readonly changed: readonly string[];
}

/** By what right a call is asked for: a key of the workspace; a key of the turn under this fence; a key that was given out at this place of the log. */
export type AskedBy =
  | { readonly type: "workspace"; readonly isConfirmed: boolean }
  | { readonly type: "turn"; readonly fence: Fence }
  | { readonly type: "client"; readonly at: Position };

/** A call of a hand's tool that came by the session's own door and not from the model: it waits for the host that holds the lease. */
export interface LogAsked {
  readonly type: "log.asked";
  /** The tool use will have it too: the same request again is the same call. */
  readonly id: EventId;
  /** As the model sees it. */
  readonly name: string;
  readonly input: unknown;
  readonly by: AskedBy;
}

/** What was asked for is taken up here: its tool use follows, or it is refused with these words. */
export interface LogTaken {
  readonly type: "log.taken";
  readonly id: EventId;
  readonly refused: string | null;
}

/** Whoever asked for this call does not want it any more. */
export interface LogCalledOff {
  readonly type: "log.called_off";
  readonly id: EventId;
  readonly call: EventId;
}

/** What a harness must remember between turns. */
export interface LogNote {
  readonly type: "log.note";
  readonly harness: string;
  readonly data: unknown;
}

/** The wire's model object; `effort` is in object form. */
export interface AgentModel {
  readonly id: string;
  readonly effort?: { readonly type: "low" | "medium" | "high" | "xhigh" | "max" } | null;
  readonly inference_geo?: string | null;
  readonly speed?: "standard" | "fast" | null;
}

/** The agent as a session pins it: the wire's snapshot. `tools` are resolved (contract §9). */
export interface AgentSnapshot {
  readonly type: "agent";
  readonly id: string;
  readonly version: number;
  readonly name: string;
  readonly description: string | null;
  readonly model: AgentModel;
  readonly system: string | null;
  readonly tools: readonly AgentTool[];
  readonly mcp_servers: readonly { readonly type: "url"; readonly name: string; readonly url: string }[];
  readonly skills: readonly unknown[];
  readonly multiagent: unknown;
}

export interface ToolConfig {
  readonly enabled: boolean;
  readonly permission_policy: { readonly type: "always_allow" | "always_ask" | "auto" };
}
/** Where a web tool may go (contract §9.1); the lists exclude each other. */
export interface WebSettings {
  readonly allowed_domains?: readonly string[];
  readonly blocked_domains?: readonly string[];
  readonly max_content_tokens?: number | null;
  readonly user_location?: object | null;
  readonly url_sources?: null;
}
export type AgentTool =
  | {
      readonly type: "agent_toolset_20260401";
      readonly default_config: ToolConfig;
      readonly configs: readonly (ToolConfig & WebSettings & { readonly name: string })[];
    }
  | {
      readonly type: "mcp_toolset";
      readonly mcp_server_name: string;
      readonly default_config: ToolConfig;
      readonly configs: readonly (ToolConfig & { readonly name: string })[];
    }
  | { readonly type: "custom"; readonly name: string; readonly description: string; readonly input_schema: Readonly<Record<string, unknown>> };
