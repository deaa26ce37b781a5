// What an MCP server says to somebody who comes without a token: where its metadata is, and what to ask for.

import { extractWWWAuthenticateParams } from "@modelcontextprotocol/client";
import { type Guard, Unreachable } from "../guard.ts";
import { unreachable } from "./failure.ts";

export interface Challenge {
  readonly resourceMetadata: URL | null;
  readonly scope: string | null;
}

const NONE: Challenge = { resourceMetadata: null, scope: null };
const SCOPE_CHARS_MAX = 4_096;

/** Lists tools: a request of both eras that changes nothing. A server that answers anything but a challenge has none to tell. */
export async function challengeOf(guard: Guard, server: URL, signal: AbortSignal): Promise<Challenge> {
  try {
    const answer = await guard.fetch(server, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params: {} }),
      signal,
    });
    return answer.status === 401 || answer.status === 403 ? challengeIn(answer) : NONE;
  } catch (error) {
    // It is there, and speaks; what it says to strangers is of no use.
    if (error instanceof Unreachable && (error.reason === "redirect" || error.reason === "size" || error.reason === "time")) return NONE;
    throw unreachable("The MCP server", error);
  }
}

/** The challenge of an answer that refuses. */
export function challengeIn(answer: Response): Challenge {
  const { resourceMetadataUrl, scope } = extractWWWAuthenticateParams(answer);
  return { resourceMetadata: resourceMetadataUrl ?? null, scope: scope === undefined || scope.length > SCOPE_CHARS_MAX ? null : scope };
}
