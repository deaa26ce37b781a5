// One request to a hand and its answer, passed on as it comes.
//
//   R1  An answer goes on as it comes: streams event by event, a long body piece by piece. Nobody reads faster than the client does.
//   R2  A client that goes away ends the request at the hand (in the stateless era that calls it off).
//   R3  A hand that is silent for `idleMs`, or still speaks after `totalMs`, is given up. Any byte extends the idle time. A stream that a client opened to
//       listen has no such limits.
//   R4  What fails before the answer began is thrown. After that, a stream ends with an error for the request, or breaks off where its client can come
//       back for the rest; a body that was begun breaks off.
//   R5  A silent stream says that it is there, between two events; so does an answer that does not begin (early.ts).

import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Dispatcher } from "undici";
import { errorMessage, type RpcError, type RpcId } from "../mcp/rpc.ts";
import { OPENING, PING, STREAM_HEADERS } from "../mcp/sse.ts";
import { EarlyStream, onOneLine } from "./early.ts";
import { Events, type Looker } from "./events.ts";
import { failureOf, noMessage, refusedByVault, refusedStatus, timedOut, tooLong } from "./failure.ts";
import { ANSWER_BYTES_MAX, COLLECTED_BYTES_MAX, LOOKED_AT_BYTES_MAX, SLOW_MS } from "./limits.ts";
import type { Pool } from "./pool.ts";
import { Silence, type Watched } from "./silence.ts";
import type { Address, UpstreamRequest } from "./upstream.ts";

const ONE_WRITE_BYTES_MAX = 16_384;

/** How it ended: the answer went out; the client went away; the hand does not know the session. */
export type Passed = "answered" | "left" | "lost";

export interface Passing {
  readonly response: ServerResponse;
  /** Null: no request, and so nothing to answer. */
  readonly id: RpcId | null;
  /** Null: the client listens for as long as it likes. R3 */
  readonly times: { readonly idleMs: number; readonly totalMs: number } | null;
  readonly keepAliveMs: number;
  readonly looker: Looker;
  /** The status that an answer goes out with, when its text asks for another. */
  statusOf(status: number): number;
  /** The answer is seen whole before it goes on. */
  readonly isCollected: boolean;
  /** 404 means that the hand does not know the session. */
  readonly hasSession: boolean;
  /** Ends what only listens: this node stops, or the session is over. */
  readonly stopped: AbortSignal;
}

export function pass(pool: Pool, address: Address, request: Omit<UpstreamRequest, "signal">, passing: Passing): Promise<Passed> {
  return new Promise((resolve, reject) => {
    const handler = new PassingHandler(address, passing, resolve, reject);
    try {
      pool.dispatch(address, request, handler);
    } catch (error) {
      handler.onResponseError(null, error);
    }
  });
}

type Mode = "waiting" | "events" | "collecting" | "flowing" | "empty";

const silence = new Silence();

class PassingHandler implements Dispatcher.DispatchHandler, Watched {
  readonly #address: Address;
  readonly #passing: Passing;
  readonly #resolve: (passed: Passed) => void;
  readonly #reject: (error: RpcError) => void;
  /** Null: the answer is no stream, or did not begin. */
  #events: Events | null = null;
  readonly #startedAt = performance.now();
  silentUntil = 0;
  readonly #opening: Watched | null;
  #alive: NodeJS.Timeout | null = null;
  #slow: NodeJS.Timeout | null = null;
  #controller: Dispatcher.DispatchController | null = null;
  #mode: Mode = "waiting";
  #status = 0;
  #chunks: Buffer[] = [];
  #bytes = 0;
  #nextLook = LOOKED_AT_BYTES_MAX;
  #hasEnded = false;
  #isOver = false;

