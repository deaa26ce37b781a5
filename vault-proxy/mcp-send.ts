// A request to an MCP server, and the head of its answer.
//
//   W1  An answer that says that it is short comes whole; any other comes as it comes, and no faster than it is read.
//   W2  The signal ends the request, and with it its answer.

import type { IncomingHttpHeaders } from "node:http";
import { Readable } from "node:stream";
import type { Dispatcher } from "undici";

const SHORT_BYTES_MAX = 65_536;

export interface ServerAnswer {
  readonly statusCode: number;
  readonly headers: IncomingHttpHeaders;
  /** A stream is to be read to its end or destroyed. */
  readonly body: Buffer | Readable;
}

/** Throws what kept an answer from coming; where it breaks off later, its body says so. */
export function send(agent: Dispatcher, request: Dispatcher.DispatchOptions, signal: AbortSignal): Promise<ServerAnswer> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const sending = new Sending(signal, resolve, reject);
    try {
      agent.dispatch(request, sending);
    } catch (error) {
      sending.onResponseError(null, error);
    }
  });
}

class Sending implements Dispatcher.DispatchHandler {
  readonly #signal: AbortSignal;
  readonly #resolve: (answer: ServerAnswer) => void;
  readonly #reject: (error: unknown) => void;
  #controller: Dispatcher.DispatchController | null = null;
  #head: Omit<ServerAnswer, "body"> | null = null;
  /** Null: it does not come whole. */
  #pieces: Buffer[] | null = null;
  #body: Readable | null = null;
  #isOver = false;

  constructor(signal: AbortSignal, resolve: (answer: ServerAnswer) => void, reject: (error: unknown) => void) {
    this.#signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
    signal.addEventListener("abort", this.#onAbort, { once: true });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#isOver) controller.abort(new Error("given up"));
  }

  onResponseStart(controller: Dispatcher.DispatchController, statusCode: number, headers: IncomingHttpHeaders): void {
    if (statusCode < 200 || this.#isOver) return;
    this.#head = { statusCode, headers };
    if (Number(headers["content-length"] ?? Number.NaN) <= SHORT_BYTES_MAX) {
      this.#pieces = [];
      return;
    }
    const body = new Readable({
      read: () => controller.resume(),
      destroy: (error, done) => {
        if (!this.#isOver) controller.abort(error ?? new Error("given up"));
        this.#settle();
        done(error);
      },
    });
    // What breaks off while nobody reads is told to whoever reads; without a listener it would be nobody's error.
    body.on("error", () => {});
    this.#body = body;
    this.#resolve({ statusCode, headers, body });
  }

  onResponseData(controller: Dispatcher.DispatchController, piece: Buffer): void {
    if (this.#pieces) this.#pieces.push(piece);
    else if (this.#body?.push(piece) === false) controller.pause();
  }

  onResponseEnd(): void {
    this.#settle();
    this.#body?.push(null);
    const [first, second] = this.#pieces ?? [];
    if (this.#head && this.#pieces) this.#resolve({ ...this.#head, body: first && !second ? first : Buffer.concat(this.#pieces) });
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: unknown): void {
    if (!this.#isOver) this.#stop(error);
  }

  readonly #onAbort = (): void => {
    if (this.#isOver) return;
    this.#stop(this.#signal.reason);
    this.#controller?.abort(new Error("given up"));
  };

  #stop(error: unknown): void {
    this.#settle();
    if (this.#body) this.#body.destroy(error instanceof Error ? error : new Error("it broke off"));
    else this.#reject(error);
  }

  #settle(): void {
    this.#isOver = true;
    this.#signal.removeEventListener("abort", this.#onAbort);
  }
}
