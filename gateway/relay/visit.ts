// One request to the door of a hand, on its way: let in, its hand known.

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { Caller } from "../mcp/caller.ts";
import type { Inbound } from "./inbound.ts";
import type { MessageLooker } from "./looks.ts";
import type { RelaySession, Upstream } from "./upstream.ts";

export interface Visit {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly caller: Caller;
  readonly upstream: Upstream;
  readonly session: RelaySession | null;
  /** Null: nothing was read yet, or there is nothing to read. */
  inbound: Inbound | null;
  /** What became of it, for the audit. */
  seen: MessageLooker | null;
}

const PASSED = ["accept", "content-type", "mcp-protocol-version", "last-event-id", "traceparent", "tracestate", "baggage"];
const STATELESS = ["mcp-method", "mcp-name"];

/** Of a client's headers, those that a hand is to see. Nothing that says who the client is, or lets it in, is among them. */
export function passedHeaders(headers: IncomingHttpHeaders, isStateless: boolean): Record<string, string> {
  const passed: Record<string, string> = {};
  const take = (name: string) => {
    const value = headers[name];
    if (typeof value === "string") passed[name] = value;
  };
  for (const name of PASSED) take(name);
  if (!isStateless) return passed;
  for (const name of STATELESS) take(name);
  for (const name in headers) if (name.startsWith("mcp-param-")) take(name);
  return passed;
}
