// The hand host's MCP endpoints: `/mcp` is the host itself, `/mcp/hands/{hand}` one hand. Stateless, protocol 2026-07-28.
//
//   Q1  A refusal is a JSON-RPC error with its code in `data.refusal`; whatever a tool did is a result.
//   Q2  Calls answer as a stream with a sign of life every KEEP_ALIVE_MS, so that a caller can tell a long tool from a dead host.
//   Q3  A closed request ends the waiting, never the tool: M5.

import { type CallToolResult, createMcpHandler, type McpHttpHandler, ProtocolError, Server, type Tool } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { ResultBlock } from "../session-store/events/content.ts";
import { type Fence, mint, parseSessionId, type SessionId } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import { type Holder, META, type Outcome } from "./hand.ts";
import type { HandHost } from "./host.ts";
import { RepositoriesWanted } from "./repository.ts";
import { TOOLSET } from "./toolset.ts";

const KEEP_ALIVE_MS = 5_000;
export const HAND_PATH = /^\/mcp\/hands\/([0-9A-Za-z_]{1,128})$/;
/** In a result's `_meta`: the outcome, where it is more than the content says. */
const OUTCOME_META = "manyhands/outcome";

const REFUSED = -32_001;
const INVALID_PARAMS = -32_602;
const SETTLED_MAX = 1_000;
const LIST_WAIT_MS_MAX = 60_000;
const GRANT_CHARS_MAX = 4_096;
const NETWORK_CHARS_MAX = 512 * 1024;
const LIMIT_MS_MAX = 86_400_000;

const Session = z.string().transform((text, context): SessionId => {
  const id = parseSessionId(text);
  if (id !== null) return id;
  context.addIssue({ code: "custom", message: "no session id" });
  return z.NEVER;
});
const FenceNumber = z
  .number()
  .int()
  .min(0)
  .transform((value) => value as Fence);
const HolderInput = z.strictObject({ session: Session, fence: FenceNumber });
const handId = z.string().min(1).max(128);
const toolUseId = z.string().min(1).max(512);

const limitMs = z.number().int().min(1).max(LIMIT_MS_MAX).optional();
const serverName = z.string().min(1).max(255);
const ServerInput = z.strictObject({
  name: serverName,
  transport: z.discriminatedUnion("type", [
    z.strictObject({ type: z.literal("url"), url: z.url({ protocol: /^https?$/ }).max(2_048), isSse: z.boolean().optional() }),
    z.strictObject({ type: z.literal("configured"), server: serverName }),
  ]),
  shared: z.string().min(1).max(512).optional(),
  times: z.strictObject({ connectMs: limitMs, idleMs: limitMs, totalMs: limitMs }).optional(),
});

const HOST_INPUTS = {
  identity: z.strictObject({}),
  provision: z.strictObject({
    holder: HolderInput,
    resources: z.union([z.strictObject({ environment_id: z.string().max(255) }), z.strictObject({ server: ServerInput })]),
  }),
  prepare: z.strictObject({ holder: HolderInput, hand: handId, repositories: RepositoriesWanted }),
  list_tools: z.strictObject({
    holder: HolderInput,
    hand: handId,
    known: z.string().max(128).nullable(),
    wait_ms: z.number().int().min(0).max(LIST_WAIT_MS_MAX),
    is_fresh: z.boolean(),
  }),
  announce: z.strictObject({ holder: HolderInput, hand: handId }),
  transfer: z.strictObject({ holder: HolderInput, hand: handId, to: HolderInput }),
  cancel: z.strictObject({ holder: HolderInput, hand: handId, tool_use_id: toolUseId }),
  settled: z.strictObject({ holder: HolderInput, hand: handId, tool_use_ids: z.array(toolUseId).max(SETTLED_MAX) }),
  release: z.strictObject({ session: Session }),
  configured: z.strictObject({}),
  instances: z.strictObject({}),
} as const;
type HostTool = keyof typeof HOST_INPUTS;

