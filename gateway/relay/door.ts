// The door of each hand: `/mcp/hands/{name}`, one URL for both eras, relayed to the hand in one hop.
//
//   M1  In order: may this page and name reach us (403); is the session there (404); who calls (401); may they (403); is the session theirs (404); is
//       there such a hand (404); what do they want.
//   M2  The caller's own authorization ends here (visit.ts); what goes to the hand is what its record says (address.ts).
//   M3  The caller's era passes wherever the hand speaks it (eras.ts); elsewhere it is translated (upstream.ts, `Crossing`).
//   M4  What a hand fails at is answered as a JSON-RPC error that says so; a bug's answer says nothing of the inside.
//   M5  Each use of a hand's tools, prompts and resources is a line of the log: who, which hand, what by name, what came of it, how long. No arguments.
//   M6  Any node serves any request: what must outlive it is in the store.

import type { IncomingMessage, ServerResponse } from "node:http";
import { isJsonContentType } from "@modelcontextprotocol/server";
import type { Logger } from "pino";
import { REFUSALS, Refusal } from "../../session-store/refusal.ts";
import type { SessionStore } from "../../session-store/store.ts";
import type { Bodies } from "../http/body.ts";
import { sendJson } from "../http/call.ts";
import { type Access, Challenge } from "../mcp/access.ts";
import { refuseBatch, serveBatch } from "../mcp/batch.ts";
import { VERSIONS } from "../mcp/handshake/era.ts";
import { type Reach, refusedReach } from "../mcp/origin.ts";
import { INVALID_PARAMS, INVALID_REQUEST, idIn, NO_SESSION, REFUSED, RpcError, type RpcId } from "../mcp/rpc.ts";
import { HAND_SCOPES } from "../mcp/surface.ts";
import { addressOf, upstreamOf, type Ways } from "./address.ts";
import { audit, told } from "./audit.ts";
import { tellFailure } from "./early.ts";
import { Eras } from "./eras.ts";
import { HandFailure } from "./failure.ts";
import { KnownHands } from "./hands.ts";
import { HandshakeRelay } from "./handshake.ts";
import { type Inbound, parseBody, readInbound, STATELESS_VERSION, unsupported } from "./inbound.ts";
import { STREAMS_MAX } from "./limits.ts";
import { Pool } from "./pool.ts";
import { ReachedHand } from "./reached.ts";
import { RelaySessions } from "./sessions.ts";
import { itemsOf } from "./spans.ts";
import { StatelessRelay } from "./stateless.ts";
import { sweepEvery } from "./sweeper.ts";
import type { Crossing, RelaySession } from "./upstream.ts";
import type { Visit } from "./visit.ts";

export const HANDS_PATH = "/mcp/hands";
const NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/;
const GRACE_MS = 1_000;
const ACCESSES_MAX = 1_000;

export interface RelaySettings extends Ways {
  /** Internal addresses that hands may be at all the same. */
  readonly internalHosts: readonly string[];
}

export interface RelayOptions extends RelaySettings {
  readonly store: SessionStore;
  readonly bodies: Bodies;
  readonly log: Logger;
  readonly keepAliveMs: number;
  readonly reach: Reach;
  /** Of the door that this one is within. */
  readonly access: Access;
  /** The URL that this installation is reached at. */
  readonly baseUrl: () => string;
  /** Anonymous calls are taken. */
  readonly isOpen: boolean;
  /** Null: a client is served only by hands of its own era. */
  readonly crossing: Crossing | null;
}

export class HandRelay {
  readonly #options: RelayOptions;
  readonly #pool: Pool;
  readonly #hands: KnownHands;
  readonly #sessions: RelaySessions;
  readonly #accesses = new Map<string, Access>();
  readonly #eras = new Eras();
  readonly #handshake: HandshakeRelay;
  readonly #stateless: StatelessRelay;
  readonly #stopped = new AbortController();
  readonly #stopSweeping: () => void;
  #listening = 0;

