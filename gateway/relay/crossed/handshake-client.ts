// A client of the handshake era at a hand of the stateless era: the session is ours, and each of its requests asks the hand anew.
//
//   C1  `initialize` is answered with what the hand says of itself (`server/discover`). Nothing of the session lives in this process: any node serves it.
//   C2  What the hand needs of the client (`input_required`) is asked of it by real requests, and the hand is asked again with the answers and its own
//       state, which nobody reads. What the client did not declare is not asked.
//   C3  A call is called off by the client's notice at any node, or by the end of its session; not by a connection that ends.

import { sendJson } from "../../http/call.ts";
import { Asks } from "../../mcp/handshake/asks.ts";
import { VERSIONS } from "../../mcp/handshake/era.ts";
import { ReplyStreams } from "../../mcp/handshake/streams.ts";
import { INVALID_REQUEST, keyOf, REFUSED, RpcError, type RpcId, resultMessage } from "../../mcp/rpc.ts";
import { placeOf } from "../address.ts";
import { versionIn } from "../hello.ts";
import type { Exchange, RelaySession } from "../upstream.ts";
import { bellOf, type CrossedOptions, SERVER_INFO } from "./crossed.ts";
import { HandshakeCalls } from "./handshake-call.ts";
import { isId, metaOf, type Params, recordOf } from "./incoming.ts";
import { Listening } from "./listening.ts";
import { answerOf } from "./stateless-hand.ts";

const [LATEST] = VERSIONS;
const PRIMED_FROM = "2025-11-25";
const STREAMED = new Set(["tools/call", "prompts/get", "resources/read"]);
const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const HELLO_CHARS_MAX = 65_536;
const SUBSCRIPTIONS_MAX = 256;
const CANCELLED_KEPT = 64;

export class HandshakeClients {
  readonly #options: CrossedOptions;
  readonly #asks: Asks;
  readonly #calls: HandshakeCalls;
  readonly #streams: ReplyStreams;
  readonly #listening: Listening;

  constructor(options: CrossedOptions) {
    this.#options = options;
    this.#asks = new Asks(options.store);
    this.#calls = new HandshakeCalls({ ...options, asks: this.#asks });
    this.#streams = new ReplyStreams(options);
    this.#listening = new Listening(options);
  }

  async serve(exchange: Exchange): Promise<void> {
    const { message, response, session } = exchange;
    if (message?.kind === "request" && message.method === "initialize") return this.#initialize(exchange, message.id, message.params);
    if (!session) throw new RpcError(REFUSED, "Bad Request: Mcp-Session-Id header is required");
    if (!message) return exchange.request.method === "DELETE" ? this.#delete(exchange, session) : this.#get(exchange, session);
    if (message.kind === "request") return this.#request(exchange, session, message);
    if (message.kind === "response") await this.#asks.answer(session.id, message.id, message.answer);
    else if (message.method === "notifications/cancelled") await this.#cancel(exchange, session, message.params.requestId);
    response.writeHead(202, { "content-length": 0 }).end();
  }

  ended(session: RelaySession): void {
    this.#options.store.ring(bellOf(session.id));
  }

  close(): void {
    this.#calls.close();
    this.#listening.close();
  }

