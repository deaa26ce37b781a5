// The handshake era over Streamable HTTP: POST a message, GET the stream of what the server says by itself, DELETE the session.
//
//   H1  Every question about a session is answered before any other: unknown or ended 404, whatever else is wrong with the request.
//   H2  A session is its caller's. To another one it is unknown, by every verb.
//   H3  A call answers as a stream; what can't take long answers as JSON.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { ClientCapabilities } from "@modelcontextprotocol/server";
import type { Logger } from "pino";
import { z } from "zod";
import { mint } from "../../../session-store/ids.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import { sendJson } from "../../http/call.ts";
import type { Caller } from "../caller.ts";
import type { Catalogue } from "../dispatch.ts";
import { read } from "../dispatch.ts";
import { INVALID_REQUEST, keyOf, NO_SESSION, REFUSED, RpcError, readMessage, resultMessage } from "../rpc.ts";
import { SseResponse } from "../sse.ts";
import type { Watchers } from "../watchers.ts";
import { Asks } from "./asks.ts";
import { Attendance } from "./attendance.ts";
import { type CallRequest, Calls } from "./call.ts";
import { type HandshakeSession, HandshakeSessions, LEVELS } from "./sessions.ts";
import { ReplyStreams } from "./streams.ts";

export const VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] as const;
const [LATEST] = VERSIONS;
/** The first revision whose clients read an event with nothing in it. */
const PRIMED_FROM = "2025-11-25";
const STREAMED = new Set(["tools/call", "prompts/get", "resources/read"]);
const STREAMS_MAX = 10_000;

const Initialize = z.looseObject({
  protocolVersion: z.string().max(64),
  capabilities: z.custom<ClientCapabilities>((value) => typeof value === "object" && value !== null && !Array.isArray(value)),
  clientInfo: z.looseObject({ name: z.string().max(512), version: z.string().max(512) }),
});
const Level = z.looseObject({ level: z.enum(LEVELS) });
const Cancelled = z.looseObject({ requestId: z.union([z.string(), z.int()]) });

export interface HandshakeOptions {
  readonly store: SessionStore;
  readonly catalogue: Catalogue;
  readonly watchers: Watchers;
  readonly log: Logger;
  readonly keepAliveMs: number;
}

export class HandshakeEra {
  readonly sessions: HandshakeSessions;
  readonly #options: HandshakeOptions;
  readonly #asks: Asks;
  readonly #attendance: Attendance;
  readonly #calls: Calls;
  readonly #streams: ReplyStreams;
  readonly #open = new Set<SseResponse>();

  constructor(options: HandshakeOptions) {
    const { store, catalogue, log } = options;
    this.#options = options;
    this.sessions = new HandshakeSessions(store);
    this.#asks = new Asks(store);
    this.#attendance = new Attendance(store, this.sessions, log);
    this.#calls = new Calls({ catalogue, asks: this.#asks, attendance: this.#attendance, log });
    this.#streams = new ReplyStreams(options);
  }

  /** The session that a request names, or null. H1 */
  async sessionOf(request: IncomingMessage): Promise<HandshakeSession | null> {
    const id = request.headers["mcp-session-id"];
    return id === undefined ? null : this.sessions.find(String(id));
  }

  async post(request: IncomingMessage, response: ServerResponse, body: unknown, caller: Caller, session: HandshakeSession | null): Promise<void> {
    const message = readMessage(body);
    refuseUnreadable(request);
    if (message.kind === "request" && message.method === "initialize") return this.#initialize(response, message, caller, session);
    const own = ownSession(session, caller);
    refuseOtherVersion(request);
    await this.sessions.touch(own);
    switch (message.kind) {
      case "request":
        return this.#request(response, message, caller, own);
      case "notification":
        await this.#notice(message.method, message.params, own);
        break;
      case "response":
        await this.#asks.answer(own.id, message.id, message.answer);
        break;
    }
    response.writeHead(202, { "content-length": 0 }).end();
  }

