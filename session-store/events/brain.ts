// What a brain's host writes: wire events (contract §6.2) without `processed_at`, which is the time that the store stamps.

import type { EventId } from "../ids.ts";
import type { ResultBlock, TextBlock } from "./content.ts";

type PermissionPolicy = { readonly type: "always_allow" } | { readonly type: "always_ask" } | { readonly type: "auto" };
type EvaluatedPermission = "allow" | "ask" | "deny";

export type StopReason =
  | { readonly type: "end_turn" }
  | { readonly type: "requires_action"; readonly event_ids: readonly EventId[] }
  | { readonly type: "retries_exhausted" }
  | { readonly type: "refusal" }
  | { readonly type: "budget_reached" };

export type StopDetails = { readonly type: "refusal"; readonly category: string | null; readonly explanation: string | null } | null;

/** The four token counts of one model request. */
export interface ModelUsage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cache_read_input_tokens: number;
  readonly cache_creation_input_tokens: number;
}

/** Cumulative usage of a session (contract §21). */
export interface SessionUsage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cache_read_input_tokens: number;
  readonly cache_creation: { readonly ephemeral_5m_input_tokens: number; readonly ephemeral_1h_input_tokens: number };
  readonly active_seconds: number;
  readonly server_tool_use: { readonly web_search_requests: number; readonly web_fetch_requests: number };
}

export const NO_USAGE: SessionUsage = {
  input_tokens: 0,
  output_tokens: 0,
  cache_read_input_tokens: 0,
  cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
  active_seconds: 0,
  server_tool_use: { web_search_requests: 0, web_fetch_requests: 0 },
};

export type SessionErrorType =
  | "unknown_error"
  | "model_overloaded_error"
  | "model_rate_limited_error"
  | "model_request_failed_error"
  | "mcp_connection_failed_error"
  | "mcp_authentication_failed_error"
  | "tool_use_limit_reached_error"
  | "compaction_limit_reached_error"
  | RepositoryErrorType;

/** Why a session does not have one of its repositories. None ends a turn. */
type RepositoryErrorType =
  | "repository_authentication_error"
  | "repository_forbidden_error"
  | "repository_not_found_error"
  | "repository_checkout_error"
  | "repository_clone_error";

export interface SessionError {
  readonly type: SessionErrorType;
  readonly message: string;
  readonly retry_status: { readonly type: "retrying" | "exhausted" | "terminal" };
  /** With the two errors of MCP servers. */
  readonly mcp_server_name?: string;
  /** With those of repositories. */
  readonly repository_url?: string | null;
}

/** What a grader says of an iteration, or what ended the outcome otherwise (contract §13). All but `needs_revision` end it. */
export type EvaluationResult = "satisfied" | "needs_revision" | "max_iterations_reached" | "failed" | "interrupted";

interface Named<Type extends string> {
  readonly id: EventId;
  readonly type: Type;
}
interface ToolResultFields {
  readonly content: readonly ResultBlock[];
  readonly is_error: boolean;
}
interface EvaluationFields {
  readonly outcome_id: string;
  /** 0 is the first evaluation. */
  readonly iteration: number;
}
interface ThreadFields {
  readonly session_thread_id: string;
  readonly agent_name: string;
}

export type AgentToolUse = Named<"agent.tool_use"> & {
  readonly name: string;
  readonly input: unknown;
  readonly evaluated_permission: EvaluatedPermission;
  readonly evaluation?: {
    readonly type: PermissionPolicy["type"];
    readonly evaluated_permission?: { readonly type: "ask"; readonly reason_code: "indeterminate" };
  };
};
/** `name` is the server's own. */
type AgentMcpToolUse = Omit<AgentToolUse, "type"> & { readonly type: "agent.mcp_tool_use"; readonly mcp_server_name: string };
type AgentMcpToolResult = Named<"agent.mcp_tool_result"> & ToolResultFields & { readonly mcp_tool_use_id: EventId };
type AgentCustomToolUse = Named<"agent.custom_tool_use"> & { readonly name: string; readonly input: unknown };
type AgentToolResult = Named<"agent.tool_result"> & ToolResultFields & { readonly tool_use_id: EventId };

export type BrainEvent =
  | (Named<"agent.message"> & { readonly content: readonly TextBlock[] })
  | Named<"agent.thinking">
  | AgentToolUse
  | AgentToolResult
  | AgentMcpToolUse
  | AgentMcpToolResult
  | AgentCustomToolUse
  | (Named<"user.custom_tool_result"> & ToolResultFields & { readonly custom_tool_use_id: EventId }) // server-made, at an interrupt
  | Named<"session.status_running">
  | Named<"session.status_rescheduled">
  | Named<"session.status_terminated">
  | (Named<"session.status_idle"> & { readonly stop_reason: StopReason; readonly stop_details: StopDetails })
  | (Named<"session.error"> & { readonly error: SessionError })
  | (Named<"session.usage"> & { readonly usage: SessionUsage; readonly budget: null })
  | (Named<"session.thread_status_running"> & ThreadFields)
  | (Named<"session.thread_status_rescheduled"> & ThreadFields)
  | (Named<"session.thread_status_terminated"> & ThreadFields)
  | (Named<"session.thread_status_idle"> & ThreadFields & { readonly stop_reason: StopReason; readonly stop_details: StopDetails })
  | Named<"span.model_request_start">
  | (Named<"span.model_request_end"> & { readonly model_request_start_id: EventId; readonly is_error: boolean; readonly model_usage: ModelUsage })
  | (Named<"span.outcome_evaluation_start"> & EvaluationFields)
  | (Named<"span.outcome_evaluation_ongoing"> & EvaluationFields)
  | (Named<"span.outcome_evaluation_end"> &
      EvaluationFields & {
        /** Empty where none had begun. */
        readonly outcome_evaluation_start_id: string;
        readonly result: EvaluationResult;
        readonly explanation: string;
        readonly usage: ModelUsage;
      });
