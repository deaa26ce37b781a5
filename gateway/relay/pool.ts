// The connections to hands: kept alive, one pool for the world and one for programs of this installation.
//
//   P1  Only what the guard of addresses lets through is connected to (hands/address.ts A1–A3). Our own programs are not held against it.
//   P2  No redirect is followed.
//   P3  No time limit of the pool's own: whoever asks has limits, and a silent stream is no error by itself.

import type { IncomingHttpHeaders } from "node:http";
import { Readable } from "node:stream";
import { Agent, type Dispatcher } from "undici";
import { guardedConnector, refusedUrl, Unreachable } from "../../hands/address.ts";
import { failureOf, refusedByVault, timedOut, tooLong } from "./failure.ts";
import { ANSWER_BYTES_MAX, CONNECTIONS_MAX } from "./limits.ts";
import type { Address, Times, UpstreamAnswer, UpstreamRequest } from "./upstream.ts";

const LIMITS = { connections: CONNECTIONS_MAX, headersTimeout: 0, bodyTimeout: 0 } as const;

export class Pool {
  readonly #world: Agent;
  readonly #own: Agent;

  constructor(internalHosts: readonly string[], connectMs: number) {
    this.#world = new Agent({ ...LIMITS, connect: guardedConnector(internalHosts, connectMs) });
    this.#own = new Agent({ ...LIMITS, connect: { timeout: connectMs } });
  }

  dispatch(address: Address, { method, headers, body }: Omit<UpstreamRequest, "signal">, handler: Dispatcher.DispatchHandler): void {
    const { wrong, origin, path } = placeIn(address.url);
    if (wrong !== null) throw new Unreachable(wrong);
    const options = { origin, path, method, headers: { ...headers, ...address.headers }, body };
    (address.isOwn ? this.#own : this.#world).dispatch(options, handler);
  }

  /** For what is read here and not passed on. The limits end its headers; its body is the reader's to end. */
  send(address: Address, times: Pick<Times, "idleMs">, request: UpstreamRequest): Promise<UpstreamAnswer> {
    return new Promise((resolve, reject) => {
      if (request.signal.aborted) return reject(request.signal.reason);
      const begun = (given: UpstreamAnswer) => {
        const refused = refusedByVault(address, given.headers);
        if (!refused) return resolve(given);
        given.body.on("error", () => {}).destroy();
        reject(refused);
      };
      const answer = new Answer(request.signal, times.idleMs, begun, (error) => reject(failureOf(error)));
      try {
        this.dispatch(address, request, answer);
      } catch (error) {
        answer.onResponseError(null, error);
      }
    });
  }

  /** Takes nothing new; what is under way has `graceMs`. */
  async close(graceMs: number): Promise<void> {
    const cut = setTimeout(() => void Promise.all([this.#world.destroy(), this.#own.destroy()]), graceMs);
    await Promise.all([this.#world.close(), this.#own.close()]);
    clearTimeout(cut);
  }
}

interface Place {
  readonly wrong: string | null;
  readonly origin: string;
  readonly path: string;
}

const places = new WeakMap<URL, Place>();

/** What a URL says, read once. */
function placeIn(url: URL): Place {
  const known = places.get(url);
  if (known) return known;
  const place = { wrong: refusedUrl(url), origin: url.origin, path: url.pathname + url.search };
  places.set(url, place);
  return place;
}

class Answer implements Dispatcher.DispatchHandler {
  readonly #signal: AbortSignal;
  readonly #resolve: (answer: UpstreamAnswer) => void;
  readonly #reject: (error: unknown) => void;
  readonly #timer: NodeJS.Timeout;
  readonly #abort: () => void;
  #controller: Dispatcher.DispatchController | null = null;
  #body: Readable | null = null;
  #bytes = 0;
  #isOver = false;

  constructor(signal: AbortSignal, idleMs: number, resolve: (answer: UpstreamAnswer) => void, reject: (error: unknown) => void) {
    this.#signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#timer = setTimeout(() => this.#stop(timedOut("did not answer", idleMs)), idleMs);
    this.#abort = () => this.#stop(signal.reason instanceof Error ? signal.reason : new Error("aborted"));
    signal.addEventListener("abort", this.#abort, { once: true });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#isOver) controller.abort(new Error("given up"));
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (status < 200) return;
    clearTimeout(this.#timer);
    this.#body = new Readable({
      read: () => controller.resume(),
      destroy: (error, done) => {
        if (!this.#isOver) controller.abort(error ?? new Error("given up"));
        this.#settle();
        done(error);
      },
    });
    this.#resolve({ status, headers, body: this.#body });
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#bytes > ANSWER_BYTES_MAX) return void this.#stop(tooLong(ANSWER_BYTES_MAX));
    if (this.#body?.push(chunk) === false) controller.pause();
  }

  onResponseEnd(): void {
    this.#settle();
    this.#body?.push(null);
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: unknown): void {
    this.#settle();
    if (this.#body) this.#body.destroy(failureOf(error));
    else this.#reject(error);
  }

  #stop(error: Error): void {
    if (this.#isOver) return;
    this.#settle();
    this.#controller?.abort(error);
    if (this.#body) this.#body.destroy(error);
    else this.#reject(error);
  }

  #settle(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#signal.removeEventListener("abort", this.#abort);
  }
}
