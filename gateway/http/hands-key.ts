// POST /v1/sessions/{id}/hands_key (ours, not the contract's): a key for the hands of one session, to give to an MCP client that is to have no more.

import { z } from "zod";
import type { HandsKeys } from "../../harnesses/hands-key.ts";
import { Refusal } from "../../session-store/refusal.ts";
import { statusOf } from "../../session-store/session.ts";
import type { Call, Door } from "./call.ts";
import { ownSession } from "./call.ts";
import type { AddPath } from "./route.ts";
import { bare } from "./route.ts";
import { rfc3339 } from "./wire.ts";

export interface HandsKeysGiven {
  readonly keys: HandsKeys;
  /** Where this installation is reached. */
  readonly url: () => string;
}

const HandsKey = z.strictObject({
  type: z.literal("hands_key"),
  key: z.string().describe("A bearer key for `url`, and for nothing else"),
  url: z.string().describe("The session's hands as an MCP server"),
  expires_at: z.string().describe("When the key ends at the latest; it also ends when the session next begins to run"),
});

export function addHandsKey(add: AddPath, door: Door, { keys, url }: HandsKeysGiven): void {
  const handle = async (call: Call) => {
    const { id, fence, head, ...record } = await ownSession(door, call, call.sessionId());
    if (statusOf({ id, fence, head, ...record }) === "terminated")
      throw new Refusal("invalid_request", `Session ${id} is archived: its hands are gone.`);
    const { key, expiresAt } = await keys.mint({ session: id, fence, by: { type: "client", at: head } });
    return { type: "hands_key", key, url: `${url()}/mcp/sessions/${id}`, expires_at: rfc3339(expiresAt) };
  };
  const spec = { id: "sessions.hands_key", summary: "A short-lived key for the hands of a session, as an MCP server", answer: HandsKey };
  add("/v1/sessions/:id/hands_key", { post: bare({ ...spec, handle }) }, { id: "session" });
}
