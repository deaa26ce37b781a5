// Events as the wire shows them (contract §6.2).

import { z } from "zod";
import { MessageBlock, ResultBlock, TextBlock } from "../../session-store/events/content.ts";
import { AgentSnapshot, name, pageOf, time, Usage } from "./answer-schema.ts";

const text = z.string();
const count = z.int().min(0);
const content = z.array(ResultBlock);
const thread = { session_thread_id: text, agent_name: text };
const result = { content: content.nullish(), is_error: z.boolean().nullish() };
const stop = {
  stop_reason: z.discriminatedUnion("type", [
    z.strictObject({ type: z.enum(["end_turn", "retries_exhausted", "refusal", "budget_reached"]) }),
    z.strictObject({ type: z.literal("requires_action"), event_ids: z.array(text) }),
  ]),
  stop_details: z.strictObject({ type: z.literal("refusal"), category: text.nullable(), explanation: text.nullable() }).nullable(),
};

/** Sent by a client: null while it waits. */
const sent = <T extends string, Fields extends z.ZodRawShape>(type: T, fields: Fields) =>
  z.strictObject({ id: text, type: z.literal(type), ...fields, processed_at: time.nullable() });
const made = <T extends string, Fields extends z.ZodRawShape>(type: T, fields: Fields) =>
  z.strictObject({ id: text, type: z.literal(type), ...fields, processed_at: time });

const tokens = z.strictObject({
  input_tokens: count,
  output_tokens: count,
  cache_read_input_tokens: count,
  cache_creation_input_tokens: count,
});
const evaluation = { outcome_id: text, iteration: count };
const policy = z.enum(["always_allow", "always_ask", "auto"]);

const use = {
  name: text,
  input: z.unknown(),
  evaluated_permission: z.enum(["allow", "ask", "deny"]),
  evaluation: z
    .strictObject({
      type: policy,
      evaluated_permission: z.strictObject({ type: z.literal("ask"), reason_code: z.literal("indeterminate") }).optional(),
    })
    .optional(),
};

const Event = name(
  "Event",
  z.discriminatedUnion("type", [
    sent("user.message", { content: z.array(MessageBlock) }),
    sent("user.interrupt", { session_thread_id: text.nullish() }),
    sent("user.tool_confirmation", { tool_use_id: text, result: z.enum(["allow", "deny"]), deny_message: text.nullish() }),
    sent("user.custom_tool_result", { custom_tool_use_id: text, ...result }),
    made("user.define_outcome", {
      description: text,
      rubric: z.strictObject({ type: z.literal("text"), content: text }),
      max_iterations: z.int().min(1),
      outcome_id: text,
    }),
    sent("system.message", { content: z.array(TextBlock) }),
    made("agent.message", { content: z.array(TextBlock) }),
    made("agent.thinking", {}),
    made("agent.tool_use", use),
    made("agent.tool_result", { tool_use_id: text, content, is_error: z.boolean() }),
    made("agent.mcp_tool_use", { mcp_server_name: text, ...use }),
    made("agent.mcp_tool_result", { mcp_tool_use_id: text, content, is_error: z.boolean() }),
    made("agent.custom_tool_use", { name: text, input: z.unknown() }),
    made("session.status_running", {}),
    made("session.status_rescheduled", {}),
    made("session.status_terminated", {}),
    made("session.status_idle", stop),
    made("session.error", {
      error: z.looseObject({
        type: text,
        message: text,
        retry_status: z.strictObject({ type: z.enum(["retrying", "exhausted", "terminal"]) }),
      }),
    }),
    made("session.updated", { title: text.nullish(), metadata: z.record(text, text).optional(), agent: AgentSnapshot.optional() }),
    made("session.usage", { usage: Usage, budget: z.null() }),
    made("session.thread_status_running", thread),
    made("session.thread_status_rescheduled", thread),
    made("session.thread_status_terminated", thread),
    made("session.thread_status_idle", { ...thread, ...stop }),
    made("span.model_request_start", {}),
    made("span.model_request_end", {
      model_request_start_id: text,
      is_error: z.boolean(),
      model_usage: tokens,
    }),
    made("span.outcome_evaluation_start", evaluation),
    made("span.outcome_evaluation_ongoing", evaluation),
    made("span.outcome_evaluation_end", {
      ...evaluation,
      outcome_evaluation_start_id: text,
      result: z.enum(["satisfied", "needs_revision", "max_iterations_reached", "failed", "interrupted"]),
      explanation: text,
      usage: tokens,
    }),
  ]),
);

/** What only a stream shows: previews, the end of a session. */
name(
  "StreamedEvent",
  z.union([
    Event,
    made("session.deleted", {}),
    z.strictObject({ type: z.literal("event_start"), event: z.strictObject({ type: z.enum(["agent.message", "agent.thinking"]), id: text }) }),
    z.strictObject({
      type: z.literal("event_delta"),
      event_id: text,
      delta: z.strictObject({
        type: z.literal("content_delta"),
        index: count,
        content: z.strictObject({ type: z.literal("text"), text }),
      }),
    }),
  ]),
);

export const eventPage = pageOf(Event);
export const sentEvents = z.strictObject({ data: z.array(Event) });