  constructor(options: RelayOptions) {
    const { store, log, times, internalHosts, keepAliveMs, isOpen } = options;
    this.#options = options;
    this.#pool = new Pool(internalHosts, times.connectMs);
    this.#hands = new KnownHands(store, times);
    this.#sessions = new RelaySessions(store);
    const parts = { pool: this.#pool, sessions: this.#sessions, eras: this.#eras, stopped: this.#stopped.signal, keepAliveMs, log, isOpen };
    this.#handshake = new HandshakeRelay(parts);
    this.#stateless = new StatelessRelay(parts);
    this.#sessions.watch().catch((error: unknown) => log.warn({ reason: String(error).slice(0, 200) }, "hand_sessions.not_heard"));
    this.#stopSweeping = sweepEvery(this.#sessions, (session) => this.#forget(session), log);
  }

  /** Who may use a hand by its own door. */
  accessOf(name: string): Access {
    const known = this.#accesses.get(name);
    if (known) return known;
    const access = this.#options.access.within(() => `${this.#options.baseUrl()}${HANDS_PATH}/${name}`, HAND_SCOPES);
    if (this.#accesses.size >= ACCESSES_MAX) this.#accesses.clear();
    if (NAME.test(name)) this.#accesses.set(name, access);
    return access;
  }

  /** M1–M6 */
  async serve(request: IncomingMessage, response: ServerResponse, name: string): Promise<void> {
    const isRequest: { id: RpcId | null } = { id: null };
    const { log } = this.#options;
    try {
      const wrong = refusedReach(request.headers, this.#options.reach);
      if (wrong) throw new RpcError(REFUSED, wrong, { status: 403 });
      if (this.#stopped.signal.aborted) throw new Refusal("shutting_down");
      const session = await this.#sessionOf(request, name);
      const access = this.accessOf(name);
      const caller = await access.caller(request.headers);
      access.demand(caller, HAND_SCOPES);
      if (session && (session.caller !== caller.name || session.workspace !== caller.workspace)) throw noSession();
      const known = NAME.test(name) ? await this.#hands.find(caller.workspace, name) : null;
      if (!known) throw new RpcError(REFUSED, "There is no such hand.", { status: 404 });
      const given = await upstreamOf(known.hand, caller, this.#options);
      const address = session ? addressOf(session, given) : given;
      if (!address) throw noSession();
      const { workspace } = caller;
      const upstream = new ReachedHand(this.#pool, known, workspace, address);
      const visit: Visit = { request, response, caller, upstream, inbound: null, session, seen: null };
      if (session) this.#sessions.touch(session, (error) => log.warn({ reason: String(error).slice(0, 200) }, "hand_session.not_touched"));
      switch (request.method) {
        case "POST":
          return await this.#post(visit, isRequest);
        case "GET":
          return await this.#counted(response, () => this.#get(visit));
        case "DELETE":
          return await this.#delete(visit);
        default:
          response.setHeader("allow", "GET, POST, DELETE");
          throw new RpcError(REFUSED, "Method not allowed", { status: 405 });
      }
    } catch (error) {
      this.#answer(response, isRequest.id, error);
    }
  }

  /** Ends what only listens. What is being answered has a moment. */
  async close(): Promise<void> {
    this.#stopped.abort();
    this.#stopSweeping();
    this.#sessions.close();
    await this.#options.crossing?.close();
    await this.#pool.close(GRACE_MS);
  }

  /** Every session id is looked up before any other question; where the stateless era is named, it means nothing. */
  async #sessionOf(request: IncomingMessage, name: string): Promise<RelaySession | null> {
    const id = request.headers["mcp-session-id"];
    if (id === undefined || (request.method === "POST" && request.headers["mcp-protocol-version"] === STATELESS_VERSION)) return null;
    const session = await this.#sessions.find(String(id));
    if (!session || session.hand !== name) throw noSession();
    return session;
  }

  async #post(visit: Visit, asking: { id: RpcId | null }): Promise<void> {
    const { request, response } = visit;
    if (!isJsonContentType(request.headers["content-type"] ?? null))
      throw new RpcError(REFUSED, "Unsupported Media Type: Content-Type must be application/json", { status: 415 });
    const bytes = await this.#options.bodies.read(request, response);
    const parsed = parseBody(bytes);
    if (Array.isArray(parsed)) return this.#batch(visit, bytes, parsed);
    asking.id = idIn(parsed);
    await this.#message(visit, bytes, parsed);
  }

  async #batch(visit: Visit, bytes: Buffer, messages: readonly unknown[]): Promise<void> {
    refuseBatch(messages, visit.session?.version ?? null);
    const spans = itemsOf(bytes, bytes.indexOf("["));
    await serveBatch(visit.response, messages, this.#options.keepAliveMs, async (at, response) => {
      try {
        await this.#message({ ...visit, response }, bytes.subarray(spans[at]?.start, spans[at]?.end), messages[at]);
      } catch (error) {
        this.#answer(response, idIn(messages[at]), error);
      }
    });
  }

  async #message(visit: Visit, bytes: Buffer, parsed: unknown): Promise<void> {
    const { request, response } = visit;
    const started = performance.now();
    const inbound = readInbound(bytes, parsed, request.headers);
    visit.inbound = inbound;
    try {
      refuseTool(visit, inbound);
      await this.#relay(visit, inbound);
      audit(this.#options.log, visit, inbound, started, response.destroyed && !response.writableFinished ? "left" : (visit.seen?.outcome ?? "ok"));
    } catch (error) {
      audit(this.#options.log, visit, inbound, started, error instanceof HandFailure ? error.reason : "refused");
      throw error;
    }
  }

  /** M3 */
  async #relay(visit: Visit, inbound: Inbound): Promise<void> {
    const { session, upstream, request } = visit;
    const { era, message } = inbound;
    if (era === "stateless") {
      if (!(await this.#eras.isStateless(upstream))) return this.#cross(visit, inbound, VERSIONS);
      const isListening = message.kind === "request" && message.method === "subscriptions/listen";
      return isListening ? this.#counted(visit.response, () => this.#stateless.post(visit)) : this.#stateless.post(visit);
    }
    if (message.kind === "request" && message.method === "initialize") {
      if (session) throw new RpcError(INVALID_REQUEST, "This session is initialized already.");
      const refused = upstream.address.era === "stateless" ? undefined : await this.#handshake.initialize(visit);
      if (refused === null) return;
      if (refused && !(await this.#eras.isStateless(upstream))) throw refused;
      return this.#cross(visit, inbound, [STATELESS_VERSION]);
    }
    if (!session) throw new RpcError(REFUSED, "Bad Request: Mcp-Session-Id header is required");
    refuseOtherVersion(request, session);
    return session.era === "stateless" ? this.#cross(visit, inbound, [STATELESS_VERSION]) : this.#handshake.post(visit, session);
  }

  async #get(visit: Visit): Promise<void> {
    const { session, request } = visit;
    if (!session) throw new RpcError(REFUSED, "Bad Request: Mcp-Session-Id header is required");
    refuseOtherVersion(request, session);
    return session.era === "stateless" ? this.#cross(visit, null, [STATELESS_VERSION]) : this.#handshake.get(visit, session);
  }

  async #delete(visit: Visit): Promise<void> {
    const { session, response } = visit;
    if (!session) throw new RpcError(REFUSED, "Bad Request: Mcp-Session-Id header is required");
    if (session.era === "handshake") return this.#handshake.delete(visit, session);
    await this.#sessions.end(session);
    await this.#options.crossing?.ended(session);
    response.writeHead(204).end();
  }

  async #cross(visit: Visit, inbound: Inbound | null, supported: readonly string[]): Promise<void> {
    const { crossing, keepAliveMs } = this.#options;
    const { request, response, session, caller, upstream } = visit;
    const version = request.headers["mcp-protocol-version"];
    if (!crossing) throw unsupported(typeof version === "string" ? version : undefined, supported);
    const over = new AbortController();
    response.once("close", () => over.abort());
    const signal = AbortSignal.any([over.signal, this.#stopped.signal]);
    const message = inbound?.message ?? null;
    const era = inbound?.era ?? "handshake";
    await crossing.serve({ era, request, response, message, session, caller, upstream, sessions: this.#sessions, keepAliveMs, signal });
  }

  async #counted(response: ServerResponse, serve: () => Promise<void>): Promise<void> {
    if (this.#listening >= STREAMS_MAX) throw new RpcError(REFUSED, "This node has no more room for streams.", { status: 503 });
    this.#listening += 1;
    response.once("close", () => {
      this.#listening -= 1;
    });
    await serve();
  }

  /** A session that nobody used for long. */
  async #forget(session: RelaySession): Promise<void> {
    if (session.era === "stateless") return this.#options.crossing?.ended(session);
    const { workspace, caller: name } = session;
    const known = await this.#hands.find(workspace, session.hand);
    if (!known || session.upstream === null) return;
    const address = addressOf(session, await upstreamOf(known.hand, { workspace, name, scopes: new Set() }, this.#options));
    if (address) await this.#handshake.forget(new ReachedHand(this.#pool, known, workspace, address), session);
  }

  /** M4 */
  #answer(response: ServerResponse, id: RpcId | null, error: unknown): void {
    if (response.headersSent && tellFailure(response, id === null ? null : told(this.#options.log, error, id).body)) return;
    if (response.headersSent || response.destroyed) {
      if (!(error instanceof RpcError)) this.#options.log.error({ err: error }, "hand.broke");
      return void response.destroy();
    }
    const { status, body } = told(this.#options.log, error, id);
    if (error instanceof Challenge) response.setHeader("www-authenticate", error.header);
    if (error instanceof Refusal && REFUSALS[error.code].retry === "later") response.setHeader("retry-after", "1");
    // What was not read must not be taken for the next request.
    if (!response.req.complete) response.setHeader("connection", "close");
    sendJson(response, status, body);
  }
}

const noSession = (): RpcError => new RpcError(NO_SESSION, "Session not found", { status: 404 });

/** U3 of upstream.ts. In both eras an answer like any other. */
function refuseTool({ upstream }: Visit, { message }: Inbound): void {
  if (message.kind !== "request" || message.method !== "tools/call") return;
  const refused = upstream.policy.refused(typeof message.params.name === "string" ? message.params.name : "");
  if (refused !== null) throw new RpcError(INVALID_PARAMS, refused, { status: 200 });
}

function refuseOtherVersion(request: IncomingMessage, session: RelaySession): void {
  const version = request.headers["mcp-protocol-version"];
  if (version === undefined || version === session.version || VERSIONS.some((each) => each === version)) return;
  throw new RpcError(REFUSED, `Bad Request: Unsupported protocol version (supported versions: ${VERSIONS.join(", ")})`);
}
