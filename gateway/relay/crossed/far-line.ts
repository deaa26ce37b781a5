// A session at a hand as this node uses it: the calls that run here, and the stream of what the hand says by itself.
//
//   L1  The stream is open while something runs or listens here, and a while longer. A hand has one for each session: where another node holds it, this
//       one tries again now and then, and what belongs to a call of another node is found by that node in the store (questions.ts).
//   L2  A question on the stream belongs to the oldest call that runs here and waits for no answer: they are one caller's, who can do the same in each.
//   L3  What tells of changes goes to the store, so that the listeners of every node hear of it (news.ts).

import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { INTERNAL_ERROR, METHOD_NOT_FOUND, REFUSED, RpcError } from "../../mcp/rpc.ts";
import { lackingFor } from "../capabilities.ts";
import type { Upstream } from "../upstream.ts";
import { reasonOf } from "./crossed.ts";
import { type CallHearer, FarCall } from "./far-call.ts";
import { type FarSession, farHeaders, post } from "./far-session.ts";
import { Clock, type Incoming, isRequest, messagesOf, type Params, type Place, recordOf } from "./incoming.ts";
import type { News } from "./news.ts";
import type { Questions } from "./questions.ts";

const LINGER_MS = 30_000;
const OPENED_MS = 2_000;
const TAKEN_AGAIN_MS = 2_000;
const AGAIN_MS = 1_000;
const FAILURES_MAX = 5;
/** Another one has the session's stream. */
const TAKEN = 409;
const NEWS = /^notifications\/((tools|prompts|resources)\/list_changed|resources\/updated)$/;
const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

export interface LineParts {
  readonly upstream: Upstream;
  readonly far: FarSession;
  readonly capabilities: Params;
  readonly news: News;
  readonly questions: Questions;
  readonly log: Logger;
  /** The hand does not know the session any more. */
  lost(): void;
}

export class FarLine {
  readonly far: FarSession;
  usedAt = Date.now();
  readonly #parts: LineParts;
  readonly #calls = new Set<FarCall>();
  readonly #waiting = new Set<FarCall>();
  readonly #off = new AbortController();
  readonly #stopQuestions: () => void;
  #upstream: Upstream;
  readonly #subscribed = new Set<string>();
  #listeners = 0;
  #level: string | null = null;
  #stream: Promise<void> | null = null;