  /** What the server says by itself; or the rest of a stream that broke off. */
  async get(request: IncomingMessage, response: ServerResponse, caller: Caller, session: HandshakeSession | null): Promise<void> {
    if (!String(request.headers.accept ?? "").includes("text/event-stream"))
      throw new RpcError(REFUSED, "Not Acceptable: Client must accept text/event-stream", { status: 406 });
    const own = ownSession(session, caller);
    refuseOtherVersion(request);
    const place = request.headers["last-event-id"];
    if (typeof place === "string" && ReplyStreams.isPlace(place)) return this.#streams.resume(own.id, place, response);
    if (this.#open.size >= STREAMS_MAX) throw new RpcError(REFUSED, "This node has no more room for streams.", { status: 503 });
    await this.#listen(own, response, place !== undefined);
  }

  async delete(response: ServerResponse, caller: Caller, session: HandshakeSession | null): Promise<void> {
    await this.sessions.end(ownSession(session, caller));
    response.writeHead(204).end();
  }

  close(): void {
    for (const out of this.#open) out.end();
  }

  async #initialize(response: ServerResponse, { id, params }: CallRequest, caller: Caller, session: HandshakeSession | null): Promise<void> {
    if (session) throw new RpcError(INVALID_REQUEST, "This session is initialized already.");
    const { surface, capabilities } = this.#options.catalogue;
    const hello = read(Initialize, params);
    const version = VERSIONS.find((each) => each === hello.protocolVersion) ?? LATEST;
    const opened = await this.sessions.open(caller, { version, client: hello.capabilities });
    response.setHeader("mcp-session-id", opened);
    const { info, instructions } = surface;
    const result = { protocolVersion: version, capabilities, serverInfo: info, ...(instructions !== undefined && { instructions }) };
    sendJson(response, 200, resultMessage(id, result));
  }

  async #request(response: ServerResponse, request: CallRequest, caller: Caller, session: HandshakeSession): Promise<void> {
    const quick = await this.#quick(request, caller, session);
    if (quick) return sendJson(response, 200, resultMessage(request.id, quick));
    if (!STREAMED.has(request.method)) {
      const answer = await this.#calls.run(session, caller, request, null);
      if (answer) sendJson(response, 200, answer);
      else response.writeHead(204).end();
      return;
    }
    const stream = this.#streams.open(session.id, request.id);
    void stream.attach(response, 0, session.version >= PRIMED_FROM);
    const answer = await this.#calls.run(session, caller, request, stream);
    await (answer ? stream.end(answer) : stream.drop());
    this.#streams.done(stream);
  }

  /** What concerns the session itself. */
  async #quick({ method, params }: CallRequest, caller: Caller, session: HandshakeSession): Promise<object | null> {
    switch (method) {
      case "ping":
        return {};
      case "logging/setLevel":
        await this.sessions.setLevel(session.id, read(Level, params).level);
        return {};
      case "resources/subscribe":
        await this.sessions.subscribe(session.id, await this.#options.catalogue.watchable(params, caller));
        return {};
      case "resources/unsubscribe":
        await this.sessions.unsubscribe(session.id, String(params.uri));
        return {};
      default:
        return null;
    }
  }

  async #notice(method: string, params: Readonly<Record<string, unknown>>, session: HandshakeSession): Promise<void> {
    if (method !== "notifications/cancelled") return;
    const cancelled = Cancelled.safeParse(params);
    if (!cancelled.success || this.#calls.cancel(session.id, cancelled.data.requestId)) return;
    await this.sessions.cancel(session.id, keyOf(cancelled.data.requestId));
  }

  /** One stream a session: the newest. After a break each subscribed resource is said to be updated once, since something may have been missed. */
  async #listen(session: HandshakeSession, response: ServerResponse, isResumed: boolean): Promise<void> {
    const listener = mint("mcpg");
    const { watchers, catalogue, keepAliveMs } = this.#options;
    const out = new SseResponse(response, keepAliveMs);
    const gone = new AbortController();
    this.#open.add(out);
    let n = 0;
    const tell = (method: string, params: object = {}) => {
      n += 1;
      void out.message(JSON.stringify({ jsonrpc: "2.0", method, params }), `${listener}.${n}`);
    };
    const hushLists = catalogue.surface.onListChanged?.((list) => tell(`notifications/${list}/list_changed`));
    out.onClose(() => {
      this.#open.delete(out);
      hushLists?.();
      gone.abort();
    });
    if (session.version >= PRIMED_FROM) out.prime(`${listener}.0`);
    await this.sessions.update(session.id, () => ({ listener }));
    const followed = new Map<string, AbortController>();
    const hear = (now: HandshakeSession | null) => {
      if (!now || now.listener !== listener) return out.end();
      for (const [uri, ended] of followed) if (!now.subscriptions.includes(uri)) if (followed.delete(uri)) ended.abort();
      for (const uri of now.subscriptions) {
        if (followed.has(uri)) continue;
        const ended = new AbortController();
        followed.set(uri, ended);
        const updated = () => tell("notifications/resources/updated", { uri });
        watchers.watch(uri, updated, AbortSignal.any([gone.signal, ended.signal]));
        if (isResumed && session.subscriptions.includes(uri)) updated();
      }
    };
    this.#attendance.join(session.id, hear, gone.signal);
  }
}

/** H2 */
export function ownSession(session: HandshakeSession | null, caller: Caller): HandshakeSession {
  if (!session) throw new RpcError(REFUSED, "Bad Request: Mcp-Session-Id header is required");
  if (session.caller !== caller.name) throw new RpcError(NO_SESSION, "Session not found", { status: 404 });
  return session;
}

function refuseOtherVersion(request: IncomingMessage): void {
  const version = request.headers["mcp-protocol-version"];
  if (version === undefined || VERSIONS.some((each) => each === version)) return;
  throw new RpcError(REFUSED, `Bad Request: Unsupported protocol version (supported versions: ${VERSIONS.join(", ")})`);
}

function refuseUnreadable(request: IncomingMessage): void {
  const accept = String(request.headers.accept ?? "");
  if (accept.includes("application/json") && accept.includes("text/event-stream")) return;
  throw new RpcError(REFUSED, "Not Acceptable: Client must accept both application/json and text/event-stream", { status: 406 });
}
