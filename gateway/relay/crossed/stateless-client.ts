// A client of the stateless era at a hand of the handshake era. The session at the hand is ours; a question of the hand parks the call.
//
//   P1  A question becomes the answer `input_required`; the call stays open at the hand. The client's next try, at any node, answers the question there
//       and gets what the call comes to.
//   P2  The state that a client carries is sealed for this caller, hand, request and parameters; it works for ten minutes, once.
//   P3  Nothing runs twice: a try whose state is refused, or whose call is gone, is an error. Only what a hand surely never had is sent again.

import { z } from "zod";
import { mint } from "../../../session-store/ids.ts";
import { WORKSPACE } from "../../mcp/kept.ts";
import { INVALID_PARAMS, isRecord, METHOD_NOT_FOUND, REFUSED, RpcError } from "../../mcp/rpc.ts";
import { Seal } from "../../mcp/seal.ts";
import { lackingFor } from "../capabilities.ts";
import { STATELESS_VERSION } from "../inbound.ts";
import { ParamCheck } from "../param-check.ts";
import type { Exchange } from "../upstream.ts";
import { ASKED_KIND, type CrossedOptions, capabilitiesOf } from "./crossed.ts";
import { FarLines } from "./far-lines.ts";
import { post, SessionLost } from "./far-session.ts";
import { type Incoming, type Params, recordOf } from "./incoming.ts";
import { Leg } from "./leg.ts";
import { ParkedCalls } from "./parked.ts";
import { type Asked, StatelessOut } from "./stateless-out.ts";
import { Subscriptions } from "./subscriptions.ts";

