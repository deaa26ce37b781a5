// The tools that make, find, read and archive sessions.

import { z } from "zod";
import { parseSessionId } from "../../../session-store/ids.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import type { Door } from "../../http/call.ts";
import { ownSession } from "../../http/call.ts";
import { EventList, listEvents } from "../../http/event-list.ts";
import { readQuery } from "../../http/query.ts";
import { createSession } from "../../http/session-create.ts";
import { SessionCreate, SessionList } from "../../http/session-schema.ts";
import { archiveSession, listSessions } from "../../http/sessions.ts";
import { EVENT_TYPES } from "../../http/wire.ts";
import type { Caller } from "../caller.ts";
import type { ToolEntry } from "../surface.ts";
import { answer, tool } from "../surface.ts";
import { bodyOf, ToolAsker } from "./asker.ts";
import { cut, EventPage } from "./events.ts";
import { SessionShown, showSession } from "./shown.ts";
import { Turn, waitForTurn, waitSeconds } from "./turn.ts";

const session_id = z.string().describe("A session's id, as create_session or find_sessions gave it");
const page = z.string().optional().describe("next_page of the answer before");
const Made = z.looseObject({ id: z.string() });
const Listed = z.object({ data: z.array(Made), next_page: z.string().nullable() });

export function sessionTools(door: Door): readonly ToolEntry[] {
  const recordOf = async (caller: Caller, id: string) => {
    const parsed = parseSessionId(id);
    if (!parsed) throw new Refusal("session_not_found");
    return ownSession(door, { principal: caller }, parsed);
  };
  return [
    tool({
      name: "create_session",
      title: "Start a session",
      description:
        "Starts a session: a conversation with an agent that works on its own, with tools in an environment, and lasts until it is archived. " +
        "list_agents and list_environments say what there is. With `message` the agent begins at once; `wait_seconds` waits for its answer.",
      input: z.object({
        agent_id: z.string().describe("An agent's id, from list_agents"),
        agent_version: z.int().min(1).optional().describe("Default: the newest"),
        environment_id: z.string().describe("An environment's id, from list_environments"),
        title: z.string().max(1_024).optional(),
        message: z.string().min(1).optional().describe("The first message to the agent"),
        metadata: z.record(z.string(), z.string()).optional().describe("At most 16 pairs of your own"),
        wait_seconds: waitSeconds(0),
        idempotency_key: z.string().optional().describe("Send the same key again to be sure that one session is made"),
      }),
      output: Turn.extend({ notice: z.string().optional().describe("What the environment asks for in vain") }),
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: true },
      async run({ agent_id, agent_version, environment_id, title, message, metadata, wait_seconds: seconds, idempotency_key: key }, context) {
        const asker = new ToolAsker({ caller: context.caller, path: "/v1/sessions", key });
        const body = {
          agent: agent_version === undefined ? agent_id : { type: "agent", id: agent_id, version: agent_version },
          environment_id,
          ...(title !== undefined && { title }),
          ...(metadata && { metadata }),
          ...(message !== undefined && { initial_events: [{ type: "user.message", content: [{ type: "text", text: message }] }] }),
        };
        const { id } = Made.parse(await createSession(door, asker, bodyOf(SessionCreate, body)));
        const record = await recordOf(context.caller, id);
        const turn = await waitForTurn(door.store, record.id, { after: 0, from: 0, seconds: message === undefined ? 0 : seconds }, context);
        return answer({ ...turn, ...(asker.notice !== undefined && { notice: asker.notice }) });
      },
    }),
    tool({
      name: "find_sessions",
      title: "Find sessions",
      description: "Lists sessions, newest first, with their status and what they wait for. Filter by status or agent to find the ones to look at.",
      input: z.object({
        statuses: z.array(z.enum(["idle", "running", "rescheduling", "terminated"])).optional(),
        agent_id: z.string().optional(),
        include_archived: z.boolean().default(false),
        limit: z.int().min(1).max(100).default(20),
        page,
      }),
      output: z.object({ sessions: z.array(SessionShown), next_page: z.string().nullable() }),
      scope: "sessions:read",
      annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
      async run({ statuses, agent_id, include_archived, limit, page: given }, { caller }) {
        const search = new URLSearchParams({ limit: String(limit), include_archived: String(include_archived) });
        for (const status of statuses ?? []) search.append("statuses[]", status);
        if (agent_id !== undefined) search.set("agent_id", agent_id);
        if (given !== undefined) search.set("page", given);
        const found = Listed.parse(await listSessions(door, new ToolAsker({ caller, path: "/v1/sessions" }), readQuery(SessionList, search)));
        const records = await Promise.all(found.data.map(({ id }) => recordOf(caller, id).catch(goneAsNull)));
        return answer({ sessions: records.filter((record) => record !== null).map(showSession), next_page: found.next_page });
      },
    }),
    tool({
      name: "get_events",
      title: "Read a session's log",
      description:
        "Reads a page of a session's log: messages, tool uses with their inputs and results, status changes. Newest first unless `order` is asc. " +
        "Very long texts are cut, and say so. For what came since you last looked, wait_for_session is shorter.",
      input: z.object({
        session_id,
        types: z.array(z.enum(EVENT_TYPES)).optional().describe("Only events of these types"),
        order: z.enum(["asc", "desc"]).default("desc"),
        limit: z.int().min(1).max(200).default(50),
        page,
      }),
      output: z.object({ events: z.array(z.looseObject({ id: z.string(), type: z.string() })), next_page: z.string().nullable() }),
      scope: "sessions:read",
      annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
      async run({ session_id: id, types, order, limit, page: given }, { caller }) {
        const search = new URLSearchParams({ order, limit: String(limit) });
        for (const type of types ?? []) search.append("types[]", type);
        if (given !== undefined) search.set("page", given);
        const asker = new ToolAsker({ caller, path: "", session: id });
        const { text } = await listEvents(door, asker, readQuery(EventList, search));
        const { data, next_page } = EventPage.parse(JSON.parse(text));
        return answer({ events: data.map(cut), next_page });
      },
    }),
    tool({
      name: "archive_session",
      title: "Archive a session",
      description:
        "Ends a session for good: it takes no more messages, its log stays readable. Refused while a turn is under way: interrupt it first.",
      input: z.object({ session_id }),
      output: SessionShown,
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
      async run({ session_id: id }, { caller }) {
        await archiveSession(door, new ToolAsker({ caller, path: "", session: id }));
        return answer(showSession(await recordOf(caller, id)));
      },
    }),
  ];
}

function goneAsNull(error: unknown): null {
  if (error instanceof Refusal && error.code === "session_not_found") return null;
  throw error;
}
