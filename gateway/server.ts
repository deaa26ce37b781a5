// The HTTP door: routing, authentication, envelopes. It owns no state but what is in flight.
//
//   H1  Every answer has a `request-id`, an error's also in its body.
//   H2  Under /v1 nothing is said before the key is checked. Unknown path: 404; known path, other method: 405.
//   H3  A bug is a 500 that says nothing of the inside; our log has it under the request id.

import type { RequestListener, ServerResponse } from "node:http";
import type { ErrorRequestHandler, Express, Request, RequestHandler } from "express";
import express from "express";
import type { Logger } from "pino";
import { z } from "zod";
import type { Hands } from "../hands/hand.ts";
import type { FaultPoint } from "../session-store/fault-point.ts";
import { mint } from "../session-store/ids.ts";
import { REFUSALS, Refusal } from "../session-store/refusal.ts";
import type { SessionStore } from "../session-store/store.ts";
import { answerOf, invalid } from "./answer.ts";
import type { Principal } from "./authenticate.ts";
import { API_VERSIONS, makeAuthenticate, WORKSPACE } from "./authenticate.ts";
import { addAgents } from "./http/agents.ts";
import { Bodies } from "./http/body.ts";
import type { Door } from "./http/call.ts";
import { Call, JsonText, sendJson } from "./http/call.ts";
import { addEnvironments } from "./http/environments.ts";
import { addEvents } from "./http/events.ts";
import { addHands } from "./http/hands.ts";
import { addHandsKey, type HandsKeysGiven } from "./http/hands-key.ts";
import { publishOAuthClient } from "./http/oauth-client.ts";
import { addResources } from "./http/resources.ts";
import { pathsOf } from "./http/route.ts";
import { addSessions } from "./http/sessions.ts";
import { addThreads } from "./http/threads.ts";
import { relayVaults } from "./http/vaults.ts";
import { Unanswered } from "./idempotency.ts";
import { inTurn } from "./listen.ts";
import { McpDoor, type McpDoorOptions, type McpSettings } from "./mcp/door.ts";
import { openSessionHands } from "./mcp/session-hands/door.ts";
import { sessionsSurface } from "./mcp/sessions/surface.ts";
import { openApiOf } from "./openapi.ts";
import { Registry } from "./registry/registry.ts";
import type { RelaySettings } from "./relay/door.ts";
import { wayThrough } from "./relay/grants.ts";
import { beside, openRelay } from "./relay/open.ts";
import { Streams } from "./stream.ts";
import type { VaultProxy } from "./vault-proxy.ts";

const KEEP_ALIVE_MS = 15_000;
const SLOW_READER_MS = 5_000;

/** What needs no key. */
const OPEN_PATHS = {
  healthz: { path: "/healthz", summary: "Is this gateway alive?", answer: z.strictObject({ status: z.literal("ok") }) },
  readyz: { path: "/readyz", summary: "Does this gateway take work?", answer: z.strictObject({ status: z.literal("ready") }) },
  openapi: { path: "/openapi.json", summary: "This document", answer: z.record(z.string(), z.unknown()) },
} as const;

export interface ServerOptions {
  readonly store: SessionStore;
  readonly apiKeys: readonly string[];
  readonly log: Logger;
  readonly fault: FaultPoint;
  /** Is this node able to take work? Asked by /readyz, beside the store. */
  readonly ready: () => boolean;
  /** Null: this installation has none, and so no vaults. */
  readonly vaultProxy?: VaultProxy | null;
  /** Null: this installation has no hand host, and no server can be asked for its tools. */
  readonly hands?: Hands | null;
  /** The door for MCP clients; absent: there is none. */
  readonly mcp?: McpSettings;
  /** How hands are reached by their own doors; absent: there are none. */
  readonly relay?: Omit<RelaySettings, "vault">;
  /** Keys for the hands of one session; absent: there are none, and no door for them. */
  readonly sessionHands?: HandsKeysGiven;
  readonly keepAliveMs?: number;
  /** How often registered hands are looked at by themselves; absent or 0: never. */
  readonly handCheckMs?: number;
  readonly slowReaderMs?: number;
}

export interface Server {
  readonly app: Express;
  /** What a listener is given: the application, with the doors of hands beside it. */
  readonly listener: RequestListener;
  /** Ends open streams and refuses new requests; those in flight are answered. The listener is the caller's. */
  close(): void;
}

