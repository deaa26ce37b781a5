// A client of the handshake era at a hand of the handshake era: its session here stands for one at the hand.
//
//   S1  The client's session id is ours, the hand's never leaves this installation; what names one names the other on every node.
//   S2  Every message passes: questions of the hand to the client, and the client's answers, too.
//   S3  A session that the hand lost is opened again once, with what the client said when it initialized, and told its level and subscriptions. That
//       is for a hand whose connections are shared; one that keeps something for each session has lost it, and its client is told (404).
//   S4  A session that ended here ends at the hand, and the other way round.

import type { Logger } from "pino";
import { CLIENT_LISTENS } from "../../hands/relay/request.ts";
import { hasBatches } from "../mcp/batch.ts";
import { INTERNAL_ERROR, INVALID_REQUEST, NO_SESSION, RpcError } from "../mcp/rpc.ts";
import { placeOf } from "./address.ts";
import { readWhole } from "./answers.ts";
import { refusedStatus } from "./failure.ts";
import { capabilitiesIn, JSON_HEADERS, versionIn } from "./hello.ts";
import { ASIDE_MS, HELLO_MS } from "./limits.ts";
import { LISTENING, MessageLooker } from "./looks.ts";
import { type Passed, pass } from "./passing.ts";
import type { Pool } from "./pool.ts";
import { Reopening } from "./reopening.ts";
import type { RelaySessions } from "./sessions.ts";
import { memberOf, membersOf, textOf } from "./spans.ts";
import type { RelaySession, Upstream } from "./upstream.ts";
import { passedHeaders, type Visit } from "./visit.ts";

const HELLO_CHARS_MAX = 65_536;
const SUBSCRIPTIONS_MAX = 256;

export interface HandshakeOptions {
  readonly pool: Pool;
  readonly sessions: RelaySessions;
  readonly keepAliveMs: number;
  readonly stopped: AbortSignal;
  readonly log: Logger;
}

export class HandshakeRelay {
  readonly #options: HandshakeOptions;
  readonly #reopening: Reopening;

  constructor(options: HandshakeOptions) {
    this.#options = options;
    this.#reopening = new Reopening(options);
  }

