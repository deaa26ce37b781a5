// Changing a session (contract §5): title, metadata, and, while it is idle, the tools of its agent.

import type { GatewayEvent } from "../../session-store/events/gateway.ts";
import type { AgentSnapshot } from "../../session-store/events/log.ts";
import { mintEvent } from "../../session-store/ids.ts";
import type { SessionRecord } from "../../session-store/session.ts";
import { agentOf, metadataOf, statusOf, titleOf } from "../../session-store/session.ts";
import { invalid } from "../answer.ts";
import { canonical } from "../idempotency.ts";
import { refuseUnmatched, resolveTools } from "./agent-tools.ts";
import type { Call, Door } from "./call.ts";
import { refuseUnknownHands } from "./hands.ts";
import { patched } from "./metadata.ts";
import type { Checked } from "./receive.ts";
import { receiveChecked } from "./receive.ts";
import { wireOfSession } from "./session-object.ts";
import type { SessionUpdate } from "./session-schema.ts";

export async function updateSession(door: Door, call: Call, value: SessionUpdate): Promise<unknown> {
  const id = call.sessionId();
  await refuseUnknownHands(door, call.principal.workspace, value.agent?.mcp_servers ?? [], "agent.");
  const { record } = await receiveChecked(door, call, id, (present) => decide(present, value));
  return wireOfSession(record);
}

/** One `session.updated` with what changed, and only that; nothing when nothing did. */
function decide(record: SessionRecord, given: SessionUpdate): Checked | null {
  const status = statusOf(record);
  if (status === "terminated") throw invalid(`Session ${record.id} is terminated and can't be changed.`);
  if (given.agent && status !== "idle") throw invalid(`agent: can be changed only while the session is idle; its status is ${status}`);
  const title = given.title === undefined ? titleOf(record) : (given.title ?? null);
  const metadata = patched(metadataOf(record), given.metadata);
  const agent = given.agent ? changedAgent(agentOf(record), given.agent) : agentOf(record);
  const event: GatewayEvent = {
    id: mintEvent(),
    type: "session.updated",
    ...(title !== titleOf(record) && { title }),
    ...(canonical(metadata) !== canonical(metadataOf(record)) && { metadata }),
    ...(canonical(agent) !== canonical(agentOf(record)) && { agent }),
  };
  if (Object.keys(event).length === 2) return null;
  return { entries: [event], onlyIdle: event.agent !== undefined };
}

function changedAgent(agent: AgentSnapshot, given: NonNullable<SessionUpdate["agent"]>): AgentSnapshot {
  const tools = given.tools === undefined ? agent.tools : resolveTools(given.tools ?? [], "agent.tools");
  const mcp_servers = given.mcp_servers === undefined ? agent.mcp_servers : (given.mcp_servers ?? []);
  refuseUnmatched(tools, [...mcp_servers], "agent.");
  return { ...agent, tools, mcp_servers };
}
