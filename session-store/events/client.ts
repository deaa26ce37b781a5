// What clients may send (contract §6.1): one schema an event type, strict at any depth.
//
//   E1  `user.custom_tool_result`, `user.tool_result` and `user.define_outcome` are processed on receipt; all others wait until a brain applies them.
//   E2  An outcome is stored with its id and its number of iterations, whether they were given or not.

import { z } from "zod";
import type { EventId } from "../ids.ts";
import { outcomeOf } from "../ids.ts";
import { MessageBlock, ResultBlock, TextBlock } from "./content.ts";

const DENY_MESSAGE_CHARS_MAX = 10_000;
const SYSTEM_BLOCKS_MAX = 1000;
const RUBRIC_CHARS_MAX = 262_144;
const DESCRIPTION_CHARS_MAX = 65_536;
const ITERATIONS_USUAL = 3;
const ITERATIONS_MAX = 20;

const toolUseId = z.string().min(1).max(128);
const result = { content: z.array(ResultBlock).nullish(), is_error: z.boolean().nullish() };

const userMessage = z.strictObject({ type: z.literal("user.message"), content: z.array(MessageBlock).min(1) });
const userInterrupt = z.strictObject({ type: z.literal("user.interrupt"), session_thread_id: z.string().min(1).max(128).nullish() });
const userToolConfirmation = z.strictObject({
  type: z.literal("user.tool_confirmation"),
  tool_use_id: toolUseId,
  result: z.enum(["allow", "deny"]),
  deny_message: z.string().max(DENY_MESSAGE_CHARS_MAX).nullish(),
});
const userCustomToolResult = z.strictObject({ type: z.literal("user.custom_tool_result"), custom_tool_use_id: toolUseId, ...result });
const userToolResult = z.strictObject({ type: z.literal("user.tool_result"), tool_use_id: toolUseId, ...result });
const systemMessage = z.strictObject({ type: z.literal("system.message"), content: z.array(TextBlock).min(1).max(SYSTEM_BLOCKS_MAX) });
const userDefineOutcome = z.strictObject({
  type: z.literal("user.define_outcome"),
  description: z.string().min(1).max(DESCRIPTION_CHARS_MAX),
  rubric: z.strictObject({ type: z.literal("text"), content: z.string().min(1).max(RUBRIC_CHARS_MAX) }),
  max_iterations: z.int().min(1).max(ITERATIONS_MAX).nullish(),
});

/** What a client sends, before it has an id. */
export const ClientInput = z.discriminatedUnion("type", [
  userMessage,
  userInterrupt,
  userToolConfirmation,
  userCustomToolResult,
  userToolResult,
  userDefineOutcome,
  systemMessage,
]);
export type ClientInput = z.infer<typeof ClientInput>;

/** An outcome to work toward, as it is stored. E2 */
export type DefineOutcome = z.infer<typeof userDefineOutcome> & {
  readonly id: EventId;
  readonly outcome_id: string;
  readonly max_iterations: number;
};

/** A client's event as it is stored: what was sent, and its id. */
export type ClientEvent = (Exclude<ClientInput, { type: "user.define_outcome" }> & { readonly id: EventId }) | DefineOutcome;

/** What was sent, as it is stored under this id. E2 */
export function eventOf(id: EventId, input: ClientInput): ClientEvent {
  if (input.type !== "user.define_outcome") return { id, ...input };
  return { id, ...input, max_iterations: input.max_iterations ?? ITERATIONS_USUAL, outcome_id: outcomeOf(id) };
}

/** Does it wait for a brain, or is it done with when it arrives? E1 */
export function waits(event: ClientInput): boolean {
  return event.type !== "user.custom_tool_result" && event.type !== "user.tool_result" && event.type !== "user.define_outcome";
}
