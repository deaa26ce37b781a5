// What clients may send (contract §6.1): one schema an event type, strict at any depth.
//
//   E1  `user.custom_tool_result` and `user.tool_result` are processed on receipt; all others wait until a brain applies them.

import { z } from "zod";
import type { EventId } from "../ids.ts";
import { MessageBlock, ResultBlock, TextBlock } from "./content.ts";

const DENY_MESSAGE_CHARS_MAX = 10_000;
const SYSTEM_BLOCKS_MAX = 1000;

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

/** What a client sends, before it has an id. */
export const ClientInput = z.discriminatedUnion("type", [
  userMessage,
  userInterrupt,
  userToolConfirmation,
  userCustomToolResult,
  userToolResult,
  systemMessage,
]);
export type ClientInput = z.infer<typeof ClientInput>;

/** A client's event as it is stored: what was sent, and its id. */
export type ClientEvent = ClientInput & { readonly id: EventId };

/** Does it wait for a brain, or is it done with when it arrives? E1 */
export function waits(event: ClientInput): boolean {
  return event.type !== "user.custom_tool_result" && event.type !== "user.tool_result";
}
