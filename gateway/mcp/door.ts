// A door for MCP clients: one URL for both eras.
//
//   M1  In order: may this page and name reach us (403); is the session there (404); who calls (401); may they (403); what do they want.
//   M2  The era is read from the request as the official server reads it. What names a session is of the handshake era.
//   M3  An answer that refuses is a JSON-RPC error; a bug's says nothing of the inside.
//   M4  Any node serves any request: what must outlive it is in the store.

import type { IncomingMessage, ServerResponse } from "node:http";
import { classifyInboundRequest, isJsonContentType } from "@modelcontextprotocol/server";
import type { Logger } from "pino";
import { REFUSALS, Refusal } from "../../session-store/refusal.ts";
import type { SessionStore } from "../../session-store/store.ts";
import type { Authenticate } from "../authenticate.ts";
import type { Bodies } from "../http/body.ts";
import { parseJson } from "../http/body.ts";
import { sendJson } from "../http/call.ts";
import { Access, Challenge } from "./access.ts";
import { refuseBatch, serveBatch } from "./batch.ts";
import type { Caller } from "./caller.ts";
import { Catalogue } from "./dispatch.ts";
import { HandshakeEra, ownSession, VERSIONS } from "./handshake/era.ts";
import type { HandshakeSession } from "./handshake/sessions.ts";
import { Listening, type ListeningLimits } from "./listening.ts";
import { refusedReach } from "./origin.ts";
import { errorMessage, INTERNAL_ERROR, idIn, PARSE_ERROR, REFUSED, RpcError, type RpcId } from "./rpc.ts";
import { Seal } from "./seal.ts";
import { StatelessEra } from "./stateless.ts";
import type { Surface } from "./surface.ts";
import { sweepEvery } from "./sweeper.ts";
import type { Issuer } from "./token.ts";
import { Watchers } from "./watchers.ts";

export interface McpSettings {
  /** Where this installation is reached from outside; null: only where it listens. */
  readonly publicUrl: string | null;
  /** Where it listens; asked when it does. */
  readonly ownUrl: () => string;
  readonly isLoopback: boolean;
  readonly issuer: Issuer | null;
  /** Anonymous calls are taken. */
  readonly isOpen: boolean;
  /** 32 bytes that all nodes share. */
  readonly stateKey: Uint8Array;
  /** Of the streams of one caller, where they are not the usual ones. */
  readonly listening?: ListeningLimits;
}

export interface McpDoorOptions extends McpSettings {
  readonly path: string;
  readonly surface: Surface;
  readonly store: SessionStore;
  readonly authenticate: Authenticate;
  readonly bodies: Bodies;
  readonly log: Logger;
  readonly keepAliveMs: number;
  /** Who may come in, where that is another question than at the front door. */
  readonly enter?: (request: IncomingMessage) => Promise<Caller>;
}

export class McpDoor {
  readonly access: Access;
  readonly #options: McpDoorOptions;
  readonly #catalogue: Catalogue;
  readonly #watchers: Watchers;
  readonly #listening: Listening;
  readonly #handshake: HandshakeEra;
  readonly #stateless: StatelessEra;
  readonly #stopSweeping: () => void;
  #isClosing = false;