  constructor(parts: LineParts) {
    this.#parts = parts;
    this.far = parts.far;
    this.#upstream = parts.upstream;
    this.#stopQuestions = parts.questions.watch(
      parts.far.id,
      () => this.#calls.size > 0,
      (message) => this.#question(message),
    );
  }

  /** Aborts when the session is of no use any more. */
  get gone(): AbortSignal {
    return this.#off.signal;
  }

  get isUsed(): boolean {
    return this.#calls.size > 0 || this.#listeners > 0;
  }

  /** A request of the line's caller brings the newest way to the hand. */
  use(upstream: Upstream): void {
    this.#upstream = upstream;
    this.usedAt = Date.now();
  }

  /** Runs a request; `hearer` hears what comes of it. The promise ends with it, or rejects with `SessionLost`. */
  async call(request: { readonly method: string; readonly params: Params }, hearer: CallHearer, started: (call: FarCall) => void): Promise<void> {
    if (Object.keys(this.#parts.capabilities).length > 0) await this.#opened();
    const call: FarCall = new FarCall(
      {
        ...request,
        upstream: this.#upstream,
        far: this.far,
        capabilities: this.#parts.capabilities,
        aside: (message) => this.#aside(message),
        mayAsk: (message, of) => this.#mayAsk(message, of),
      },
      hearer,
    );
    this.#calls.add(call);
    started(call);
    try {
      await call.run();
    } finally {
      this.#calls.delete(call);
      this.#waiting.delete(call);
      this.usedAt = Date.now();
    }
  }

  /** The call has questions open, or has none any more. */
  wait(call: FarCall, isWaiting: boolean): void {
    call.wait(isWaiting);
    if (isWaiting) this.#waiting.add(call);
    else this.#waiting.delete(call);
  }

  /** Keeps the stream open until `signal` aborts. */
  async listen(signal: AbortSignal): Promise<void> {
    this.#listeners += 1;
    signal.addEventListener("abort", () => (this.#listeners -= 1), { once: true });
    await this.#opened();
  }

  /** True: the hand tells of this resource from now on. */
  async subscribe(uri: string): Promise<boolean> {
    if (this.#subscribed.has(uri)) return true;
    const isTaken = await this.request("resources/subscribe", { uri });
    if (isTaken) this.#subscribed.add(uri);
    return isTaken;
  }

  /** Levels are the session's: the most talkative one that anybody asked for. */
  async hearLevel(level: string | null): Promise<void> {
    if (level === null || this.far.capabilities.logging === undefined) return;
    if (this.#level !== null && LEVELS.indexOf(level) >= LEVELS.indexOf(this.#level)) return;
    const before = this.#level;
    this.#level = level;
    const isSet = await this.request("logging/setLevel", { level });
    if (!isSet) this.#level = before;
  }

  /** The call came to its end before these questions were put to anybody. */
  refuse(questions: readonly Incoming[]): void {
    for (const { id } of questions) this.#answer({ id, error: { code: REFUSED, message: "The request that this belonged to is over." } });
  }

  /** A request of ours; true: the hand did it. */
  async request(method: string, params: Params): Promise<boolean> {
    return (await this.result(method, params)) !== undefined;
  }

  /** What a request of ours came to; undefined: the hand did not do it. */
  async result(method: string, params: Params, signal?: AbortSignal): Promise<unknown> {
    let result: unknown;
    const done = async (message: Incoming) => {
      result = message.result;
    };
    await this.call({ method, params }, { tell: async () => {}, ask: async () => {}, done }, (call) => {
      signal?.addEventListener("abort", () => call.cancel(), { once: true });
    });
    return result;
  }

  /** Nothing new goes by it. What runs is left to come to its own end. */
  retire(): void {
    this.#stopQuestions();
    this.#off.abort();
  }

  /** This node stops. */
  close(): void {
    this.retire();
    const error = new RpcError(INTERNAL_ERROR, "This node was shut down; the request may have had its effect.");
    for (const call of [...this.#calls]) this.#heard(call.giveUp(error));
  }

  #aside(message: Incoming): void {
    const method = String(message.method);
    if (NEWS.test(method)) return void this.#parts.news.publish(this.far.id, method, recordOf(message.params).uri);
    const token = method === "notifications/progress" ? recordOf(message.params).progressToken : undefined;
    const to = [...this.#calls].filter(({ id }) => token === undefined || id === token);
    if (!isRequest(message)) for (const call of to) this.#heard(call.hear(message));
    else if (!this.#question(message)) this.#parts.questions.offer(this.far, this.#upstream, message);
  }

  /** L2. False: no call of this node can have it. */
  #question(message: Incoming): boolean {
    if (message.method === "ping") {
      this.#answer({ id: message.id, result: {} });
      return true;
    }
    const free = [...this.#calls].filter((call) => !this.#waiting.has(call) && !call.isOver);
    const [call] = free.length > 0 ? free : this.#calls;
    if (!call) return false;
    this.#heard(call.hear(message));
    return true;
  }

  #mayAsk(message: Incoming, call: FarCall): boolean {
    const { id, method, params } = message;
    if (method === "ping") {
      this.#answer({ id, result: {} });
      return false;
    }
    const isKnown = method === "elicitation/create" || method === "sampling/createMessage" || method === "roots/list";
    const lacking = isKnown ? lackingFor(method, params, this.#parts.capabilities) : null;
    if (isKnown && !lacking) return true;
    if (lacking) call.lacking = { ...call.lacking, ...lacking };
    this.#answer({ id, error: { code: METHOD_NOT_FOUND, message: "The client did not declare what this needs" } });
    return false;
  }

  #answer(message: object): void {
    this.#heard(post(this.#upstream, this.far, message));
  }

  #heard(work: Promise<void>): void {
    work.catch((error: unknown) => this.#parts.log.info({ hand: this.#upstream.hand.name, reason: reasonOf(error) }, "hand.not_told"));
  }

  /** Resolves when the stream is open, or can't be, or takes too long to say so. L1 */
  async #opened(): Promise<void> {
    if (this.far.session === null) return;
    if (!this.#stream) {
      const { promise, resolve } = opened();
      this.#stream = promise;
      void this.#run(resolve)
        .catch((error: unknown) => this.#parts.log.warn({ reason: reasonOf(error) }, "hand.stream_broke"))
        .finally(() => {
          resolve();
          this.#stream = null;
        });
    }
    await Promise.race([this.#stream, sleep(OPENED_MS, undefined, { ref: false })]);
  }

  async #run(isOpen: () => void): Promise<void> {
    const { signal } = this.#off;
    const place: Place = { id: null };
    let hasBroken = false;
    let failures = 0;
    while (!signal.aborted && (this.isUsed || this.usedAt + LINGER_MS > Date.now())) {
      const clock = new Clock(null, signal);
      const over = new AbortController();
      const unused = setInterval(() => {
        if (!this.isUsed && this.usedAt + LINGER_MS <= Date.now()) over.abort();
      }, AGAIN_MS).unref();
      try {
        const { "content-type": _, ...headers } = farHeaders(this.far);
        const asked = { ...headers, accept: "text/event-stream", ...(place.id !== null && { "last-event-id": place.id }) };
        const answer = await this.#upstream.send({ method: "GET", headers: asked, body: null, signal: AbortSignal.any([clock.signal, over.signal]) });
        isOpen();
        if (answer.status !== 200) answer.body.resume().on("error", () => {});
        if (answer.status === 404) return this.#parts.lost();
        if (answer.status === 405) return;
        if (answer.status === TAKEN) {
          await sleep(TAKEN_AGAIN_MS, undefined, { signal }).catch(() => {});
          continue;
        }
        if (answer.status !== 200) throw new Error(`HTTP ${answer.status}`);
        failures = 0;
        if (hasBroken) this.#parts.news.publishAll(this.far.id);
        for await (const message of messagesOf(answer, clock, place)) this.#aside(message);
        hasBroken = true;
      } catch (error) {
        isOpen();
        hasBroken = true;
        failures += 1;
        if (!signal.aborted && !over.signal.aborted) this.#parts.log.info({ reason: reasonOf(error) }, "hand.stream_broke");
      } finally {
        clearInterval(unused);
        clock.stop();
      }
      // Whoever listens is to ask again: by a new session, with what is needed to reach the hand today.
      if (failures >= FAILURES_MAX) return this.#parts.lost();
      if (this.isUsed) await sleep(AGAIN_MS * 2 ** failures, undefined, { signal }).catch(() => {});
    }
  }
}

function opened(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}