const HOST_SAYS: Record<HostTool, string> = {
  identity: "The host's id and its boot number.",
  provision: "Makes a session's hand, or finds the one it has.",
  prepare: "Clones repositories into a session's sandbox.",
  list_tools: "The tools of a hand that is an MCP server.",
  announce: "Announces a fence: older ones are refused from the answer on.",
  transfer: "Gives a hand to another holder.",
  cancel: "Ends a call; answers with what it came to.",
  settled: "Drops results that are stored elsewhere; their ids stay spent.",
  release: "Gives a session's hands back: files and processes go.",
  configured: "The servers that the operator named.",
  instances: "The hands of this host and their sessions.",
};

const HOST_TOOLS: Tool[] = Object.entries(HOST_INPUTS).map(([name, schema]) => ({
  name,
  description: HOST_SAYS[name as HostTool],
  inputSchema: { ...z.toJSONSchema(schema, { io: "input" }), type: "object" } as Tool["inputSchema"],
}));

const HAND_TOOLS: Tool[] = TOOLSET.map((tool) => ({
  name: tool.name,
  description: tool.description,
  inputSchema: tool.input_schema as Tool["inputSchema"],
  annotations: { readOnlyHint: tool.isReadOnly, idempotentHint: tool.isIdempotent, destructiveHint: !tool.isReadOnly, openWorldHint: false },
}));

const CallMeta = z.object({
  [META.session]: Session.optional(),
  [META.fence]: FenceNumber.optional(),
  [META.toolUseId]: toolUseId.optional(),
  [META.rerun]: z.boolean().optional(),
  [META.pin]: z.string().max(128).optional(),
  [META.host]: z.string().optional(),
  [META.grant]: z.string().max(GRANT_CHARS_MAX).optional(),
  [META.wayOut]: z.object({ grant: z.string().max(GRANT_CHARS_MAX), network: z.string().max(NETWORK_CHARS_MAX) }).optional(),
});

export function mcpHandler(host: HandHost, onerror: (error: Error) => void, bodyBytesMax: number): McpHttpHandler {
  const make = ({ requestInfo }: { requestInfo?: Request }): Server => {
    const hand = HAND_PATH.exec(new URL(requestInfo?.url ?? "http://none/").pathname)?.[1];
    const server = new Server({ name: hand === undefined ? "manyhands-hands" : "manyhands-hand", version: "1" }, { capabilities: { tools: {} } });
    server.setRequestHandler("tools/list", () => ({
      tools: hand === undefined ? HOST_TOOLS : host.isServer(hand) ? [] : HAND_TOOLS,
      ttlMs: 60_000,
      cacheScope: "private",
    }));
    server.setRequestHandler("tools/call", async ({ params }, context) => {
      const args = params.arguments ?? {};
      const meta = context.mcpReq._meta ?? {};
      return await answered(() => (hand === undefined ? callHost(host, params.name, args, meta) : callHand(host, hand, params.name, args, meta)));
    });
    return server;
  };
  return createMcpHandler(make, { legacy: "stateless", responseMode: "sse", keepAliveMs: KEEP_ALIVE_MS, maxRequestBodySize: bodyBytesMax, onerror });
}

/** Q1 */
async function answered(work: () => Promise<CallToolResult>): Promise<CallToolResult> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Refusal) throw new ProtocolError(REFUSED, error.message, { refusal: error.code });
    if (error instanceof z.ZodError) throw new ProtocolError(INVALID_PARAMS, z.prettifyError(error));
    throw error;
  }
}

