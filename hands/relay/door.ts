// Servers that keep a connection for each session, over Streamable HTTP. Messages pass as envelopes: nothing is read of them but what names and numbers
// them.
//
//   /mcp/servers/{server}   of the operator's file. What speaks by its standard input and output is reached by the Streamable HTTP of its own era, what
//                           speaks the older HTTP+SSE transport by that of the handshake era, and what has another URL in the file as it is.
//   /mcp/sse                a server of the older transport at the address in `x-manyhands-target`; `x-manyhands-grant` lets its vaults be used.
//
//   R1  A server is named, and the operator's file says what that means; nothing of a request chooses a command. An address is held against the guard.
//   R2  The era of a child is asked once, by a handshake: one that was never asked anything before it must not end at a question it does not know.
//   R3  A child of a stateless server works for one owner (the `x-manyhands-owner` header); closing a request there calls it off.
//   R4  A session that was not used for `idleMs` is over, and its child with it. There are at most SESSIONS_MAX. One whose client listened, left and did not
//       come back for `awayMs` is over within a minute: of a client that never listens, nobody can say whether it is gone.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import type { Children } from "../servers/children.ts";
import type { ConfiguredServer, ConfiguredServers } from "../servers/configured.ts";
import { CONNECT_MS } from "../servers/limits.ts";
import { masked } from "../servers/mask.ts";
import type { Reach } from "../servers/reach.ts";
import { type Envelope, errorOf, INVALID_REQUEST, NO_SESSION, PARSE_ERROR, REFUSED, readEnvelope } from "./envelope.ts";
import { Eras, HANDSHAKE_VERSIONS } from "./eras.ts";
import { ChildLine } from "./line.ts";
import { Link, type Times } from "./link.ts";
import { passThrough } from "./pass.ts";
import { Reply } from "./reply.ts";
import { bodyOf, isClientListening, nameIn } from "./request.ts";
import { type Brought, RelaySession } from "./session.ts";
import { SharedServers } from "./shared.ts";
import { grantIn, labelOf, type SseReach, targetIn, timesIn } from "./sse.ts";
import { StatelessLinks } from "./stateless.ts";

const SERVER_PATH = /^\/mcp\/servers\/([^/]{1,1024})$/;
const SSE_PATH = "/mcp/sse";
const SESSIONS_MAX = 256;
const SSE_SESSIONS_MAX = 1_024;
const IDLE_MS = 1_800_000;
const AWAY_MS = 40_000;
const SWEEP_MS = 15_000;
const STATELESS_FROM = "2026";

type CommandServer = Extract<ConfiguredServer, { type: "command" }>;

interface Posted {
  readonly name: string;
  readonly server: ConfiguredServer;
  readonly body: string;
  readonly session: RelaySession | undefined;
  readonly isShared: boolean;
  readonly grant: string | null;
  readonly times: Times;
}

/** Is this path the relay's? */
export const isRelayed = (path: string): boolean => path === SSE_PATH || SERVER_PATH.test(path);

export interface RelayOptions {
  readonly configured: ConfiguredServers;
  readonly children: Children;
  readonly reach: Reach;
  readonly sse: SseReach;
  readonly log: Logger;
  readonly idleMs?: number;
  readonly awayMs?: number;
  readonly sessionsMax?: number;
}

export class ServerRelay {
  readonly #options: RelayOptions;
  readonly #sessions = new Map<string, RelaySession>();
  readonly #shared: SharedServers;
  readonly #stateless: StatelessLinks;
  readonly #eras: Eras;
  /** Sessions that are on their way: they have their place already. R4 */
  #joining = 0;
  readonly #timer: NodeJS.Timeout;

  constructor(options: RelayOptions) {
    this.#options = options;
    const start = (name: string, server: CommandServer) => this.#link(name, server);
    this.#eras = new Eras(start);
    this.#shared = new SharedServers(start);
    this.#stateless = new StatelessLinks(start);
    this.#timer = setInterval(() => this.#sweep(), Math.min(SWEEP_MS, options.idleMs ?? IDLE_MS, options.awayMs ?? AWAY_MS)).unref();
  }

