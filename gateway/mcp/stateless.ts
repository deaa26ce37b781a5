// The stateless era (2026-07-28): every request by itself, over the official server. It has the wire: versions, headers, `_meta`, response streams.
//
//   T1  A question to the client is an answer: `input_required`, with the state sealed (see seal.ts). The client's next try runs the tool again.
//   T2  Closing a request's stream calls it off.
//       An answer that takes longer than a moment is a stream, so that nothing between takes the silence for the end (late-stream.ts).
//   T3  A subscription hears of what its caller may follow and of nothing else, on whatever node the change was made: each node follows the logs
//       that somebody listens to there.

import type { IncomingMessage, ServerResponse } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import type { AuthInfo, ClientCapabilities, InputRequiredResult, McpHttpHandler, ServerContext } from "@modelcontextprotocol/server";
import {
  CLIENT_CAPABILITIES_META_KEY,
  createMcpHandler,
  InMemoryServerEventBus,
  inputRequired,
  ProtocolError,
  ResourceNotFoundError,
  Server,
} from "@modelcontextprotocol/server";
import type { Logger } from "pino";
import { z } from "zod";
import type { Caller } from "./caller.ts";
import type { Catalogue } from "./dispatch.ts";
import { lateStream } from "./late-stream.ts";
import { INTERNAL_ERROR, RpcError } from "./rpc.ts";
import type { Seal } from "./seal.ts";
import type { CallContext } from "./surface.ts";
import { isAsk, requestKeyOf } from "./surface.ts";
import type { Watchers } from "./watchers.ts";

const SUBSCRIPTIONS_MAX = 4_096;
const URIS_MAX = 256;
const CACHE = { ttlMs: 60_000, cacheScope: "private" } as const;
/** What a session comes to changes at any time. */
const NO_CACHE = { ttlMs: 0, cacheScope: "private" } as const;

const CACHED: Readonly<Record<string, typeof CACHE | typeof NO_CACHE>> = {
  "tools/list": CACHE,
  "prompts/list": CACHE,
  "resources/templates/list": CACHE,
  "resources/list": NO_CACHE,
  "resources/read": NO_CACHE,
};
const ASKING = new Set(["tools/call", "prompts/get", "resources/read"]);

const Envelope = z.looseObject({ [CLIENT_CAPABILITIES_META_KEY]: z.custom<ClientCapabilities>((value) => typeof value === "object").optional() });
const Listen = z.looseObject({
  method: z.literal("subscriptions/listen"),
  params: z.looseObject({ notifications: z.looseObject({ resourceSubscriptions: z.array(z.string()).max(URIS_MAX).optional() }) }),
});

export interface StatelessOptions {
  readonly catalogue: Catalogue;
  readonly seal: Seal;
  readonly watchers: Watchers;
  readonly log: Logger;
  readonly keepAliveMs: number;
}

export class StatelessEra {
  readonly #options: StatelessOptions;
  readonly #handler: McpHttpHandler;
  readonly #serve: ReturnType<typeof toNodeHandler>;