async function callHost(host: HandHost, name: string, args: unknown, given: Record<string, unknown>): Promise<CallToolResult> {
  switch (name) {
    case "identity":
      HOST_INPUTS.identity.parse(args);
      return data(host.identity());
    case "provision": {
      const { holder, resources } = HOST_INPUTS.provision.parse(args);
      return data(await host.provision(holder, "server" in resources ? resources.server : null));
    }
    case "prepare": {
      const { holder, hand, repositories } = HOST_INPUTS.prepare.parse(args);
      return data({ repositories: await host.prepare(hand, holder, { repositories, wayOut: CallMeta.parse(given)[META.wayOut] }) });
    }
    case "list_tools": {
      const { holder, hand, known, wait_ms, is_fresh } = HOST_INPUTS.list_tools.parse(args);
      return data(await host.listTools(hand, holder, { known, waitMs: wait_ms, isFresh: is_fresh, grant: CallMeta.parse(given)[META.grant] }));
    }
    case "announce": {
      const { hand, holder } = HOST_INPUTS.announce.parse(args);
      await host.announce(hand, holder);
      return data({});
    }
    case "transfer": {
      const { hand, holder, to } = HOST_INPUTS.transfer.parse(args);
      await host.transfer(hand, holder, to);
      return data({});
    }
    case "cancel": {
      const input = HOST_INPUTS.cancel.parse(args);
      return result(await host.cancel(input.hand, input.holder, input.tool_use_id));
    }
    case "settled": {
      const input = HOST_INPUTS.settled.parse(args);
      await host.settled(input.hand, input.holder, input.tool_use_ids);
      return data({});
    }
    case "release":
      await host.release(HOST_INPUTS.release.parse(args).session);
      return data({});
    case "configured":
      HOST_INPUTS.configured.parse(args);
      return data({ servers: host.configured() });
    case "instances":
      HOST_INPUTS.instances.parse(args);
      return data({ instances: host.instances() });
    default:
      throw new ProtocolError(INVALID_PARAMS, `There is no tool named ${JSON.stringify(name.slice(0, 100))}.`);
  }
}

async function callHand(host: HandHost, hand: string, name: string, input: unknown, given: Record<string, unknown>): Promise<CallToolResult> {
  const meta = CallMeta.parse(given);
  const wanted = meta[META.host];
  if (wanted !== undefined && wanted !== host.identity().id) throw new ProtocolError(REFUSED, "This is another hand host.", { refusal: WRONG_HOST });
  const session = meta[META.session];
  const fence = meta[META.fence];
  if ((session === undefined) !== (fence === undefined)) throw new ProtocolError(INVALID_PARAMS, "Session and fence go together.");
  const holder: Holder | undefined = session === undefined || fence === undefined ? undefined : { session, fence };
  const pin = meta[META.pin];
  const asked = { id: meta[META.toolUseId] ?? mint("call"), name, input, grant: meta[META.grant], wayOut: meta[META.wayOut] };
  const use = pin === undefined ? asked : { ...asked, pin };
  return result(await host.execute(hand, holder, use, meta[META.rerun] ?? false));
}

/** Another host answers at this address: the caller is to look the address up again. */
const WRONG_HOST = "wrong_host";

function data(value: object): CallToolResult {
  return { content: [{ type: "text", text: JSON.stringify(value) }], structuredContent: { ...value } };
}

/** Failed and unknown calls are error results for any MCP client; ours reads the outcome from `_meta`. */
function result(outcome: Outcome): CallToolResult {
  if (outcome.type === "done") return { content: outcome.content.map(contentOf), isError: outcome.isError };
  const says = outcome.type === "failed" ? "The tool failed" : "The tool may have run";
  return { content: [{ type: "text", text: `${says}: ${outcome.reason}.` }], isError: true, _meta: { [OUTCOME_META]: outcome } };
}

function contentOf(block: ResultBlock): CallToolResult["content"][number] {
  if (block.type === "text") return { type: "text", text: block.text };
  if (block.type === "image" && block.source.type === "base64") return { type: "image", data: block.source.data, mimeType: block.source.media_type };
  if (block.type === "document" && block.source.type === "base64")
    return { type: "resource", resource: { uri: "file:///document", mimeType: block.source.media_type, blob: block.source.data } };
  throw new Error(`a hand gave a ${block.type} block that MCP can't carry`);
}
