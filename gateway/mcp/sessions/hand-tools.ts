// The tools that list, show, register and remove hands.

import { z } from "zod";
import { HAND_TOOLS } from "../../../hands/toolset.ts";
import type { Door } from "../../http/call.ts";
import { HandCreate, HandList } from "../../http/hand-schema.ts";
import { listHands, registerHand, removeHand, retrieveHand } from "../../http/hands.ts";
import { readQuery } from "../../http/query.ts";
import type { ToolEntry } from "../surface.ts";
import { answer, tool } from "../surface.ts";
import { bodyOf, ToolAsker } from "./asker.ts";

const READING = { readOnlyHint: true, idempotentHint: true, openWorldHint: false };
const name = z.string().describe("The hand's name, as list_hands gave it");

const HeldShown = z.object({ name: z.string(), reason: z.enum(["changed", "new", "suspicious"]), says: z.string() });
const HandShown = z.object({
  name: z.string().describe("In an agent's mcp_servers its address is hand:<name>"),
  description: z.string(),
  source: z.enum(["api", "file", "built_in"]).describe("file: of the operator's own configuration; built_in: every session has it"),
  sharing: z.enum(["shared", "session"]).describe("shared: one connection for all sessions; session: one for each"),
  status: z.enum(["unknown", "ready", "failed"]).describe("What came of the last look at its server"),
  error: z.string().nullable(),
  tools: z.array(z.string()).nullable().describe("Approved tools; null: its server never said which it has"),
  held_back: z.array(HeldShown).describe("Tools that nobody can use until somebody approves them, and why"),
});
type HandShown = z.infer<typeof HandShown>;

const HandDetail = HandShown.extend({
  transport: z.looseObject({ type: z.enum(["http", "sse", "stdio"]) }),
  allowed_tools: z.array(z.string()).nullable(),
  definitions: z.array(z.object({ name: z.string(), description: z.string(), input_schema: z.record(z.string(), z.unknown()) })),
});

const SANDBOX: HandShown = {
  name: "sandbox",
  description: "A session's own sandbox: a shell and files.",
  source: "built_in",
  sharing: "session",
  status: "ready",
  error: null,
  tools: [...HAND_TOOLS],
  held_back: [],
};

type Retrieved = Awaited<ReturnType<typeof retrieveHand>>;
type Listed = Awaited<ReturnType<typeof listHands>>["data"][number];

export function handTools(door: Door): readonly ToolEntry[] {
  return [
    tool({
      name: "list_hands",
      title: "List hands",
      description:
        "Lists the hands that agents of this installation can have, and the tools of each: the sandbox that every session has, and registered MCP " +
        "servers. An agent names a registered one in its mcp_servers as hand:<name>.",
      input: z.object({ limit: z.int().min(1).max(100).default(20), page: z.string().optional().describe("next_page of the answer before") }),
      output: z.object({ hands: z.array(HandShown), next_page: z.string().nullable() }),
      scope: "hands:read",
      annotations: READING,
      async run({ limit, page }, { caller }) {
        const search = new URLSearchParams({ limit: String(limit), ...(page !== undefined && { page }) });
        const found = await listHands(door, new ToolAsker({ caller, path: "/v1/hands" }), readQuery(HandList, search));
        const hands = found.data.map((hand) => shownOf(hand, hand.tools));
        return answer({ hands: page === undefined ? [SANDBOX, ...hands] : hands, next_page: found.next_page });
      },
    }),
    tool({
      name: "get_hand",
      title: "Look at a hand",
      description: "Shows a registered hand: where its server is, whether it answered, and the definitions of its approved tools.",
      input: z.object({ name }),
      output: HandDetail,
      scope: "hands:read",
      annotations: READING,
      async run({ name: wanted }, { caller }) {
        return answer(detailOf(await retrieveHand(door, new ToolAsker({ caller, path: "/v1/hands" }), wanted)));
      },
    }),
    tool({
      name: "register_hand",
      title: "Register a hand",
      description:
        "Registers an MCP server, so that agents can use it: by the URL of a Streamable HTTP server, or by the name of a server that the operator " +
        "configured. The server is asked for its tools, and they are approved as they are; what it changes later is held back. The same registration " +
        "again changes nothing; another one under the same name is refused.",
      input: z.object({
        name: z.string().describe("1 to 63 lower-case letters, digits, hyphens and underscores"),
        url: z.string().optional().describe("Where the server is, when it is reached over HTTP"),
        server: z.string().optional().describe("Instead of a URL: its name in the operator's file"),
        transport: z.enum(["http", "sse"]).default("http").describe("sse: a server of the kind before Streamable HTTP"),
        description: z.string().optional(),
        sharing: z.enum(["shared", "session"]).default("session").describe("shared: all sessions use one connection; for servers that keep no state"),
        allowed_tools: z.array(z.string()).optional().describe("Only these; all when left out"),
        vault_ids: z.array(z.string()).optional().describe("Vaults that hold the credential for its URL"),
        allow_unreachable: z.boolean().default(false).describe("Register it even if it does not answer now"),
      }),
      output: HandDetail,
      scope: "hands:write",
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true },
      async run({ url, server, transport, ...rest }, { caller }) {
        const where =
          server !== undefined && url === undefined
            ? { type: "stdio", server }
            : { type: transport, ...(url !== undefined && { url }), ...(server !== undefined && { server }) };
        const asker = new ToolAsker({ caller, path: "/v1/hands" });
        return answer(detailOf(await registerHand(door, asker, bodyOf(HandCreate, { ...rest, transport: where }))));
      },
    }),
    tool({
      name: "remove_hand",
      title: "Remove a hand",
      description: "Takes a hand's registration away: agents that name it can no longer call its tools. A server of the operator's file stays.",
      input: z.object({ name }),
      output: z.object({ removed: z.string() }),
      scope: "hands:write",
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
      async run({ name: wanted }, { caller }) {
        const { id } = await removeHand(door, new ToolAsker({ caller, path: "/v1/hands" }), wanted);
        return answer({ removed: id });
      },
    }),
  ];
}

function shownOf(hand: Retrieved | Listed, tools: readonly string[] | null): HandShown {
  const { name, description, source, sharing, health, held_back } = hand;
  return {
    name,
    description,
    source,
    sharing,
    status: health.status,
    error: health.error,
    tools: tools && [...tools],
    held_back: held_back.map((held) => ({ name: held.name, reason: held.reason, says: held.says })),
  };
}

function detailOf(hand: Retrieved): z.infer<typeof HandDetail> {
  const tools = hand.tools ?? [];
  return {
    ...shownOf(hand, hand.tools && tools.map((each) => each.name)),
    transport: hand.transport,
    allowed_tools: hand.allowed_tools,
    definitions: tools.map(({ name, description, input_schema }) => ({ name, description, input_schema })),
  };
}