  /** Null: it was answered. Otherwise the hand did not take it, and nothing was answered: what the client may be told of that. S1 */
  async initialize(visit: Visit): Promise<RpcError | null> {
    const { request, response, upstream, inbound, caller } = visit;
    if (inbound?.message.kind !== "request") throw new Error("only a request initializes");
    const params = memberOf(membersOf(inbound.body), "params");
    const hello = params ? textOf(inbound.body, params) : "{}";
    if (hello.length > HELLO_CHARS_MAX) throw new RpcError(INVALID_REQUEST, `The parameters are over the limit of ${HELLO_CHARS_MAX} characters.`);
    const headers = passedHeaders(request.headers, false);
    const answer = await upstream.send({ method: "POST", headers, body: inbound.body, signal: AbortSignal.timeout(HELLO_MS) });
    const { status, type, bytes, message } = await readWhole(answer);
    const refused = refusedStatus(status);
    if (refused) throw refused;
    const version = versionIn(message?.result);
    if (version === null) return notTaken(status, message?.error);
    const own = answer.headers["mcp-session-id"];
    const { hand, workspace, address } = upstream;
    const session = await this.#options.sessions.open({
      caller: caller.name,
      workspace,
      hand: hand.name,
      url: placeOf(address),
      version,
      hello,
      era: "handshake",
      upstream: typeof own === "string" && own !== "" ? own : null,
      notes: null,
    });
    response.writeHead(status, {
      "content-type": type === "events" ? "text/event-stream" : "application/json",
      "content-length": bytes.length,
      "mcp-session-id": session.id,
    });
    response.end(bytes);
    return null;
  }

  async post(visit: Visit, session: RelaySession): Promise<void> {
    const { inbound, response } = visit;
    if (!inbound) throw new Error("a POST without a message");
    const { message } = inbound;
    // Before the hand hears of it: what it refuses does no harm when it is said again, and what it took is not forgotten.
    if (message.kind === "request") await this.#note(session, message.method, message.params);
    const passed = await this.#pass(visit, session, "POST");
    if (passed === "lost" && message.kind !== "request") {
      // What it was about is gone with the session; the client hears of that when it asks for something.
      response.writeHead(202, { "content-length": 0 }).end();
    } else if (passed === "lost") {
      const again = await this.#reopening.reopen(visit.upstream, session);
      if (!again || (await this.#pass(visit, again, "POST")) === "lost") throw await this.#gone(session);
    }
  }

  async get(visit: Visit, session: RelaySession): Promise<void> {
    const { response } = visit;
    const over = new AbortController();
    const ended = new AbortController();
    response.once("close", () => over.abort());
    await this.#options.sessions.onEnd(session.id, () => ended.abort(), over.signal);
    const stopped = AbortSignal.any([this.#options.stopped, ended.signal]);
    if ((await this.#pass(visit, session, "GET", { stopped })) !== "lost") return;
    const again = await this.#reopening.reopen(visit.upstream, session);
    if (!again || (await this.#pass(visit, again, "GET", { stopped, isReopened: true })) === "lost") throw await this.#gone(session);
  }

  /** The hand is told first: whoever still believes in the session hears the truth from it. S4 */
  async delete({ response, upstream }: Visit, session: RelaySession): Promise<void> {
    await this.forget(upstream, session);
    await this.#options.sessions.end(session);
    response.writeHead(204).end();
  }

  /** Ends a session at the hand, if that can be done. */
  async forget(upstream: Upstream, session: RelaySession): Promise<void> {
    if (session.upstream === null) return;
    const headers = { "mcp-session-id": session.upstream, "mcp-protocol-version": session.version };
    try {
      const answer = await upstream.send({ method: "DELETE", headers, body: null, signal: AbortSignal.timeout(ASIDE_MS) });
      answer.body.resume().on("error", () => {});
    } catch (error) {
      this.#options.log.info({ hand: upstream.hand.name, reason: reasonOf(error) }, "hand_session.not_ended_there");
    }
  }

  #pass(
    visit: Visit,
    session: RelaySession,
    method: "POST" | "GET",
    { stopped = this.#options.stopped, isReopened = false }: { readonly stopped?: AbortSignal; readonly isReopened?: boolean } = {},
  ): Promise<Passed> {
    const { request, response, upstream, inbound } = visit;
    const { pool, keepAliveMs } = this.#options;
    const message = inbound?.message;
    const isRequest = message?.kind === "request";
    const looker = new MessageLooker({
      era: "handshake",
      id: isRequest ? message.id : null,
      method: isRequest ? message.method : LISTENING,
      policy: upstream.policy,
      caching: "as-is",
      hasBatches: hasBatches(session.version),
      capabilities: () => capabilitiesIn(session.hello),
      refuse: (id, asked) => this.#refuse(upstream, session, { id, asked }),
    });
    visit.seen = looker;
    const headers = passedHeaders(request.headers, false);
    if (session.upstream !== null) headers["mcp-session-id"] = session.upstream;
    // Whoever keeps a child for this client ends it when the client is gone.
    if (method === "GET" && upstream.address.isOwn) Object.assign(headers, CLIENT_LISTENS);
    // A place in the stream of a session that is no more means nothing to the next one.
    if (isReopened) delete headers["last-event-id"];
    return pass(
      pool,
      upstream.address,
      { method, headers, body: inbound?.body ?? null },
      {
        response,
        id: isRequest ? message.id : null,
        times: method === "GET" ? null : upstream.times,
        keepAliveMs,
        looker,
        isCollected: looker.isCollected && isRequest,
        statusOf: (status) => status,
        hasSession: session.upstream !== null,
        stopped,
      },
    );
  }

  /** The client can't be asked this: the hand hears what such a client would have said. */
  #refuse(upstream: Upstream, session: RelaySession, { id, asked }: { id: string; asked: string }): void {
    const { log } = this.#options;
    const body = `{"jsonrpc":"2.0","id":${id},"error":{"code":-32601,"message":"The client did not declare what this needs"}}`;
    const headers = {
      ...JSON_HEADERS,
      "mcp-protocol-version": session.version,
      ...(session.upstream !== null && { "mcp-session-id": session.upstream }),
    };
    log.info({ hand: upstream.hand.name, method: asked.slice(0, 64) }, "hand.question_refused");
    upstream
      .send({ method: "POST", headers, body, signal: AbortSignal.timeout(ASIDE_MS) })
      .then(({ body: answer }) => answer.resume().on("error", () => {}))
      .catch((error: unknown) => log.info({ hand: upstream.hand.name, reason: reasonOf(error) }, "hand.not_told"));
  }

  /** What a hand that lost the session is to be told again. S3 */
  async #note({ id }: RelaySession, method: string, params: Readonly<Record<string, unknown>>): Promise<void> {
    const { sessions } = this.#options;
    const { uri, level } = params;
    if (method === "logging/setLevel" && typeof level === "string") await sessions.update(id, () => ({ level: level.slice(0, 64) }));
    if (typeof uri !== "string") return;
    if (method === "resources/subscribe")
      await sessions.update(id, ({ subscriptions }) =>
        subscriptions.includes(uri) ? null : { subscriptions: [...subscriptions, uri].slice(-SUBSCRIPTIONS_MAX) },
      );
    if (method === "resources/unsubscribe")
      await sessions.update(id, ({ subscriptions }) => ({ subscriptions: subscriptions.filter((each) => each !== uri) }));
  }

  async #gone(session: RelaySession): Promise<RpcError> {
    await this.#options.sessions.end(session);
    return new RpcError(NO_SESSION, "Session not found", { status: 404 });
  }
}

/** The hand's own words, where it has some. */
function notTaken(status: number, error: unknown): RpcError {
  if (typeof error === "object" && error !== null && "code" in error && Number.isSafeInteger(error.code) && "message" in error) {
    const data = "data" in error ? error.data : undefined;
    return new RpcError(Number(error.code), String(error.message), { data, status: status < 500 ? status : 502 });
  }
  const isOld = status === 404 || status === 405;
  const hint = isOld ? " If it is a server of the older HTTP+SSE transport, register it with the transport `sse`." : "";
  return new RpcError(INTERNAL_ERROR, `The hand did not agree to initialize (HTTP ${status}).${hint}`, { status: 502 });
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message.slice(0, 200) : "unknown");