  /** C1 */
  async #initialize({ upstream, caller, sessions, response, session, signal }: Exchange, id: RpcId, params: Params): Promise<void> {
    if (session) throw new RpcError(INVALID_REQUEST, "This session is initialized already.");
    const hello = JSON.stringify(params);
    if (hello.length > HELLO_CHARS_MAX) throw new RpcError(INVALID_REQUEST, `The parameters are over the limit of ${HELLO_CHARS_MAX} characters.`);
    const client = { info: params.clientInfo, capabilities: recordOf(params.capabilities) };
    const { result, error } = await answerOf({ upstream, method: "server/discover", params: {}, client, level: null, signal });
    if (error !== undefined || result === undefined) {
      const { code, message, data } = recordOf(error);
      throw new RpcError(Number.isSafeInteger(code) ? Number(code) : REFUSED, String(message ?? "The hand does not say what it is."), {
        data,
        status: 502,
      });
    }
    const { capabilities = {}, instructions } = recordOf(result);
    const version = VERSIONS.find((each) => each === versionIn(params)) ?? LATEST;
    const opened = await sessions.open({
      caller: caller.name,
      workspace: upstream.workspace,
      hand: upstream.hand.name,
      url: placeOf(upstream.address),
      version,
      hello,
      era: "stateless",
      upstream: null,
      notes: null,
    });
    const serverInfo = metaOf(result)[SERVER_INFO] ?? recordOf(result).serverInfo ?? { name: upstream.hand.name, version: "0" };
    response.setHeader("mcp-session-id", opened.id);
    sendJson(
      response,
      200,
      resultMessage(id, { protocolVersion: version, capabilities, serverInfo, ...(instructions !== undefined && { instructions }) }),
    );
  }

  async #delete({ sessions, response }: Exchange, session: RelaySession): Promise<void> {
    await sessions.end(session);
    this.ended(session);
    response.writeHead(204).end();
  }

  async #get(exchange: Exchange, session: RelaySession): Promise<void> {
    const place = exchange.request.headers["last-event-id"];
    if (typeof place === "string" && ReplyStreams.isPlace(place)) return this.#streams.resume(session.id, place, exchange.response);
    this.#listening.open(exchange, session, place !== undefined);
  }

  async #request(
    exchange: Exchange,
    session: RelaySession,
    request: { readonly id: RpcId; readonly method: string; readonly params: Params },
  ): Promise<void> {
    const { response } = exchange;
    const quick = await this.#quick(exchange, session, request);
    if (quick) return sendJson(response, 200, resultMessage(request.id, quick));
    if (!STREAMED.has(request.method)) {
      const answer = await this.#calls.run(exchange, session, request, null);
      if (answer) sendJson(response, 200, answer);
      else response.writeHead(204).end();
      return;
    }
    const stream = this.#streams.open(session.id, request.id);
    void stream.attach(response, 0, session.version >= PRIMED_FROM);
    const answer = await this.#calls.run(exchange, session, request, stream);
    await (answer ? stream.end(answer) : stream.drop());
    this.#streams.done(stream);
  }

  /** What the session knows by itself. */
  async #quick(
    { sessions }: Exchange,
    { id }: RelaySession,
    { method, params }: { readonly method: string; readonly params: Params },
  ): Promise<object | null> {
    const { uri, level } = params;
    if (method === "ping") return {};
    if (method === "logging/setLevel") {
      if (typeof level !== "string" || !LEVELS.includes(level)) throw new RpcError(-32_602, "level: is missing or not of its kind");
      await sessions.update(id, () => ({ level }));
      return {};
    }
    if (method !== "resources/subscribe" && method !== "resources/unsubscribe") return null;
    if (typeof uri !== "string") throw new RpcError(-32_602, "uri: is missing or not of its kind");
    await sessions.update(id, ({ subscriptions }) => {
      const others = subscriptions.filter((each) => each !== uri);
      if (method === "resources/unsubscribe") return { subscriptions: others };
      if (others.length >= SUBSCRIPTIONS_MAX) throw new RpcError(REFUSED, `A session has at most ${SUBSCRIPTIONS_MAX} subscriptions.`);
      return { subscriptions: [...others, uri] };
    });
    this.#options.store.ring(bellOf(id));
    return {};
  }

  /** C3 */
  async #cancel({ sessions }: Exchange, { id }: RelaySession, request: unknown): Promise<void> {
    if (!isId(request) || this.#calls.cancel(id, request)) return;
    await sessions.update(id, ({ notes, revision }) => {
      const { cancelled } = recordOf(notes);
      const before = Array.isArray(cancelled) ? cancelled : [];
      return { notes: { cancelled: [...before.slice(1 - CANCELLED_KEPT), { request: keyOf(request), revision: revision + 1 }] } };
    });
    this.#options.store.ring(bellOf(id));
  }
}