const PAGE_TO_OPEN = -32_042;
const OTHER_ERA = new Set(["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]);
const ASKING = new Set(["tools/call", "prompts/get", "resources/read"]);

const State = z.object({ asked: z.string().nullable() });
const Question = z.object({ key: z.string(), message: z.custom<Incoming>(isRecord) });
const AskedBody = z.object({
  park: z.string(),
  /** How much of the call's log was read. */
  at: z.number(),
  session: z.string().nullable(),
  version: z.string(),
  place: z.string(),
  serverInfo: z.unknown(),
  questions: z.array(Question),
});
type AskedBody = z.infer<typeof AskedBody>;

export class StatelessClients {
  readonly #options: CrossedOptions;
  readonly #seal: Seal;
  readonly #lines: FarLines;
  readonly #parked: ParkedCalls;
  readonly #subscriptions: Subscriptions;
  readonly #marks = new ParamCheck();

  constructor(options: CrossedOptions & { readonly answerMs?: number }) {
    const { store, log, stateKey, answerMs } = options;
    this.#options = options;
    this.#seal = new Seal(stateKey, store);
    this.#lines = new FarLines(options);
    this.#parked = new ParkedCalls(store, log, answerMs);
    this.#subscriptions = new Subscriptions(this.#lines);
  }

  async serve(exchange: Exchange): Promise<void> {
    const { message, response, keepAliveMs } = exchange;
    if (!message) {
      response.setHeader("allow", "POST");
      throw new RpcError(REFUSED, "Method not allowed.", { status: 405 });
    }
    if (message.kind !== "request") return void response.writeHead(202, { "content-length": 0 }).end();
    const { id, method, params } = message;
    if (OTHER_ERA.has(method)) throw new RpcError(METHOD_NOT_FOUND, "There is no such method in this revision.", { status: 404 });
    if (method === "server/discover") return this.#discover(exchange, message);
    if (method === "subscriptions/listen") return this.#subscriptions.serve(exchange, id, params);
    if (method === "tools/call") await this.#refuseMismatch(exchange, params);
    const out = new StatelessOut(response, keepAliveMs, message);
    const sealed = ASKING.has(method) ? params.requestState : undefined;
    if (sealed === undefined) return this.#first(exchange, message, out);
    if (typeof sealed !== "string") throw new RpcError(INVALID_PARAMS, "requestState: is not of its kind", { status: 200 });
    const { asked } = State.parse(await this.#seal.open(sealed, bindingOf(exchange, message)));
    return asked === null ? this.#first(exchange, message, out) : this.#again(exchange, message, out, asked);
  }

  sweep(): Promise<void> {
    return this.#lines.sweep();
  }

  async close(): Promise<void> {
    this.#subscriptions.close();
    await this.#parked.close();
    this.#lines.close();
  }

  /** The hand knows nothing of such headers: nobody but us holds them against the arguments. */
  async #refuseMismatch(exchange: Exchange, params: Params): Promise<void> {
    const { upstream, request } = exchange;
    await this.#marks.refuseMismatch(upstream, request.headers, params, async ({ params: page, signal }) => {
      const line = await this.#lines.of(exchange);
      return await line.result("tools/list", page, signal);
    });
  }

  async #discover(exchange: Exchange, asked: Asked): Promise<void> {
    const { far } = await this.#lines.of(exchange);
    const result = {
      supportedVersions: [STATELESS_VERSION],
      capabilities: far.capabilities,
      ...(far.instructions !== null && { instructions: far.instructions }),
    };
    await new StatelessOut(exchange.response, exchange.keepAliveMs, asked).result(result, far.serverInfo);
  }

  /** P3: a session that the hand lost is opened again, once; the request did not run. */
  async #first(exchange: Exchange, asked: Asked, out: StatelessOut): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      const line = await this.#lines.of(exchange);
      try {
        return await this.#run(exchange, asked, out, line);
      } catch (error) {
        if (!(error instanceof SessionLost)) throw error;
        await this.#lines.lost(line);
        if (tries > 1) throw new RpcError(REFUSED, "The hand lost its session twice.", { status: 502 });
      }
    }
  }

  async #run(exchange: Exchange, asked: Asked, out: StatelessOut, line: Awaited<ReturnType<FarLines["of"]>>): Promise<void> {
    const { method, params } = asked;
    const { requestState: _, inputResponses: __, ...own } = params;
    await line.hearLevel(out.level);
    const leg = new Leg(out);
    const running = line.call({ method, params: own }, leg, (call) => leg.begin(call));
    running.catch((error: unknown) => leg.fail(error));
    const off = () => leg.cancel();
    exchange.signal.addEventListener("abort", off, { once: true });
    if (exchange.signal.aborted) off();
    const outcome = await leg.outcome;
    exchange.signal.removeEventListener("abort", off);
    if (outcome.type !== "asked") line.refuse(leg.taken());
    if (outcome.type === "left") return;
    if (outcome.type === "done") return this.#answer(exchange, asked, out, { ...outcome, serverInfo: line.far.serverInfo });
    const park = await this.#parked.park(line, outcome.call, () => leg.taken());
    const { session, version, place, serverInfo } = line.far;
    try {
      await this.#ask(exchange, asked, out, { park, at: 0, session, version, place, serverInfo, questions: keyed(outcome.questions) });
    } catch (error) {
      // A question that can't be kept can't be answered.
      await this.#parked.cancel(park);
      throw error;
    }
  }

  /** P1 */
  async #again(exchange: Exchange, asked: Asked, out: StatelessOut, id: string): Promise<void> {
    const { signal } = exchange;
    const document = await this.#options.store.get(WORKSPACE, ASKED_KIND, id);
    if (!document) throw new RpcError(INVALID_PARAMS, "Invalid or expired requestState", { data: { reason: "invalid_request_state" }, status: 200 });
    const body = AskedBody.parse(document.body);
    const responses = recordOf(asked.params.inputResponses);
    // A client that did not answer all is asked the same again.
    if (body.questions.some(({ key }) => !isRecord(responses[key]))) return this.#ask(exchange, asked, out, body, id);
    const upstream = exchange.upstream.at(body.place);
    if (!upstream || !(await this.#parked.answered(body.park))) throw lost();
    for (const { key, message } of body.questions) {
      try {
        await post(upstream, body, { id: message.id, result: responses[key] });
      } catch (error) {
        if (error instanceof SessionLost) throw lost();
        throw error;
      }
    }
    try {
      for await (const { entry, at } of this.#parked.follow(body.park, body.at, signal)) {
        if (entry.type === "notice") await out.notice(entry.message);
        else if (entry.type === "asked") return await this.#ask(exchange, asked, out, { ...body, at, questions: keyed(entry.questions) });
        else return await this.#answer(exchange, asked, out, { ...entry, serverInfo: body.serverInfo });
      }
    } catch (error) {
      if (!signal.aborted) throw error;
      await this.#parked.cancel(body.park);
    }
  }

  /** P1 P2 */
  async #ask(exchange: Exchange, asked: Asked, out: StatelessOut, body: AskedBody, known: string | null = null): Promise<void> {
    const id = known ?? mint("hasked");
    if (known === null) await this.#options.store.put(WORKSPACE, [{ kind: ASKED_KIND, id, body, replaces: 0 }]);
    const inputRequests = Object.fromEntries(body.questions.map(({ key, message }) => [key, questionOf(message)]));
    const requestState = this.#seal.close({ asked: id }, bindingOf(exchange, asked));
    await out.result({ resultType: "input_required", inputRequests, requestState }, body.serverInfo);
  }

  async #answer(
    exchange: Exchange,
    asked: Asked,
    out: StatelessOut,
    { message, lacking, serverInfo }: { readonly message: Incoming; readonly lacking: Params | null; readonly serverInfo: unknown },
  ): Promise<void> {
    const pages = ASKING.has(asked.method) ? pagesIn(message, capabilitiesOf(exchange)) : null;
    if (!pages) return out.answer(message, { lacking, serverInfo, refused: exchange.upstream.policy.refused });
    // The hand did nothing: it wants a page to be opened first, and then the same request again.
    const requestState = this.#seal.close({ asked: null }, bindingOf(exchange, asked));
    await out.result({ resultType: "input_required", inputRequests: pages, requestState }, serverInfo);
  }
}

/** P2 */
function bindingOf({ caller, upstream }: Exchange, { method, params }: Asked) {
  return { caller: JSON.stringify([caller.name, upstream.workspace, upstream.hand.name]), method, params };
}

const keyed = (questions: readonly Incoming[]) => questions.map((message, index) => ({ key: `question_${index + 1}`, message }));

/** A question as this era spells it: pages to open have no id here. */
function questionOf({ method, params }: Incoming): Params {
  const { elicitationId: _, ...rest } = recordOf(params);
  return { method, ...(params !== undefined && { params: rest }) };
}

/** The pages that an error asks to open, as questions; null: it does not, or this client can't. */
function pagesIn({ error }: Incoming, capabilities: Params): Params | null {
  const { code, data } = recordOf(error);
  const { elicitations } = recordOf(data);
  if (code !== PAGE_TO_OPEN || !Array.isArray(elicitations) || elicitations.length === 0) return null;
  const pages = elicitations.filter(isRecord).map((params) => ({ method: "elicitation/create", params: { ...params, mode: "url" } }));
  if (pages.some(({ method, params }) => lackingFor(method, params, capabilities))) return null;
  return Object.fromEntries(pages.map((page, index) => [`question_${index + 1}`, questionOf(page)]));
}

const lost = () => new RpcError(REFUSED, "The call that was asked about is gone; it may have had its effect.", { status: 200 });
