// Opening a stream (contract §7): everything that can be refused is refused before the headers go out.

import { z } from "zod";
import type { Position, SessionId } from "../../session-store/ids.ts";
import { position } from "../../session-store/ids.ts";
import { invalid } from "../answer.ts";
import { placeOf, readPlace } from "../stream.ts";
import { EVENT_STREAM } from "./answer-schema.ts";
import type { Call, Door } from "./call.ts";
import { ownSession } from "./call.ts";
import { list } from "./query.ts";
import type { Operation } from "./route.ts";
import { withQuery } from "./route.ts";

const StreamQuery = z.strictObject({ event_deltas: list(z.enum(["agent.message", "agent.thinking"]), 100).optional() });

/** `sessionOf` reads which session from the path. */
export function streamOperation(id: string, door: Door, sessionOf: (call: Call) => SessionId): Operation {
  return withQuery({
    id,
    summary: "Stream a session's events as they come",
    headers: ["last-event-id"],
    query: StreamQuery,
    answer: EVENT_STREAM,
    handle: (call, query) => openStream(door, call, sessionOf(call), query),
  });
}

async function openStream(door: Door, call: Call, id: SessionId, { event_deltas = [] }: z.infer<typeof StreamQuery>): Promise<undefined> {
  const resumeAt = resumePlace(call, id);
  const record = await ownSession(door, call, id);
  if (resumeAt !== null && resumeAt > record.head) throw invalid(`last-event-id: is ahead of the session, which is at ${placeOf(id, record.head)}`);
  await door.streams.run(call.response, { record, resumeAt, previews: new Set(event_deltas), requestId: call.requestId });
  return undefined;
}

/** `Last-Event-ID` must be a place in this session: resuming from a wrong one would leave a hole that nobody sees. */
function resumePlace(call: Call, id: SessionId): Position | null {
  const header = call.headers["last-event-id"];
  if (header === undefined || header === "") return null;
  const place = typeof header === "string" ? readPlace(id, header) : null;
  if (place === null) throw invalid("last-event-id: is not a place in this session's stream");
  return position(place);
}