  constructor(options: StatelessOptions) {
    const { catalogue, log, keepAliveMs } = options;
    this.#options = options;
    const onerror = (error: Error) => log.debug({ reason: error.message.slice(0, 300) }, "mcp.refused");
    const bus = new InMemoryServerEventBus(onerror);
    this.#handler = createMcpHandler(({ authInfo }) => this.#server(callerOf(authInfo)), {
      legacy: "reject",
      bus,
      keepAliveMs,
      maxSubscriptions: SUBSCRIPTIONS_MAX,
      onerror,
    });
    const fetch: McpHttpHandler["fetch"] = (asked, given) => {
      const answering = this.#handler.fetch(asked, given);
      // A client that takes no streams waits for its answer.
      if (!asked.headers.get("accept")?.includes("text/event-stream")) return answering;
      return lateStream(answering, { keepAliveMs, body: given?.parsedBody, left: asked.signal, log });
    };
    this.#serve = toNodeHandler({ fetch }, { onerror: (error) => log.error({ err: error }, "mcp.broke") });
    catalogue.surface.onListChanged?.((list) => bus.publish({ kind: `${list}_list_changed` }));
  }

  async serve(request: IncomingMessage, response: ServerResponse, body: unknown, caller: Caller): Promise<void> {
    const served = await this.#subscribed(response, body, caller);
    const authInfo: AuthInfo = { token: "", clientId: caller.name, scopes: [...caller.scopes], extra: { caller } };
    const { method = "POST", url = "/", headers } = request;
    await this.#serve({ method, url, headers, auth: authInfo, [Symbol.asyncIterator]: () => request[Symbol.asyncIterator]() }, response, served);
  }

  close(): Promise<void> {
    return this.#handler.close();
  }

  /** A subscription without what its caller may not follow; what it may is followed until the stream ends. T3 */
  async #subscribed(response: ServerResponse, body: unknown, caller: Caller): Promise<unknown> {
    const listen = Listen.safeParse(body);
    const uris = listen.data?.params.notifications.resourceSubscriptions;
    if (!listen.success || !uris) return body;
    const { catalogue, watchers } = this.#options;
    const allowed: string[] = [];
    for (const uri of new Set(uris)) if (await catalogue.surface.resources?.mayWatch(uri, caller)) allowed.push(uri);
    const ended = new AbortController();
    response.once("close", () => ended.abort());
    for (const uri of allowed) watchers.watch(uri, () => this.#handler.notify.resourceUpdated(uri), ended.signal, this);
    const { params } = listen.data;
    return { ...listen.data, params: { ...params, notifications: { ...params.notifications, resourceSubscriptions: allowed } } };
  }

  #server(caller: Caller): Server {
    const { catalogue } = this.#options;
    const { surface, capabilities } = catalogue;
    const server = new Server(surface.info, { capabilities, ...(surface.instructions !== undefined && { instructions: surface.instructions }) });
    const methods = ["tools/list", "tools/call"] as const;
    for (const method of methods) server.setRequestHandler(method, ({ params }, context) => this.#run(method, params, context, caller) as never);
    if (surface.resources)
      for (const method of ["resources/list", "resources/templates/list", "resources/read"] as const)
        server.setRequestHandler(method, ({ params }, context) => this.#run(method, params, context, caller) as never);
    if (surface.prompts)
      for (const method of ["prompts/list", "prompts/get"] as const)
        server.setRequestHandler(method, ({ params }, context) => this.#run(method, params, context, caller) as never);
    if (surface.complete)
      server.setRequestHandler("completion/complete", ({ params }, context) => this.#run("completion/complete", params, context, caller) as never);
    return server;
  }

  async #run(method: string, params: unknown, { mcpReq }: ServerContext, caller: Caller): Promise<object> {
    const { catalogue, seal } = this.#options;
    const binding = { caller: caller.name, method, params: (params ?? {}) as Record<string, unknown> };
    try {
      const sealed = ASKING.has(method) ? mcpReq.requestState<string>() : undefined;
      const state = sealed === undefined ? undefined : await seal.open(sealed, binding);
      const token = mcpReq._meta?.progressToken;
      const context: CallContext = {
        caller,
        era: "stateless",
        client: Envelope.parse(mcpReq.envelope ?? {})[CLIENT_CAPABILITIES_META_KEY] ?? {},
        signal: mcpReq.signal,
        answers: sealed === undefined && mcpReq.inputResponses === undefined ? null : (mcpReq.inputResponses ?? {}),
        state,
        progressToken: token,
        requestKey: requestKeyOf(mcpReq._meta, null),
        progress: (progress, total, message) => {
          if (token === undefined) return;
          const told = { progressToken: token, progress, ...(total !== undefined && { total }), ...(message !== undefined && { message }) };
          this.#tell(mcpReq.notify({ method: "notifications/progress", params: told }));
        },
        log: (level, data, logger) => this.#tell(mcpReq.log(level, data, logger)),
        hangUp: () => {},
      };
      const result = await catalogue.run(method, params, context);
      if (!isAsk(result)) return { ...result, ...(method === "tools/list" && catalogue.surface.toolsOf ? NO_CACHE : CACHED[method]) };
      const asked: InputRequiredResult = inputRequired({
        ...(Object.keys(result.questions).length > 0 && { inputRequests: { ...result.questions } }),
        requestState: seal.close(result.state, binding),
      });
      return asked;
    } catch (error) {
      throw this.#told(error, method, params);
    }
  }

  /** A notice that can't be delivered any more is nobody's loss: the stream is gone. */
  #tell(sent: Promise<void>): void {
    sent.catch((error: unknown) => this.#options.log.debug({ reason: String(error).slice(0, 200) }, "mcp.not_told"));
  }

  #told(error: unknown, method: string, params: unknown): unknown {
    if (error instanceof ProtocolError) return error;
    if (error instanceof RpcError) {
      const uri = typeof params === "object" && params !== null && "uri" in params ? String(params.uri) : null;
      if (method === "resources/read" && uri !== null && typeof error.data === "object") return new ResourceNotFoundError(uri, error.message);
      return new ProtocolError(error.code, error.message, error.data);
    }
    this.#options.log.error({ err: error, method }, "mcp.broke");
    return new ProtocolError(INTERNAL_ERROR, "Internal error");
  }
}

function callerOf(authInfo: AuthInfo | undefined): Caller {
  const caller = authInfo?.extra?.caller;
  if (caller === undefined) throw new Error("a request reached the stateless era without a caller");
  return caller as Caller;
}
