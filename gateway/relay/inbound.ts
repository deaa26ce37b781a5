// A client's message, read once: which era it is of, what it asks for, and whether its headers say the same as its body.
//
//   I1  A name that comes twice in the message, its parameters or their `_meta` is refused: two readers could take one message for two different ones.
//   I2  In the stateless era the headers mirror the body; a difference is refused (-32020). Headers of other eras decide nothing.
//   I3  The bytes stay as they came, unless something must be taken out (see reserved.ts).

import { isUtf8 } from "node:buffer";
import type { IncomingHttpHeaders } from "node:http";
import { classifyInboundRequest } from "@modelcontextprotocol/server";
import { VERSIONS } from "../mcp/handshake/era.ts";
import { INVALID_REQUEST, isRecord, type Message, PARSE_ERROR, RpcError, readMessage } from "../mcp/rpc.ts";
import { editsFromClient, isForged } from "./reserved.ts";
import { edited, holdsTwice } from "./spans.ts";
import type { Era } from "./upstream.ts";

export const STATELESS_VERSION = "2026-07-28";
export const HEADER_MISMATCH = -32_020;
export const UNSUPPORTED_VERSION = -32_022;
export const PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion";
export const CLIENT_INFO = "io.modelcontextprotocol/clientInfo";
export const CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities";
/** Which parameter a request's `Mcp-Name` repeats. */
const NAMED_BY: ReadonlyMap<string, string> = new Map([
  ["tools/call", "name"],
  ["prompts/get", "name"],
  ["resources/read", "uri"],
  ["tasks/get", "taskId"],
  ["tasks/update", "taskId"],
  ["tasks/cancel", "taskId"],
]);
const SENTINEL = /^=\?base64\?(.*)\?=$/;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
/** I1 */
const ONCE = ["params", "_meta"];
const strictly = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export interface Inbound {
  readonly era: Era;
  readonly message: Message;
  /** What goes on. I3 */
  readonly body: Buffer;
}

type Params = Readonly<Record<string, unknown>>;

export function parseBody(bytes: Buffer): unknown {
  try {
    if (isUtf8(bytes)) return JSON.parse(bytes.toString("utf8"));
  } catch {
    // The parser's own words quote the body, which may hold a secret.
  }
  throw new RpcError(PARSE_ERROR, "The body is not valid JSON in UTF-8.");
}

/** `parsed` is what `bytes` say. Refuses what no hand should be given. */
export function readInbound(bytes: Buffer, parsed: unknown, headers: IncomingHttpHeaders): Inbound {
  const message = readMessage(parsed);
  const params = message.kind === "response" ? {} : message.params;
  const era = eraOf(parsed, params, headers);
  if (holdsTwice(bytes, parsed, ONCE)) throw new RpcError(INVALID_REQUEST, "The message holds a name twice.");
  if (era === "stateless") refuseMismatch(message, params, headers);
  return { era, message, body: isForged(parsed, era) ? edited(bytes, editsFromClient(bytes, era)) : bytes };
}

/** The two plain cases are told here; every other one is judged as the official server judges it. */
function eraOf(parsed: unknown, params: Params, headers: IncomingHttpHeaders): Era {
  const version = textOf(headers, "mcp-protocol-version");
  const meta = params._meta;
  const claimed = isRecord(meta) ? meta[PROTOCOL_VERSION] : undefined;
  if (claimed === undefined && (version === undefined || VERSIONS.some((each) => each === version))) return "handshake";
  if (isRecord(meta) && claimed === STATELESS_VERSION && version === STATELESS_VERSION && isRecord(meta[CLIENT_CAPABILITIES]) && isClient(meta))
    return "stateless";
  const method = textOf(headers, "mcp-method");
  const verdict = classifyInboundRequest({
    httpMethod: "POST",
    ...(version !== undefined && { protocolVersionHeader: version }),
    ...(method !== undefined && { mcpMethodHeader: method }),
    body: parsed,
  });
  if (verdict.kind === "legacy") return "handshake";
  if (verdict.kind === "modern") {
    const { revision } = verdict.classification;
    if (revision === undefined || revision === STATELESS_VERSION) return "stateless";
    throw unsupported(revision, [STATELESS_VERSION]);
  }
  throw new RpcError(verdict.code, verdict.message, { status: verdict.httpStatus, data: verdict.data });
}

export function unsupported(requested: string | undefined, supported: readonly string[]): RpcError {
  const data = { supported, ...(requested !== undefined && { requested }) };
  return new RpcError(UNSUPPORTED_VERSION, `Unsupported protocol version${requested === undefined ? "" : `: ${requested}`}`, { data });
}

function isClient(meta: Params): boolean {
  const client = meta[CLIENT_INFO];
  return isRecord(client) && typeof client.name === "string" && typeof client.version === "string";
}

/** I2 */
function refuseMismatch(message: Message, params: Params, headers: IncomingHttpHeaders): void {
  if (message.kind === "response") throw new RpcError(INVALID_REQUEST, "In this revision a client answers by asking again, not by a response.");
  const { method } = message;
  const said = textOf(headers, "mcp-method");
  if (said !== undefined && said !== method) throw mismatch(`the body names the method ${method}, the Mcp-Method header another one`);
  if (message.kind === "notification") return;
  if (textOf(headers, "mcp-protocol-version") === undefined) throw mismatch("the MCP-Protocol-Version header is missing");
  if (said === undefined) throw mismatch("the Mcp-Method header is missing");
  for (const name in headers)
    if (name.startsWith("mcp-param-") && decoded(String(headers[name])) === null) throw mismatch(`the ${name} header is not valid base64`);
  const field = NAMED_BY.get(method);
  if (field === undefined) return;
  const named = textOf(headers, "mcp-name");
  const inBody = params[field];
  if (typeof inBody !== "string") return;
  if (named === undefined) throw mismatch(`the body holds params.${field}, and the Mcp-Name header is missing`);
  const plain = decoded(named);
  if (plain === null) throw mismatch("the Mcp-Name header is not valid base64");
  if (plain !== inBody) throw mismatch(`params.${field} and the Mcp-Name header differ`);
}

const mismatch = (says: string): RpcError => new RpcError(HEADER_MISMATCH, `Header mismatch: ${says}`);

/** What a header means; null: it says that it is base64 and is not, byte for byte. */
export function decoded(value: string): string | null {
  const inner = value.startsWith("=?") ? SENTINEL.exec(value)?.[1] : undefined;
  if (inner === undefined) return value;
  if (!BASE64.test(inner)) return null;
  try {
    return strictly.decode(Buffer.from(inner, "base64"));
  } catch {
    // Not UTF-8.
    return null;
  }
}

/** A header of ours that came twice is joined by a comma, and so fits nothing. */
function textOf(headers: IncomingHttpHeaders, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" ? value.trim() : undefined;
}
