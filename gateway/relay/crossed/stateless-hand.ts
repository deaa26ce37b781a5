// Asking a hand of the stateless era, for a client that is of the other one: each request says who asks and what the client can do.
//
//   A1  Headers repeat the body, arguments included where the tool's schema says so. A hand that misses one is asked for its tools, once, and asked
//       again: it refused before it did anything.
//   A2  Ending `signal` closes the request, which calls it off.

import { encoded, headersOf } from "../../../hands/servers/param-headers.ts";
import { mint } from "../../../session-store/ids.ts";
import { isRecord } from "../../mcp/rpc.ts";
import { CLIENT_CAPABILITIES, CLIENT_INFO, HEADER_MISMATCH, PROTOCOL_VERSION, STATELESS_VERSION } from "../inbound.ts";
import type { Upstream } from "../upstream.ts";
import { Clock, type Incoming, messagesOf, metaOf, type Params, recordOf } from "./incoming.ts";

export const LOG_LEVEL = "io.modelcontextprotocol/logLevel";
const NAMED_BY: ReadonlyMap<string, string> = new Map([
  ["tools/call", "name"],
  ["prompts/get", "name"],
  ["resources/read", "uri"],
]);
const PAGES_MAX = 20;
const SCHEMAS_MAX = 2_000;

export interface Asking {
  readonly upstream: Upstream;
  readonly method: string;
  readonly params: Params;
  readonly client: { readonly info: unknown; readonly capabilities: Params };
  readonly level: string | null;
  readonly signal: AbortSignal;
  /** It is a stream to listen on. */
  readonly isEndless?: boolean;
}

/** Schemas of tools that want arguments in headers, by hand. */
const schemas = new Map<string, unknown>();
const schemaKey = ({ workspace, hand, address }: Upstream, tool: string) => JSON.stringify([workspace, hand.name, address.url.href, tool]);

/** What the hand says, its answer last. A1 A2 */
export async function* askHand(asking: Asking): AsyncGenerator<Incoming> {
  const { method, params, upstream } = asking;
  for await (const message of once(asking)) {
    const isMismatch = recordOf(message.error).code === HEADER_MISMATCH && method === "tools/call";
    const key = schemaKey(upstream, String(params.name));
    if (!isMismatch || schemas.has(key) || !(await learn(asking, key))) {
      yield message;
      continue;
    }
    yield* once(asking);
    return;
  }
}

/** The answer alone. */
export async function answerOf(asking: Asking): Promise<Incoming> {
  for await (const message of askHand(asking)) if (message.method === undefined) return message;
  return {};
}

async function* once({ upstream, method, params, client, level, signal, isEndless }: Asking): AsyncGenerator<Incoming> {
  const id = mint("hreq");
  const meta = {
    ...metaOf(params),
    [PROTOCOL_VERSION]: STATELESS_VERSION,
    [CLIENT_INFO]: client.info,
    [CLIENT_CAPABILITIES]: client.capabilities,
    ...(level !== null && { [LOG_LEVEL]: level }),
  };
  const named = params[NAMED_BY.get(method) ?? ""];
  const schema = method === "tools/call" ? schemaOf(upstream, String(params.name)) : null;
  const headers: Record<string, string> = {
    accept: "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": STATELESS_VERSION,
    "mcp-method": method,
    ...(typeof named === "string" && { "mcp-name": encoded(named) }),
  };
  for (const [name, value] of Object.entries(headersOf(schema, params.arguments))) headers[name.toLowerCase()] = value;
  const clock = new Clock(isEndless ? null : upstream.times, signal);
  try {
    const body = JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } });
    const answer = await upstream.send({ method: "POST", headers, body, signal: clock.signal });
    for await (const message of messagesOf(answer, clock)) {
      yield message;
      if (message.method === undefined) return;
    }
  } finally {
    clock.stop();
  }
}

function schemaOf(upstream: Upstream, tool: string): unknown {
  return schemas.get(schemaKey(upstream, tool)) ?? upstream.hand.tools?.find(({ name }) => name === tool)?.input_schema;
}

/** Looks for the tool's schema in the hand's list; false: it has none that says more. */
async function learn(asking: Asking, key: string): Promise<boolean> {
  let cursor: unknown;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const listing = { ...asking, method: "tools/list", params: cursor === undefined ? {} : { cursor } };
    const { result } = await answerOf(listing);
    const { tools, nextCursor } = recordOf(result);
    const found = Array.isArray(tools) ? tools.filter(isRecord).find(({ name }) => name === asking.params.name) : undefined;
    if (found) {
      if (schemas.size >= SCHEMAS_MAX) schemas.clear();
      schemas.set(key, found.inputSchema);
      return JSON.stringify(found.inputSchema ?? null).includes("x-mcp-header");
    }
    if (typeof nextCursor !== "string") return false;
    cursor = nextCursor;
  }
  return false;
}