export function makeServer(options: ServerOptions): Server {
  const { store, log, fault, vaultProxy = null } = options;
  const streams = new Streams(store, log, {
    keepAliveMs: options.keepAliveMs ?? KEEP_ALIVE_MS,
    slowMs: options.slowReaderMs ?? SLOW_READER_MS,
  });
  const registry = new Registry({ documents: store, hands: options.hands ?? null, vaultProxy, log, checkEveryMs: options.handCheckMs ?? 0 });
  void registry.start(WORKSPACE);
  const door: Door = { store, log, fault, streams, unanswered: new Unanswered(), vaultProxy, registry };
  const authenticate = makeAuthenticate(options.apiKeys);
  const bodies = new Bodies();
  const callers = new WeakMap<Request, Principal>();
  let isClosing = false;

  const app = express();
  app.disable("x-powered-by").disable("etag").set("query parser", false).set("case sensitive routing", true).set("strict routing", true);
  app.use((_request, response, next) => {
    response.setHeader("request-id", mint("req"));
    next();
  });
  app.get(OPEN_PATHS.healthz.path, (_request, response) => sendJson(response, 200, { status: "ok" }));
  app.get(OPEN_PATHS.readyz.path, async (_request, response) => {
    if (isClosing || !options.ready()) throw new Refusal("shutting_down", "This node is not ready.");
    await store.ping();
    sendJson(response, 200, { status: "ready" });
  });

  let document: JsonText | null = null;
  app.get(OPEN_PATHS.openapi.path, async (_request, response) => {
    // The vault proxy answers for its own part; without it the document would not be whole.
    document ??= new JsonText(JSON.stringify(openApiOf(paths.routes, Object.values(OPEN_PATHS), await vaultProxy?.openApi())));
    sendJson(response, 200, document);
  });

  publishOAuthClient(app, options.mcp?.publicUrl);
  const mcp = options.mcp && openMcp(app, { ...options.mcp, door, authenticate, bodies, keepAliveMs: options.keepAliveMs ?? KEEP_ALIVE_MS });
  const relay =
    mcp &&
    options.relay &&
    openRelay(app, mcp.access, {
      ...options.mcp,
      ...options.relay,
      vault: vaultProxy && wayThrough(vaultProxy),
      store,
      log,
      bodies,
      keepAliveMs: options.keepAliveMs ?? KEEP_ALIVE_MS,
    });

  const sessionHands =
    options.mcp &&
    options.sessionHands &&
    openSessionHands(app, { ...options.mcp, ...options.sessionHands, door, authenticate, bodies, keepAliveMs: options.keepAliveMs ?? KEEP_ALIVE_MS });

  const enter: RequestHandler = (request, _response, next) => {
    callers.set(request, authenticate(request.headers));
    if (isClosing) throw new Refusal("shutting_down");
    const version = request.headers["anthropic-version"];
    if (version !== undefined && !API_VERSIONS.has(String(version))) throw invalid("anthropic-version: is not a known version");
    next();
  };
  app.use("/v1", enter);
  const principalOf = (request: Request): Principal => {
    const principal = callers.get(request);
    if (!principal) throw new Error("a request reached a resource without a principal");
    return principal;
  };
  if (vaultProxy)
    app.use(
      "/v1/vaults",
      relayVaults(vaultProxy, (request, response) => ({ principal: principalOf(request), requestId: requestIdOf(response) })),
    );
  const paths = pathsOf(app, (request, response, ids) => {
    return new Call(request, response, principalOf(request), { requestId: requestIdOf(response), bodies, ids });
  });
  addAgents(paths.add, door);
  addEnvironments(paths.add, door);
  addSessions(paths.add, door);
  addEvents(paths.add, door);
  addThreads(paths.add, door);
  addResources(paths.add, door);
  addHands(paths.add, door);
  if (options.sessionHands) addHandsKey(paths.add, door, options.sessionHands);
  app.use(() => {
    throw new Refusal("not_found", "There is no such path.");
  });
  app.use(answerError(log));

  return {
    app,
    listener: inTurn(relay ? beside(app, relay) : app),
    close() {
      isClosing = true;
      streams.close();
      registry.close();
      for (const each of [mcp, relay, sessionHands]) each?.close().catch((error: unknown) => log.warn({ err: error }, "mcp.not_closed"));
    },
  };
}

const MCP_PATH = "/mcp";

/** The door for MCP clients, and the metadata that says how to get a token for it. */
function openMcp(app: Express, options: McpSettings & { door: Door } & Pick<McpDoorOptions, "authenticate" | "bodies" | "keepAliveMs">): McpDoor {
  const { store, log } = options.door;
  const mcp = new McpDoor({ ...options, store, log, path: MCP_PATH, surface: sessionsSurface(options.door) });
  app.all(MCP_PATH, (request, response) => mcp.serve(request, response));
  app.get(/^\/\.well-known\/oauth-protected-resource(\/|$)/, (request, response, next) => {
    const metadata = request.path === mcp.access.metadataPath() ? mcp.access.metadata() : null;
    if (!metadata) return next();
    response.setHeader("access-control-allow-origin", "*");
    sendJson(response, 200, metadata);
  });
  return mcp;
}

/** Express knows an error handler by its four parameters. H3 */
function answerError(log: Logger): ErrorRequestHandler {
  return (thrown: unknown, request, response, _next) => {
    const requestId = requestIdOf(response);
    // A path that can't be decoded names nothing.
    const error = thrown instanceof URIError ? new Refusal("not_found", "There is no such path.") : thrown;
    const { status, headers, body } = answerOf(error, requestId);
    if (!(error instanceof Refusal)) log.error({ err: error, requestId, method: request.method }, "request.broke");
    else if (status >= 500) log.warn({ code: error.code, detail: error.detail, requestId, status: REFUSALS[error.code].status }, "request.refused");
    if (response.headersSent) {
      response.destroy();
      return;
    }
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    // What was not drained of an endless body would be taken for the next request.
    if (status === 413 && !request.complete) response.setHeader("connection", "close");
    sendJson(response, status, body);
  };
}

const requestIdOf = (response: ServerResponse): string => String(response.getHeader("request-id"));
