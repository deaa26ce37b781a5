// What the door of one session's hands shows: the tools that hands run for it, named and ordered as its model sees them, and the log to read.
//
//   U1  A tool of the agent is called through the host that holds the session's lease: judged, run once and logged there.
//   U2  The log's own tools are always there. Where the agent has them they are tools like the others; where it has not, the gateway reads for the
//       caller what it could read by the API, and nothing is logged.
//   U3  Hints are true: of tools of ours they are ours; those of a server are its own, as it gave them.

import { META } from "../../../hands/hand.ts";
import { handTools } from "../../../harnesses/asks.ts";
import type { ToolDescriptor } from "../../../harnesses/harness.ts";
import type { KnownServers } from "../../../harnesses/known-servers.ts";
import { LOG_TOOLS, LOG_URL, runLogTool } from "../../../harnesses/log-tools.ts";
import { judge } from "../../../harnesses/permissions.ts";
import { prefixOf } from "../../../harnesses/tool-names.ts";
import { serversOf } from "../../../harnesses/tools.ts";
import type { AgentSnapshot, AskedBy } from "../../../session-store/events/log.ts";
import { type EventId, mintEvent, mintFrom, type SessionId } from "../../../session-store/ids.ts";
import { agentOf } from "../../../session-store/session.ts";
import type { Door } from "../../http/call.ts";
import { version } from "../../version.ts";
import type { Caller } from "../caller.ts";
import { canAskPerson, decisionsIn, questionsFor } from "../sessions/confirm.ts";
import { ask, type CallContext, failure, type Surface, type ToolEntry } from "../surface.ts";
import { askForCall } from "./asker.ts";
import { contentOf } from "./content.ts";
import { KnownTools } from "./known.ts";

const INSTRUCTIONS =
  "The hands of one session of Manyhands: its sandbox, the MCP servers of its agent, and its log. A call runs as if the session's agent had made it, " +
  "in order with the agent's own, and stands in the session's log. To be sure that a call which is sent again runs once, give it a name of its own in " +
  `_meta (${META.toolUseId}).`;
const LOG_SERVER = "session";
const CALL = "call";

export function sessionHandsSurface(door: Door): Surface {
  const known = new KnownTools(door.store);
  return {
    info: { name: "manyhands-session", title: "The hands of a session", version: version() },
    instructions: INSTRUCTIONS,
    tools: [],
    async toolsOf(caller) {
      const { session, by } = handsOf(caller);
      const record = await door.store.getSession(session);
      const agent = agentOf(record);
      const servers = await known.of(record);
      const tools = handTools({ agent, servers });
      const own = tools.map((tool) => toolEntry({ door, session, by, agent, servers }, tool));
      const names = new Set(tools.map(({ name }) => name));
      return [...own, ...logEntries(door, session).filter(({ definition }) => !names.has(definition.name))];
    },
  };
}

interface Shown {
  readonly door: Door;
  readonly session: SessionId;
  readonly by: AskedBy;
  readonly agent: AgentSnapshot;
  readonly servers: KnownServers;
}

/** U1 */
function toolEntry(shown: Shown, tool: ToolDescriptor): ToolEntry {
  const { name, description, input_schema } = tool;
  const isLog = serversOf(shown.agent).some((server) => server.name === tool.mcp?.server && server.url === LOG_URL);
  return {
    scope: "sessions:write",
    definition: { name, description, inputSchema: { ...input_schema, type: "object" }, annotations: hintsOf(shown, tool) },
    async call(args, context) {
      let { by } = shown;
      if (by.type === "workspace" && asksFirst(shown.agent, tool) && canAskPerson(context)) {
        if (context.answers === null) return ask(questionsFor([{ tool_use_id: CALL, name, kind: "confirmation", input: args }]), null);
        const [decision] = decisionsIn(context.answers, [CALL]);
        if (decision?.result !== "allow") return failure("The tool was not run: the person who was asked did not allow it.");
        by = { ...by, isConfirmed: true };
      }
      const id = callId(shown.session, by, context);
      const result = await askForCall(shown.door, shown.session, { type: "log.asked", id, name, input: args, by }, context);
      return isLog ? structured(result) : result;
    },
  };
}

const asksFirst = (agent: AgentSnapshot, tool: ToolDescriptor): boolean => {
  const verdict = judge(agent, tool);
  return verdict.type === "tool" && verdict.permission === "ask";
};

/** The same request again is the same call, also with a newer key; one that can't be told from a new one is a new one. */
function callId(session: SessionId, by: AskedBy, { caller, requestKey }: CallContext): EventId {
  const who = by.type === "workspace" ? caller.name : "key";
  return requestKey === null ? mintEvent() : (mintFrom("sevt", "hands", session, who, requestKey) as EventId);
}

/** U3 */
function hintsOf({ servers }: Shown, { name, mcp, isReadOnly, isIdempotent }: ToolDescriptor): object {
  if (mcp) return servers.tools.find((tool) => tool.name === name)?.annotations ?? {};
  return { readOnlyHint: isReadOnly, destructiveHint: !isReadOnly, idempotentHint: isIdempotent, openWorldHint: false };
}

/** U2 */
function logEntries({ store }: Door, session: SessionId): readonly ToolEntry[] {
  return LOG_TOOLS.tools.map(
    ({ name, description, input_schema, annotations }): ToolEntry => ({
      scope: "sessions:read",
      definition: {
        name: `${prefixOf(LOG_SERVER)}${name}`,
        description,
        inputSchema: { ...input_schema, type: "object" },
        ...(annotations && { annotations }),
      },
      async call(input) {
        const outcome = await runLogTool((slice) => store.getEvents(session, slice), { name, input });
        if (outcome.type !== "done") return failure(`The tool failed: ${outcome.reason}`);
        return structured({ content: contentOf(outcome.content), isError: outcome.isError });
      },
    }),
  );
}

/** What the log's tools say is JSON: for programs as it is. */
function structured<Result extends { readonly content: ReturnType<typeof contentOf>; readonly isError?: boolean | undefined }>(
  result: Result,
): Result {
  const [part] = result.content;
  if (result.isError || part?.type !== "text") return result;
  return { ...result, structuredContent: JSON.parse(part.text) };
}

function handsOf(caller: Caller): NonNullable<Caller["hands"]> {
  if (!caller.hands) throw new Error("a request reached a session's hands without naming it");
  return caller.hands;
}
