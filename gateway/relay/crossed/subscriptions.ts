// `subscriptions/listen` of a client of the stateless era, at a hand of the handshake era: the session's listening stream and its subscriptions there.
//
//   S1  What is acknowledged is what the hand can tell of: lists that it says may change, resources that it took a subscription for.
//   S2  Many listen by one session. A resource stays subscribed for as long as the session lives; who did not ask for it does not hear of it.
//   S3  A session that the hand lost ends the stream: the client asks again, and reads again what it follows.

import { z } from "zod";
import { INVALID_PARAMS, RpcError, type RpcId } from "../../mcp/rpc.ts";
import { SseResponse } from "../../mcp/sse.ts";
import type { Exchange } from "../upstream.ts";
import { SERVER_INFO, SUBSCRIPTION_ID } from "./crossed.ts";
import type { FarLine } from "./far-line.ts";
import type { FarLines } from "./far-lines.ts";
import { SessionLost } from "./far-session.ts";
import { type Params, recordOf } from "./incoming.ts";

const STREAMS_MAX = 10_000;
const URIS_MAX = 256;
const LISTS = { toolsListChanged: "tools", promptsListChanged: "prompts", resourcesListChanged: "resources" } as const;

const Filter = z.looseObject({
  toolsListChanged: z.boolean().optional(),
  promptsListChanged: z.boolean().optional(),
  resourcesListChanged: z.boolean().optional(),
  resourceSubscriptions: z.array(z.string().max(8_192)).max(URIS_MAX).optional(),
});
type Filter = z.infer<typeof Filter>;

export class Subscriptions {
  readonly #lines: FarLines;
  readonly #open = new Set<() => void>();

  constructor(lines: FarLines) {
    this.#lines = lines;
  }

  async serve(exchange: Exchange, id: RpcId, params: Params): Promise<void> {
    const filter = Filter.safeParse(params.notifications);
    if (!filter.success) throw new RpcError(INVALID_PARAMS, "notifications: is missing or not of its kind", { status: 200 });
    if (this.#open.size >= STREAMS_MAX) throw new RpcError(-32_603, "Subscription limit reached", { status: 200 });
    const line = await this.#lines.of(exchange);
    const ended = new AbortController();
    exchange.response.once("close", () => ended.abort());
    const honored = await this.#honored(line, filter.data, ended.signal);
    const out = new SseResponse(exchange.response, exchange.keepAliveMs);
    const tell = (method: string, told: Params) =>
      void out.message(JSON.stringify({ jsonrpc: "2.0", method, params: { ...told, _meta: { [SUBSCRIPTION_ID]: id } } }), null);
    const end = () => {
      const _meta = { [SUBSCRIPTION_ID]: id, ...(line.far.serverInfo !== undefined && { [SERVER_INFO]: line.far.serverInfo }) };
      void out.message(JSON.stringify({ jsonrpc: "2.0", id, result: { resultType: "complete", _meta } }), null);
      out.end();
    };
    const wanted = (method: string, uri: string | null): boolean => {
      if (uri !== null) return honored.resourceSubscriptions?.includes(uri) === true;
      return Object.entries(LISTS).some(([name, list]) => honored[name] === true && method === `notifications/${list}/list_changed`);
    };
    this.#open.add(end);
    out.onClose(() => this.#open.delete(end));
    line.gone.addEventListener("abort", () => out.end(), { once: true });
    await this.#lines.news.watch(line.far.id, ({ method, uri }) => wanted(method, uri) && tell(method, uri === null ? {} : { uri }), ended.signal);
    tell("notifications/subscriptions/acknowledged", { notifications: honored });
    if (Object.keys(honored).length === 0) end();
  }

  close(): void {
    for (const end of [...this.#open]) end();
  }

  /** S1 */
  async #honored(line: FarLine, filter: Filter, signal: AbortSignal): Promise<Filter> {
    const { capabilities } = line.far;
    const honored: Filter = {};
    for (const [name, list] of Object.entries(LISTS))
      if (filter[name] === true && recordOf(capabilities[list]).listChanged === true) honored[name] = true;
    const uris = recordOf(capabilities.resources).subscribe === true ? [...new Set(filter.resourceSubscriptions ?? [])] : [];
    if (uris.length > 0 || Object.keys(honored).length > 0) await line.listen(signal);
    const taken: string[] = [];
    try {
      for (const uri of uris) if (await line.subscribe(uri)) taken.push(uri);
    } catch (error) {
      // S3
      if (!(error instanceof SessionLost)) throw error;
      await this.#lines.lost(line);
      throw new RpcError(-32_603, "The hand lost its session; ask again.", { status: 200 });
    }
    return { ...honored, ...(taken.length > 0 && { resourceSubscriptions: taken }) };
  }
}