  /** The path `isRelayed`; the caller is let in. */
  async serve(request: IncomingMessage, response: ServerResponse, url: URL): Promise<void> {
    const { headers } = request;
    const target = url.pathname === SSE_PATH ? targetIn(headers) : undefined;
    if (target === null) return answer(response, 400, errorOf(null, REFUSED, "x-manyhands-target: must be a server's address"));
    const name = target ? labelOf(target) : nameIn(SERVER_PATH.exec(url.pathname)?.[1] ?? "");
    const server = target ? ({ type: "url", url: target, isSse: true } as const) : name === null ? undefined : this.#options.configured.get(name);
    if (name === null || !server) return answer(response, 404, errorOf(null, REFUSED, "The operator's file names no such server."));
    const body = request.method === "POST" ? await bodyOf(request) : "";
    if (body === null) return answer(response, 413, errorOf(null, REFUSED, "The body is too large."));
    if (server.type === "url" && !server.isSse) return passThrough(this.#options.reach, server.url, request, response, body);
    const version = headers["mcp-protocol-version"];
    if (typeof version === "string" && version >= STATELESS_FROM) return this.#serveStateless(request, response, { name, server, body, version });
    const id = headers["mcp-session-id"];
    const session = typeof id === "string" ? this.#sessions.get(id) : undefined;
    if (id !== undefined && session?.server !== name) return answer(response, 404, errorOf(null, NO_SESSION, "Session not found"));
    const grant = grantIn(headers);
    if (session) session.usedAt = Date.now();
    if (session?.brought && grant !== null) session.brought.grant = grant;
    if (request.method === "POST") {
      const isShared = url.searchParams.get("sharing") === "shared";
      return this.#post(response, { name, server, body, session, isShared, grant, times: timesIn(headers) });
    }
    if (!session) return answer(response, 400, errorOf(null, REFUSED, "Bad Request: Mcp-Session-Id header is required"));
    if (request.method === "GET") return this.#get(request, response, session);
    this.#end(session, "its client ended it");
    response.writeHead(204).end();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    const links = new Set([...this.#sessions.values()].map(({ link }) => link));
    for (const session of [...this.#sessions.values()]) session.close();
    this.#sessions.clear();
    await Promise.all([...[...links].map((link) => link.close()), this.#shared.stop(), this.#stateless.stop()]);
  }

  async #post(response: ServerResponse, given: Posted): Promise<void> {
    const message = messageIn(response, given.body);
    if (!message) return;
    const { session } = given;
    const { id, method, params } = message;
    if (method === "initialize" && id !== undefined) {
      if (session) return answer(response, 400, errorOf(id, INVALID_REQUEST, "This session is initialized already."));
      if (!this.#hasRoom(given.server)) return answer(response, 503, errorOf(id, REFUSED, "The hand host has as many sessions as it can hold."));
      const { name, server, isShared } = given;
      if (isShared && server.type === "command") return this.#joinShared(response, { name, server }, message);
      return this.#open(response, given, { ...message, id });
    }
    if (!session) return answer(response, 400, errorOf(id ?? null, REFUSED, "Bad Request: Mcp-Session-Id header is required"));
    if (method !== undefined && id !== undefined) {
      const stream = session.openStream();
      const reply = new Reply(response, stream, { isPrimed: session.isPrimed });
      if (session.isShared && this.#shared.keepsToItself(session, message, reply)) return;
      return session.link.request(session, { ...message, id }, reply, given.times);
    }
    if (method === "notifications/cancelled") {
      const requestId = params?.requestId;
      if (typeof requestId === "string" || typeof requestId === "number") session.link.cancel(session, requestId, params);
    } else if (method !== undefined) {
      if (!session.isShared) session.link.send(message);
    } else if (id !== undefined) session.answer({ ...message, id });
    response.writeHead(202, { "content-length": 0 }).end();
  }

  async #open(response: ServerResponse, { name, server, grant }: Posted, hello: Envelope & { id: string | number }): Promise<void> {
    const brought = server.type === "url" ? { grant } : null;
    const link = this.#link(name, server, brought);
    const session = new RelaySession({ server: name, link, isShared: false, brought, onEnd: (says) => this.#gone(session, says) });
    this.#sessions.set(session.id, session);
    await link.start(session);
    const reply = new Reply(response, session.openStream(), { isPrimed: false, headers: { "mcp-session-id": session.id } });
    const late = setTimeout(() => this.#end(session, "it did not answer `initialize` in time"), CONNECT_MS).unref();
    link.request(session, hello, {
      send: (message) => reply.send(message),
      drop: () => reply.end(errorOf(hello.id, REFUSED, "The server did not answer in time."), 504),
      end: (message) => {
        clearTimeout(late);
        session.version = versionIn(message);
        link.agreed(session.version);
        reply.end(message);
        // Whoever was refused has no session.
        if (session.version === "") this.#end(session, "it refused to be initialized");
      },
    });
  }

  async #joinShared(response: ServerResponse, { name, server }: { name: string; server: CommandServer }, hello: Envelope): Promise<void> {
    const id = hello.id ?? null;
    this.#joining += 1;
    const joined = await this.#shared
      .join(name, server, hello, (says) => this.#gone(joined.session, says))
      .finally(() => {
        this.#joining -= 1;
      });
    if (!joined.session) return answer(response, 502, errorOf(id, REFUSED, joined.says));
    this.#sessions.set(joined.session.id, joined.session);
    answer(response, 200, { jsonrpc: "2.0", id, result: joined.result }, { "mcp-session-id": joined.session.id });
  }

  #get(request: IncomingMessage, response: ServerResponse, session: RelaySession): void {
    const last = request.headers["last-event-id"];
    const place = typeof last === "string" ? session.place(last) : null;
    if (typeof last === "string" && !place) return void answer(response, 404, errorOf(null, NO_SESSION, "There is no such stream to resume."));
    if (!place && session.listening.isHeard)
      return void answer(response, 409, errorOf(null, REFUSED, "Conflict: Only one SSE stream is allowed per session"));
    if (isClientListening(request.headers)) session.hasListener = true;
    (place?.stream ?? session.listening).attach(response, place?.after ?? 0, session.isPrimed);
  }

  async #serveStateless(
    request: IncomingMessage,
    response: ServerResponse,
    { name, server, body, version }: { name: string; server: ConfiguredServer; body: string; version: string },
  ): Promise<void> {
    if (request.method !== "POST") return answer(response, 405, errorOf(null, REFUSED, "Method not allowed."), { allow: "POST" });
    const message = messageIn(response, body);
    if (!message) return;
    const id = message.id ?? null;
    // The older transport is of the handshake era.
    if (server.type === "url" || (await this.#eras.of(name, server)) === "handshake")
      return answer(
        response,
        400,
        errorOf(id, -32_022, `Unsupported protocol version: ${version}`, { supported: HANDSHAKE_VERSIONS, requested: version }),
      );
    const owner = String(request.headers["x-manyhands-owner"] ?? "");
    await this.#stateless.serve(response, { name, server, owner, message, times: timesIn(request.headers) });
  }

  #link(name: string, server: ConfiguredServer, brought: Brought | null = null): Link {
    const { children, log, sse } = this.#options;
    if (server.type === "url")
      return new Link(
        sse.line(server.url, brought ?? { grant: null }, (reason) => log.info({ server: name, reason }, "server.stray_event")),
        [],
      );
    const secrets = Object.values(server.command.env);
    const stray = (line: string) => log.info({ server: name, line: masked(line, secrets) }, "server.stray_line");
    return new Link(new ChildLine(children.start("relay", server.command), stray), secrets);
  }

  #hasRoom({ type }: ConfiguredServer): boolean {
    const count = [...this.#sessions.values()].filter(({ brought }) => (brought === null) === (type === "command")).length;
    return type === "command" ? count + this.#joining < (this.#options.sessionsMax ?? SESSIONS_MAX) : count < SSE_SESSIONS_MAX;
  }

  #gone(session: RelaySession | null, says: string): void {
    if (!session) return;
    this.#sessions.delete(session.id);
    this.#options.log.info({ server: session.server, reason: says }, "server.session_ended");
  }

  #end(session: RelaySession, says: string): void {
    session.close();
    if (session.isShared) this.#shared.leave(session);
    else void session.link.close();
    this.#gone(session, says);
  }

  /** R4 */
  #sweep(): void {
    const { idleMs = IDLE_MS, awayMs = AWAY_MS } = this.#options;
    const now = Date.now();
    const before = now - idleMs;
    for (const session of [...this.#sessions.values()]) {
      const { awaySince } = session;
      if (session.isUsed) session.usedAt = now;
      else if (awaySince !== null && !session.isShared && awaySince <= now - awayMs) this.#end(session, "its client went away");
      else if (session.usedAt <= before) this.#end(session, "nobody used it");
    }
    this.#shared.sweep(before);
    this.#stateless.sweep(before);
  }
}

function messageIn(response: ServerResponse, body: string): Envelope | null {
  let given: unknown;
  try {
    given = JSON.parse(body);
  } catch {
    answer(response, 400, errorOf(null, PARSE_ERROR, "Parse error"));
    return null;
  }
  const message = readEnvelope(given);
  if (!message) answer(response, 400, errorOf(null, INVALID_REQUEST, "The body is not one JSON-RPC 2.0 message."));
  return message;
}

/** What an answer to `initialize` agreed on; empty: nothing. */
function versionIn(message: object): string {
  const result = "result" in message ? message.result : null;
  return typeof result === "object" && result !== null && "protocolVersion" in result ? String(result.protocolVersion) : "";
}

function answer(response: ServerResponse, status: number, body: object, headers: Readonly<Record<string, string>> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}