  constructor(options: McpDoorOptions) {
    const { store, log, surface, stateKey, path } = options;
    this.#options = options;
    this.#listening = new Listening(options.listening);
    this.access = new Access({ ...options, resource: () => `${options.publicUrl ?? options.ownUrl()}${path}` });
    this.#catalogue = new Catalogue(surface);
    this.#watchers = new Watchers(surface.resources, log);
    const parts = { ...options, catalogue: this.#catalogue, watchers: this.#watchers };
    this.#handshake = new HandshakeEra(parts);
    this.#stateless = new StatelessEra({ ...parts, seal: new Seal(stateKey, store) });
    this.#stopSweeping = sweepEvery(store, this.#handshake.sessions, log);
  }

  /** M1–M4 */
  async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let id: RpcId | null = null;
    try {
      const wrong = refusedReach(request.headers, this.#options);
      if (wrong) throw new RpcError(REFUSED, wrong, { status: 403 });
      if (this.#isClosing) throw new Refusal("shutting_down");
      const session = this.#namesHandshake(request) ? await this.#handshake.sessionOf(request) : null;
      const caller = await (this.#options.enter?.(request) ?? this.access.caller(request.headers));
      switch (request.method) {
        case "GET":
          this.#listening.enter(caller, response);
          return await this.#handshake.get(request, response, caller, session);
        case "DELETE":
          return await this.#handshake.delete(response, caller, session);
        case "POST":
          break;
        default:
          response.setHeader("allow", "GET, POST, DELETE");
          throw new RpcError(REFUSED, "Method not allowed", { status: 405 });
      }
      if (!isJsonContentType(request.headers["content-type"] ?? null))
        throw new RpcError(REFUSED, "Unsupported Media Type: Content-Type must be application/json", { status: 415 });
      const body = await this.#body(request, response);
      if (Array.isArray(body)) return await this.#batch(request, response, body, caller, session);
      id = idIn(body);
      if (this.#isHandshake(request, body)) {
        const { method, params } = partsOf(body);
        this.access.demand(caller, this.#catalogue.scopesOf(method, params));
        return await this.#handshake.post(request, response, body, caller, session);
      }
      const { method, params } = partsOf(body);
      this.access.demand(caller, this.#catalogue.scopesOf(method, params));
      if (method === "subscriptions/listen") this.#listening.enter(caller, response);
      await this.#stateless.serve(request, response, body, caller);
    } catch (error) {
      this.#answer(response, id, error);
    }
  }

  async #batch(
    request: IncomingMessage,
    response: ServerResponse,
    messages: readonly unknown[],
    caller: Caller,
    session: HandshakeSession | null,
  ): Promise<void> {
    const own = session && ownSession(session, caller);
    refuseBatch(messages, own?.version ?? null);
    await serveBatch(response, messages, this.#options.keepAliveMs, async (at, part) => {
      const { method, params } = partsOf(messages[at]);
      try {
        this.access.demand(caller, this.#catalogue.scopesOf(method, params));
        await this.#handshake.post(request, part, messages[at], caller, own);
      } catch (error) {
        this.#answer(part, idIn(messages[at]), error);
      }
    });
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    this.#stopSweeping();
    this.#watchers.close();
    this.#handshake.close();
    await this.#stateless.close();
  }

  /** A request of the stateless era names its revision in a header, and no session counts there. M2 */
  #namesHandshake(request: IncomingMessage): boolean {
    const version = request.headers["mcp-protocol-version"];
    return request.method !== "POST" || version === undefined || VERSIONS.some((each) => each === version);
  }

  #isHandshake(request: IncomingMessage, body: unknown): boolean {
    const text = (name: string) => {
      const value = request.headers[name];
      return typeof value === "string" ? value : undefined;
    };
    const headers = { protocolVersionHeader: text("mcp-protocol-version"), mcpMethodHeader: text("mcp-method"), mcpNameHeader: text("mcp-name") };
    const given = Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined));
    return classifyInboundRequest({ httpMethod: "POST", ...given, body }).kind === "legacy";
  }

  async #body(request: IncomingMessage, response: ServerResponse): Promise<unknown> {
    const bytes = await this.#options.bodies.read(request, response);
    try {
      return parseJson(bytes);
    } catch (error) {
      if (error instanceof Refusal) throw new RpcError(PARSE_ERROR, error.message);
      throw error;
    }
  }

  /** M3 */
  #answer(response: ServerResponse, id: RpcId | null, error: unknown): void {
    const { status, body } = this.#told(error, id);
    if (response.headersSent) return void response.destroy();
    if (error instanceof Challenge) response.setHeader("www-authenticate", error.header);
    const isForLater = error instanceof RpcError ? error.status === 429 : error instanceof Refusal && REFUSALS[error.code].retry === "later";
    if (isForLater) response.setHeader("retry-after", "1");
    // What was not read must not be taken for the next request.
    if (!response.req.complete) response.setHeader("connection", "close");
    sendJson(response, status, body);
  }

  #told(error: unknown, id: RpcId | null): { readonly status: number; readonly body: object } {
    if (error instanceof RpcError) return { status: error.status, body: errorMessage(id, error) };
    if (error instanceof Challenge) return { status: error.status, body: errorMessage(id, { code: REFUSED, message: error.message }) };
    if (error instanceof Refusal) {
      const { status } = REFUSALS[error.code];
      if (status >= 500) this.#options.log.warn({ code: error.code, detail: error.detail }, "mcp.refused");
      return { status, body: errorMessage(id, { code: REFUSED, message: error.message }) };
    }
    this.#options.log.error({ err: error }, "mcp.broke");
    return { status: 500, body: errorMessage(id, { code: INTERNAL_ERROR, message: "Internal error" }) };
  }
}

function partsOf(body: unknown): { readonly method: string; readonly params: Readonly<Record<string, unknown>> } {
  const method = typeof body === "object" && body !== null && "method" in body && typeof body.method === "string" ? body.method : "";
  const params = typeof body === "object" && body !== null && "params" in body ? body.params : null;
  return { method, params: typeof params === "object" && params !== null ? { ...params } : {} };
}
