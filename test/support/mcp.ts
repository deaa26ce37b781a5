// Speaking to a door for MCP clients by hand: one POST a message, its answer read from JSON or from a stream.

import { request } from "undici";
import { z } from "zod";

const HANDSHAKE = "2025-11-25";
export const STATELESS = "2026-07-28";

const Message = z.looseObject({
  id: z.union([z.string(), z.number(), z.null()]).optional(),
  method: z.string().optional(),
  params: z.record(z.string(), z.unknown()).optional(),
  result: z.any().optional(),
  error: z.looseObject({ code: z.number(), message: z.string(), data: z.unknown().optional() }).optional(),
});
export type RpcMessage = z.infer<typeof Message>;

export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** All that came, comments left out. */
  readonly messages: readonly RpcMessage[];
  /** Ids of the stream's events. */
  readonly places: readonly string[];
  readonly text: string;
}

export type Headers = Readonly<Record<string, string>>;

const ACCEPT = { accept: "application/json, text/event-stream", "content-type": "application/json" };

/** One request to a door; `onMessage` hears what a stream brings while it is open. */
export async function post(url: string, body: unknown, headers: Headers = {}, onMessage: (message: RpcMessage) => void = () => {}): Promise<Reply> {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return readReply(await request(url, { method: "POST", body: text, headers: { ...ACCEPT, ...headers } }), onMessage);
}

export async function send(url: string, method: "GET" | "DELETE" | "PUT" | "OPTIONS" | "HEAD", headers: Headers = {}): Promise<Reply> {
  return readReply(await request(url, { method, headers: { ...ACCEPT, ...headers } }), () => {});
}

async function readReply(
  { statusCode: status, headers, body }: Awaited<ReturnType<typeof request>>,
  hear: (message: RpcMessage) => void,
): Promise<Reply> {
  const messages: RpcMessage[] = [];
  const places: string[] = [];
  const isStream = String(headers["content-type"] ?? "").startsWith("text/event-stream");
  let text = "";
  let read = 0;
  body.setEncoding("utf8");
  for await (const chunk of body) {
    text += chunk;
    if (!isStream) continue;
    for (let end = text.indexOf("\n\n", read); end >= 0; end = text.indexOf("\n\n", read)) {
      const event = new Map(
        text
          .slice(read, end)
          .split("\n")
          .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
      );
      read = end + 2;
      if (event.has("id")) places.push(event.get("id") ?? "");
      if (!event.get("data")) continue;
      const message = Message.parse(JSON.parse(event.get("data") ?? ""));
      messages.push(message);
      hear(message);
    }
  }
  const whole = !isStream && text.includes("jsonrpc") ? Message.safeParse(JSON.parse(text)) : null;
  if (whole?.success) messages.push(whole.data);
  return { status, headers, messages, places, text };
}

export interface Opened {
  readonly session: string;
  readonly headers: Headers;
  call(id: string | number, method: string, params?: object, onMessage?: (message: RpcMessage) => void): Promise<Reply>;
  notify(method: string, params?: object): Promise<Reply>;
}

/** A session of the handshake era. `other`: the address of another replica for what follows. */
export async function handshake(url: string, headers: Headers, { version = HANDSHAKE, capabilities = {}, other = url } = {}): Promise<Opened> {
  const params = { protocolVersion: version, capabilities, clientInfo: { name: "test", version: "1" } };
  const { status, headers: answered, text } = await post(url, { jsonrpc: "2.0", id: 0, method: "initialize", params }, headers);
  if (status !== 200) throw new Error(`initialize: ${status} ${text}`);
  const session = String(answered["mcp-session-id"]);
  const all = { ...headers, "mcp-session-id": session, "mcp-protocol-version": version };
  return {
    session,
    headers: all,
    call: (id, method, params, onMessage) => post(other, { jsonrpc: "2.0", id, method, ...(params && { params }) }, all, onMessage),
    notify: (method, params) => post(other, { jsonrpc: "2.0", method, ...(params && { params }) }, all),
  };
}

/** One request of the stateless era. */
export function stateless(
  url: string,
  headers: Headers,
  message: { id: string | number; method: string; params?: Record<string, unknown> },
  capabilities = {},
) {
  const { id, method, params = {} } = message;
  const meta = {
    ...(params._meta as object | undefined),
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": capabilities,
  };
  const named = params.name ?? params.uri;
  const own = { "mcp-protocol-version": STATELESS, "mcp-method": method, ...(typeof named === "string" && { "mcp-name": named }) };
  return post(url, { jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } }, { ...own, ...headers });
}
