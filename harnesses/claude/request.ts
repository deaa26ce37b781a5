// The Messages API request of a session: pure, and byte-stable where the prompt cache needs it.
//
//   B1  With unchanged configuration, tools and system serialise the same at every request: fixed order, no clock, no ids.
//   B2  At most four cache markers: the last tool, the system, the ends of the last two user messages.

import type Anthropic from "@anthropic-ai/sdk";
import type { HarnessSession, ToolDescriptor } from "../harness.ts";
import { withoutRefused } from "./refused.ts";
import { transcriptOf } from "./transcript.ts";

export type Request = Anthropic.MessageCreateParamsStreaming;

const MARK = { cache_control: { type: "ephemeral" } } as const;

export function requestOf(
  agent: HarnessSession["agent"],
  tools: readonly ToolDescriptor[],
  entries: ReturnType<HarnessSession["getEvents"]>,
  maxTokens: number,
): Request {
  const { id, effort, inference_geo, speed } = agent.model;
  return {
    model: id,
    max_tokens: maxTokens,
    stream: true,
    ...(effort ? { output_config: { effort: effort.type } } : {}),
    ...(inference_geo ? { inference_geo } : {}),
    ...(speed ? { speed } : {}),
    ...(tools.length > 0 ? { tools: toolParams(tools) } : {}),
    ...(agent.system ? { system: [{ type: "text", text: agent.system.toWellFormed(), ...MARK }] } : {}),
    messages: marked(transcriptOf(withoutRefused(entries))),
  };
}

function toolParams(tools: readonly ToolDescriptor[]): Anthropic.Tool[] {
  return tools.map(({ name, description, input_schema }, index) => ({
    name,
    description,
    input_schema: { ...input_schema, type: "object" },
    ...(index === tools.length - 1 ? MARK : {}),
  }));
}

/** Marks the ends of the last two user messages. B2 */
function marked(messages: readonly Anthropic.MessageParam[]): Anthropic.MessageParam[] {
  const users = messages.flatMap((message, index) => (message.role === "user" ? [index] : [])).slice(-2);
  return messages.map((message, index) => {
    if (!users.includes(index) || typeof message.content === "string") return message;
    const blocks = message.content;
    const last = blocks.at(-1);
    if (!last) return message;
    return { ...message, content: [...blocks.slice(0, -1), { ...last, ...MARK }] } as Anthropic.UserMessageParam;
  });
}
