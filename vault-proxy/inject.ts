// What passes through the proxy's door, each way, and the credential that is put in.
//
//   J1  A request's headers pass by an allow-list: the caller's own credentials, cookies, forwarding and hop-by-hop headers never do.
//   J2  An answer's headers pass by an allow-list, masked.
//   J3  Bodies come as they are, never compressed: a mask sees what it must hide.

import type { IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http";
import type { ModelKey } from "./model-key.ts";

const REQUEST_HEADERS = new Set(["accept", "content-type", "content-length", "user-agent", "idempotency-key"]);
const REQUEST_PREFIXES = ["anthropic-", "x-stainless-"] as const;
const ANSWER_HEADERS = new Set(["content-type", "content-length", "cache-control", "retry-after", "retry-after-ms", "x-should-retry", "request-id"]);
const ANSWER_PREFIXES = ["anthropic-"] as const;
const MCP_REQUEST_HEADERS = new Set(["accept", "content-type", "content-length", "user-agent", "last-event-id", "traceparent", "tracestate"]);
const MCP_ANSWER_HEADERS = new Set(["content-type", "content-length", "cache-control", "retry-after", "allow"]);
const MCP_PREFIXES = ["mcp-"] as const;

/** The headers of the request that goes on: what may pass, and the key. J1 J3 */
export function requestHeaders(given: IncomingHttpHeaders, key: ModelKey, auth: "x-api-key" | "bearer"): Record<string, string> {
  const passed: Record<string, string> = {};
  for (const [name, value] of Object.entries(given)) {
    if (typeof value === "string" && passes(name, REQUEST_HEADERS, REQUEST_PREFIXES)) passed[name] = value;
  }
  passed["accept-encoding"] = "identity";
  if (auth === "bearer") passed.authorization = `Bearer ${key.value}`;
  else passed["x-api-key"] = key.value;
  return passed;
}

/** The headers of the answer that goes back. J2 */
export function answerHeaders(given: IncomingHttpHeaders, key: ModelKey): OutgoingHttpHeaders {
  const passed: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || !passes(name, ANSWER_HEADERS, ANSWER_PREFIXES)) continue;
    passed[name] = key.scrubber.header(typeof value === "string" ? value : value.join(", "));
  }
  return passed;
}

/** The same for an MCP server: its credential is a bearer token. J1 J3 */
export function mcpRequestHeaders(given: IncomingHttpHeaders, token: string): Record<string, string> {
  const passed: Record<string, string> = {};
  for (const [name, value] of Object.entries(given)) {
    if (typeof value === "string" && passes(name, MCP_REQUEST_HEADERS, MCP_PREFIXES)) passed[name] = value;
  }
  passed["accept-encoding"] = "identity";
  passed.authorization = `Bearer ${token}`;
  return passed;
}

/** `mask` sees every value. J2 */
export function mcpAnswerHeaders(given: IncomingHttpHeaders, mask: (value: string) => string): OutgoingHttpHeaders {
  const passed: OutgoingHttpHeaders = {};
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || !passes(name, MCP_ANSWER_HEADERS, MCP_PREFIXES)) continue;
    passed[name] = mask(typeof value === "string" ? value : value.join(", "));
  }
  // Decoded on its way, a body has another length.
  if (isEncoded(given)) delete passed["content-length"];
  return passed;
}

/** Whether a body is encoded in a way that a mask can't see through. J3 */
export function isEncoded(headers: IncomingHttpHeaders): boolean {
  const encoding = headers["content-encoding"];
  return encoding !== undefined && encoding !== "identity";
}

function passes(name: string, names: ReadonlySet<string>, prefixes: readonly string[]): boolean {
  return names.has(name) || prefixes.some((prefix) => name.startsWith(prefix));
}
