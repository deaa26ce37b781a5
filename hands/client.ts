// The client of hand hosts, over their MCP endpoints (wire.ts).
//
//   Z2  The abort of a signal ends the waiting and nothing else. `cancel` ends a tool. An interrupted caller calls it; one that lost its lease or
//       shuts down does not, because the next holder awaits the same call (M5).

import { z } from "zod";
import { ResultBlock } from "../session-store/events/content.ts";
import { parseSessionId, type SessionId } from "../session-store/ids.ts";
import { type HandRef, type Hands, type Holder, META, type Outcome } from "./hand.ts";
import { Prepared } from "./repository.ts";
import { ServerTools } from "./server-tools.ts";
import { type HandsOptions, type McpContent, type ToolAnswer, Wire } from "./wire.ts";

const SETTLED_AT_ONCE = 1_000;

/** Hands, and the end of their connections. */
export interface HandsClient extends Hands {
  close(): Promise<void>;
}

const Provisioned = z.object({ hand: z.string(), host: z.string() });
const session = z.string().transform((text, context): SessionId => {
  const id = parseSessionId(text);
  if (id !== null) return id;
  context.addIssue({ code: "custom", message: "no session id" });
  return z.NEVER;
});
const PreparedAll = z.object({ repositories: z.array(Prepared) });
const Configured = z.object({ servers: z.array(z.string()) });
const Instances = z.object({ instances: z.array(z.object({ hand: z.string(), session })) });

export function makeHands(options: HandsOptions): HandsClient {
  const wire = new Wire(options);
  const onHost = (host: string | undefined, tool: string, input: unknown, signal: AbortSignal, meta = {}) =>
    wire.ask({ host, path: "/mcp", tool, input, meta }, signal);
  return {
    async provision(holder, wanted, signal) {
      const answer = await onHost(undefined, "provision", { holder, resources: wanted }, signal);
      return Provisioned.parse(answer.structuredContent);
    },
    async prepare(holder, { hand, host }, { repositories, wayOut }, signal) {
      const answer = await onHost(host, "prepare", { holder, hand, repositories }, signal, wayOut && { [META.wayOut]: wayOut });
      return PreparedAll.parse(answer.structuredContent).repositories;
    },
    async listTools(holder, { hand, host }, { known, waitMs, isFresh, grant }, signal) {
      const input = { holder, hand, known, wait_ms: waitMs, is_fresh: isFresh };
      const answer = await onHost(host, "list_tools", input, signal, grant === undefined ? {} : { [META.grant]: grant });
      return ServerTools.parse(answer.structuredContent);
    },
    async announce(holder, { hand, host }, signal) {
      await onHost(host, "announce", { holder, hand }, signal);
    },
    async execute(holder, { hand, host }, use, mayRerun, signal) {
      const meta = {
        ...ours(holder, host),
        [META.toolUseId]: use.id,
        [META.rerun]: mayRerun,
        ...(use.grant === undefined ? {} : { [META.grant]: use.grant }),
        ...(use.wayOut && { [META.wayOut]: use.wayOut }),
        ...(use.pin === undefined ? {} : { [META.pin]: use.pin }),
      };
      return outcomeOf(await wire.ask({ host, path: `/mcp/hands/${hand}`, tool: use.name, input: use.input, meta }, signal));
    },
    async cancel(holder, { hand, host }, toolUseId, signal) {
      return outcomeOf(await onHost(host, "cancel", { holder, hand, tool_use_id: toolUseId }, signal));
    },
    async transfer(holder, { hand, host }, to, signal) {
      await onHost(host, "transfer", { holder, hand, to }, signal);
    },
    async settled(holder, { hand, host }, toolUseIds, signal) {
      for (let from = 0; from < toolUseIds.length; from += SETTLED_AT_ONCE)
        await onHost(host, "settled", { holder, hand, tool_use_ids: toolUseIds.slice(from, from + SETTLED_AT_ONCE) }, signal);
    },
    async release(session, host, signal) {
      await onHost(host, "release", { session }, signal);
    },
    async configured(signal) {
      return Configured.parse((await onHost(undefined, "configured", {}, signal)).structuredContent).servers;
    },
    async instances(host, signal) {
      return Instances.parse((await onHost(host, "instances", {}, signal)).structuredContent).instances;
    },
    close: () => wire.close(),
  };
}

function ours(holder: Holder, host: HandRef["host"]): Record<string, unknown> {
  return { [META.session]: holder.session, [META.fence]: holder.fence, [META.host]: host };
}

function outcomeOf(answer: ToolAnswer): Outcome {
  const told = answer._meta?.["manyhands/outcome"];
  return told ?? { type: "done", content: answer.content.map(blockOf), isError: answer.isError ?? false };
}

function blockOf(part: z.infer<typeof McpContent>): ResultBlock {
  switch (part.type) {
    case "text":
      return ResultBlock.parse({ type: "text", text: part.text });
    case "image":
      return ResultBlock.parse({ type: "image", source: { type: "base64", media_type: part.mimeType, data: part.data } });
    case "resource":
      return ResultBlock.parse({ type: "document", source: { type: "base64", media_type: part.resource.mimeType, data: part.resource.blob } });
  }
}
