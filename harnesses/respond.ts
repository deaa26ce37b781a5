// What a model reply becomes in the log: one append, in the order of contract §8.1. Pure, but for the ids it mints.
//
//   P1  `log.reply` keeps the reply block for block; the wire events follow from it.
//   P2  A call that will never run (denied, unknown, cut off, input that is no JSON object) is written as denied, with its error result in the
//       same append: no host and no client can ever run it.

import type { BrainEntry } from "../session-store/entry.ts";
import type { AgentToolUse } from "../session-store/events/brain.ts";
import type { TextBlock } from "../session-store/events/content.ts";
import type { AgentSnapshot, ReplyBlock } from "../session-store/events/log.ts";
import type { EventId } from "../session-store/ids.ts";
import { mintEvent } from "../session-store/ids.ts";
import { errorResult, spanEnd } from "./entries.ts";
import type { Reply, ToolDescriptor } from "./harness.ts";
import type { KnownServers } from "./known-servers.ts";
import { judge } from "./permissions.ts";
import { prefixOf } from "./tool-names.ts";
import { serversOf } from "./tools.ts";
import { wellFormed } from "./well-formed.ts";

type ToolUse = Extract<ReplyBlock, { type: "tool_use" }>;

export interface ReplyContext {
  readonly harness: string;
  readonly agent: AgentSnapshot;
  readonly tools: readonly ToolDescriptor[];
  readonly servers: KnownServers;
  readonly span: EventId;
  readonly messageId: EventId;
  /** The event id that a thinking block's preview was announced under. */
  thinkingId(index: number): EventId;
}

export function replyEntries(context: ReplyContext, given: Reply): readonly BrainEntry[] {
  const reply = wellFormed(given);
  const uses = reply.content.filter((block): block is ToolUse => block.type === "tool_use");
  const calls = uses.map((use) => ({ use, event_id: mintEvent() }));
  const thinking: BrainEntry[] = reply.content.flatMap((block, index) =>
    block.type === "thinking" || block.type === "redacted_thinking" ? [{ id: context.thinkingId(index), type: "agent.thinking" }] : [],
  );
  const texts = reply.content.flatMap((block): TextBlock[] =>
    block.type === "text" && block.text !== "" ? [{ type: "text", text: block.text }] : [],
  );
  const message: BrainEntry[] = texts.length > 0 ? [{ id: context.messageId, type: "agent.message", content: texts }] : [];
  const judged = calls.map(({ use, event_id }) => callEntries(context, use, event_id, reply.truncated.includes(use.id)));
  return [
    {
      type: "log.reply",
      harness: context.harness,
      span: context.span,
      model: reply.model,
      stop_reason: reply.stop_reason,
      content: reply.content,
      calls: calls.map(({ use, event_id }) => ({ tool_use_id: use.id, event_id })),
      usage: reply.usage,
    },
    ...thinking,
    ...message,
    ...judged.map(({ use }) => use),
    spanEnd(context.span, reply.usage),
    ...judged.flatMap(({ result }) => (result ? [result] : [])),
  ];
}

function callEntries(
  { agent, tools, servers }: ReplyContext,
  use: ToolUse,
  id: EventId,
  isTruncated: boolean,
): { readonly use: BrainEntry; readonly result?: BrainEntry } {
  const { name } = use;
  const parsed = parseInput(use.input_json);
  const input = isTruncated || parsed.type === "invalid" ? {} : parsed.input;
  const tool = tools.find((one) => one.name === name);
  const verdict = judge(agent, tool);
  const owner = tool ? null : ownerOf(agent, name);
  const mcp = tool?.mcp ?? owner;
  const trouble =
    owner && isOut(servers, owner)
      ? `The tool was not run: MCP server ${JSON.stringify(owner.server)} can't be reached, so its tools can't be used now.`
      : troubleOf(isTruncated, parsed, verdict.type === "tool" && verdict.permission === "deny", name);
  const asked = (permission: AgentToolUse["evaluated_permission"], evaluation: Pick<AgentToolUse, "evaluation"> = {}): BrainEntry => {
    const fields = { id, input, evaluated_permission: permission, ...evaluation };
    return mcp ? { type: "agent.mcp_tool_use", mcp_server_name: mcp.server, name: mcp.name, ...fields } : { type: "agent.tool_use", name, ...fields };
  };
  if (trouble !== null) return { use: asked("deny"), result: errorResult({ id, kind: "deny", server: mcp?.server ?? null }, trouble) };
  if (verdict.type === "custom") return { use: { id, type: "agent.custom_tool_use", name, input } };
  return { use: asked(verdict.permission, verdict.evaluation ? { evaluation: verdict.evaluation } : {}) };
}

const isOut = (servers: KnownServers, { server, url }: { readonly server: string; readonly url: string }): boolean =>
  servers.isDown(server) || servers.listOf({ name: server, url }) === null;

/** The server that a tool which was not offered would be of, by the beginning of its name. */
function ownerOf(agent: AgentSnapshot, name: string): { readonly server: string; readonly name: string; readonly url: string } | null {
  const owner = serversOf(agent).find((server) => name.startsWith(prefixOf(server.name)));
  return owner ? { server: owner.name, name: name.slice(prefixOf(owner.name).length) || name, url: owner.url } : null;
}

function troubleOf(isTruncated: boolean, parsed: Parsed, isDenied: boolean, name: string): string | null {
  if (isTruncated)
    return "The tool was not run: the reply was cut off by the output token limit inside this call. Make the call smaller, or split it into several.";
  if (isDenied) return `The tool was not run: there is no tool "${name}" here, or it is disabled.`;
  if (parsed.type === "invalid") return `The tool was not run: its input ${parsed.problem}. Send the call again with valid input.`;
  return null;
}

type Parsed = { readonly type: "input"; readonly input: unknown } | { readonly type: "invalid"; readonly problem: string };

function parseInput(json: string): Parsed {
  let input: unknown;
  try {
    input = JSON.parse(json);
  } catch (error) {
    return { type: "invalid", problem: `is not valid JSON (${error instanceof Error ? error.message : "syntax error"})` };
  }
  if (input === null || typeof input !== "object" || Array.isArray(input)) return { type: "invalid", problem: "is not a JSON object" };
  // Escapes in the JSON text can spell lone halves that the text itself does not show.
  return { type: "input", input: wellFormed(input) };
}
