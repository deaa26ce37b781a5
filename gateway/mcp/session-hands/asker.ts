// Asks the host that holds a session's lease for a call, by the log, and follows the log to its result. Any gateway can ask, and any worker can be
// the host: between turns, the one that takes the session for it.
//
//   R1  A call is in the log before anything runs. The same request again is the same call: it is followed to the same result.
//   R2  A caller that calls off, or a request that breaks where its era says that this calls it off, ends the call at its hand. What this gateway's
//       own end breaks goes on, and its result is in the log.
//   R3  A wait is bounded; past it the caller is told that the call goes on.

import type { CallToolResult } from "@modelcontextprotocol/server";
import type { Stored } from "../../../session-store/entry.ts";
import type { LogAsked } from "../../../session-store/events/log.ts";
import { follow } from "../../../session-store/follow.ts";
import { type EventId, mintFrom, type Position, type SessionId } from "../../../session-store/ids.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import { type SessionRecord, statusOf } from "../../../session-store/session.ts";
import type { Door } from "../../http/call.ts";
import { receiveChecked } from "../../http/receive.ts";
import { canonical, digestOf } from "../../idempotency.ts";
import type { Caller } from "../caller.ts";
import { ToolAsker } from "../sessions/asker.ts";
import { type CallContext, failure } from "../surface.ts";
import { contentOf } from "./content.ts";

/** Beyond the longest command, with some of its kind before it. R3 */
const WAIT_MS = 1_800_000;
const BEAT_MS = 5_000;

export async function askForCall(door: Door, session: SessionId, ask: LogAsked, context: CallContext): Promise<CallToolResult> {
  const { caller, signal } = context;
  const asked = await put(door, caller, session, ask);
  const late = AbortSignal.timeout(WAIT_MS);
  const told = beat(context);
  try {
    for await (const stored of follow(door.store, session, asked, AbortSignal.any([signal, late]))) {
      const result = resultIn(stored, ask.id);
      if (result) return result;
    }
  } finally {
    clearInterval(told);
  }
  if (!signal.aborted) return failure("The call goes on, longer than this door waits for it; its result will be in the session's log.");
  await callOff(door, session, ask.id);
  return failure("The call was called off.");
}

/** R1 */
async function put(door: Door, caller: Caller, session: SessionId, ask: LogAsked): Promise<Position> {
  const asker = new ToolAsker({ caller, path: "", session });
  const decide = (record: SessionRecord) => {
    if (statusOf(record) === "terminated") throw new Refusal("invalid_request", `Session ${session} is archived: its hands are gone.`);
    return { entries: [ask], onlyIdle: false };
  };
  // The same name for another call is refused: its result would be taken for this one's.
  const { stored } = await receiveChecked(door, asker, session, decide, { digest: digestOf(ask.name, canonical(ask.input)) });
  const [entry] = stored;
  if (!entry) throw new Error("a call that was asked for is not in the log");
  return entry.position;
}

/** R2 */
async function callOff({ store, log }: Door, session: SessionId, call: EventId): Promise<void> {
  try {
    await store.receive(session, [{ type: "log.called_off", id: mintFrom("sevt", "called off", call) as EventId, call }]);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    log.warn({ sessionId: session, toolUseId: call, code: error.code }, "ask.not_called_off");
  }
}

function resultIn({ entry }: Stored, id: EventId): CallToolResult | null {
  switch (entry.type) {
    case "log.taken":
      return entry.id === id && entry.refused !== null ? failure(entry.refused) : null;
    case "agent.tool_result":
      return entry.tool_use_id === id ? { content: contentOf(entry.content), isError: entry.is_error } : null;
    case "agent.mcp_tool_result":
      return entry.mcp_tool_use_id === id ? { content: contentOf(entry.content), isError: entry.is_error } : null;
    default:
      return null;
  }
}

/** A sign of life for a client that counts the time without one. */
function beat({ progress }: CallContext): NodeJS.Timeout {
  let count = 0;
  return setInterval(() => {
    count += 1;
    progress(count, undefined, "The call goes on.");
  }, BEAT_MS);
}