  constructor(address: Address, passing: Passing, resolve: (passed: Passed) => void, reject: (error: RpcError) => void) {
    const { times, response, stopped, id, keepAliveMs } = passing;
    const isListening = times === null;
    this.#address = address;
    this.#passing = passing;
    this.#resolve = resolve;
    this.#reject = reject;
    if (times !== null) {
      this.silentUntil = this.#startedAt + times.idleMs;
      silence.watch(this);
    }
    this.#opening = id !== null || isListening ? EarlyStream.wait(response, { isListening, keepAliveMs }) : null;
    response.once("close", this.#onClose);
    if (times === null) stopped.addEventListener("abort", this.#onStop, { once: true });
    if (times === null && stopped.aborted) this.#onStop();
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#isOver) controller.abort(new Error("given up"));
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200 || this.#isOver) return;
    if (this.#passing.times) this.silentUntil = performance.now() + this.#passing.times.idleMs;
    this.#status = status;
    const unopened = refusedByVault(this.#address, headers);
    if (unopened) return void this.#fail(unopened, "throw");
    if (status === 404 && this.#passing.hasSession) return void this.#done("lost", () => {});
    const refused = refusedStatus(status);
    if (refused) return void this.#fail(refused, "throw");
    const type = headers["content-type"];
    const kind = typeof type === "string" ? essenceOf(type) : "";
    if (kind === "text/event-stream" && status < 300) this.#beginEvents();
    else if (kind === "application/json") this.#mode = "collecting";
    else if (status < 300 && (status !== 200 || this.#passing.id === null)) this.#mode = "empty";
    else this.#fail(noMessage(status), "throw");
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#isOver) return;
    this.#bytes += chunk.length;
    const { times } = this.#passing;
    if (times) {
      const now = performance.now();
      this.silentUntil = now + times.idleMs;
      if (now - this.#startedAt > times.totalMs) return void this.#fail(timedOut("did not finish", times.totalMs), "tell");
    }
    if (this.#bytes > ANSWER_BYTES_MAX) return void this.#fail(tooLong(ANSWER_BYTES_MAX), "tell");
    switch (this.#mode) {
      case "events":
        return void (this.#events && this.#passEvents(controller, this.#events, chunk));
      case "flowing":
        return void this.#write(controller, [EarlyStream.of(this.#passing.response) ? onOneLine(chunk) : chunk]);
      case "collecting":
        return void this.#collect(controller, chunk);
      default:
        return;
    }
  }

  onResponseEnd(): void {
    if (this.#isOver) return;
    this.#hasEnded = true;
    const { response } = this.#passing;
    if (this.#mode === "collecting") return void this.#answerWhole();
    const status = this.#status;
    if (this.#mode === "empty" && !EarlyStream.of(response))
      return void this.#done("answered", () => response.writeHead(status, status === 204 ? {} : { "content-length": 0 }).end());
    this.#done("answered", () => response.end(this.#mode === "flowing" && EarlyStream.of(response) ? "\n\n" : undefined));
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: unknown): void {
    this.#fail(failureOf(error), "break");
  }

  /** R3 */
  onSilence(): void {
    const { times } = this.#passing;
    if (times) this.#fail(timedOut("was silent and did not answer", times.idleMs), "tell");
  }

  readonly #onClose = (): void => {
    this.#done("left", () => {});
  };
  readonly #onStop = (): void => {
    // What only listens ends; what is answered has until the connections are cut.
    this.#done("left", () => this.#passing.response.end());
  };

  #beginEvents(): void {
    const { response, keepAliveMs, looker } = this.#passing;
    const events = new Events(looker);
    this.#events = events;
    this.#mode = "events";
    const early = EarlyStream.of(response);
    if (early) early.hush();
    else {
      response.writeHead(this.#passing.statusOf(this.#status), STREAM_HEADERS);
      // There are proxies that hold back an answer until they see something of its body.
      response.write(OPENING);
    }
    this.#alive = setInterval(() => {
      if (events.isBetween) response.write(PING);
    }, keepAliveMs);
  }

  #passEvents(controller: Dispatcher.DispatchController, events: Events, chunk: Buffer): void {
    let out: readonly Buffer[];
    try {
      out = events.take(chunk);
    } catch (error) {
      return void this.#fail(failureOf(error), "tell");
    }
    if (this.#passing.times === null && events.isBetween) this.#bytes = events.heldBytes;
    this.#write(controller, out);
  }

  #collect(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#chunks.push(chunk);
    const { isCollected, looker, response } = this.#passing;
    if (this.#bytes <= this.#nextLook) return;
    this.#nextLook = Math.min(this.#bytes * 2, COLLECTED_BYTES_MAX);
    const mayFlow = isCollected || this.#status >= 300 ? null : looker.mayFlow(Buffer.concat(this.#chunks));
    if (mayFlow === true) {
      this.#mode = "flowing";
      const early = EarlyStream.of(response);
      if (early) early.begin();
      else response.writeHead(this.#status, { "content-type": "application/json" });
      this.#write(
        controller,
        this.#chunks.splice(0).map((piece) => (early ? onOneLine(piece) : piece)),
      );
    } else if (this.#bytes > COLLECTED_BYTES_MAX) this.#fail(tooLong(COLLECTED_BYTES_MAX), "throw");
  }

  #answerWhole(): void {
    const { response, looker, statusOf } = this.#passing;
    const whole = this.#chunks.length === 1 && this.#chunks[0] ? this.#chunks[0] : Buffer.concat(this.#chunks);
    if (this.#status >= 400 && !isErrorMessage(whole)) return void this.#fail(noMessage(this.#status), "throw");
    let look: ReturnType<Looker["look"]>;
    try {
      look = looker.look(whole);
    } catch (error) {
      return void this.#fail(failureOf(error), "throw");
    }
    if (look === "drop") return void this.#fail(noMessage(this.#status), "throw");
    const text = look === "pass" ? whole : look.put;
    const headers: OutgoingHttpHeaders = { "content-type": "application/json", "content-length": text.length };
    this.#done("answered", () => {
      const early = EarlyStream.of(response);
      if (early) return early.end(text);
      response.writeHead(statusOf(this.#status), headers);
      // As one string of bytes, head and body leave in one write.
      if (text.length <= ONE_WRITE_BYTES_MAX) response.end(text.toString("latin1"), "latin1");
      else response.end(text);
    });
  }

  /** R1 */
  #write(controller: Dispatcher.DispatchController, pieces: readonly Buffer[]): void {
    const { response } = this.#passing;
    let hasRoom = true;
    for (const piece of pieces) hasRoom = response.write(piece);
    if (hasRoom || this.#slow) return;
    controller.pause();
    this.#slow = setTimeout(() => response.destroy(), SLOW_MS);
    response.once("drain", () => {
      if (this.#slow) clearTimeout(this.#slow);
      this.#slow = null;
      if (!this.#isOver) controller.resume();
    });
  }

  /** R4. `tell`: in words wherever words can be said; `break`: a client that can come back is left to do so. */
  #fail(error: RpcError, how: "throw" | "tell" | "break"): void {
    if (this.#isOver) return;
    const { response, id } = this.#passing;
    if (!response.headersSent || (EarlyStream.of(response) && this.#mode !== "events" && this.#mode !== "flowing")) {
      this.#finish();
      return void this.#reject(error);
    }
    const canComeBack = how === "break" && this.#events?.hasIds === true;
    if (this.#events?.isBetween !== true || id === null || canComeBack) return void this.#done("answered", () => response.destroy());
    this.#done("answered", () => response.end(`event: message\ndata: ${JSON.stringify(errorMessage(id, error))}\n\n`));
  }

  #done(passed: Passed, then: () => void): void {
    if (this.#isOver) return;
    this.#finish();
    then();
    this.#resolve(passed);
  }

  #finish(): void {
    this.#isOver = true;
    silence.leave(this);
    if (this.#slow) clearTimeout(this.#slow);
    if (this.#alive) clearInterval(this.#alive);
    if (this.#opening) EarlyStream.waitNoMore(this.#opening);
    const { response, stopped, times } = this.#passing;
    response.off("close", this.#onClose);
    if (times === null) stopped.removeEventListener("abort", this.#onStop);
    if (!this.#hasEnded) this.#controller?.abort(new Error("given up"));
  }
}

const essenceOf = (type: string): string => (/^[^;]*/.exec(type)?.[0] ?? "").trim().toLowerCase();

function isErrorMessage(text: Buffer): boolean {
  try {
    const message: unknown = JSON.parse(text.toString("utf8"));
    return typeof message === "object" && message !== null && "jsonrpc" in message && "error" in message;
  } catch {
    return false;
  }
}
