// A request to an MCP server, and the head of its answer.
//
//   W1  An answer that came with its head, or says that it is short, is given whole; any other as it comes, and no faster than it is read.
//   W2  A cut ends the request, and with it its answer.

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

/** What may end a request before its end. */
export interface Cut {
  readonly cutBy: Error | null;
  onCut(hear: (why: Error) => void): () => void;
}

/** Throws what kept an answer from coming; where it breaks off later, its body says so. */
export function send(agent: Dispatcher, request: Dispatcher.DispatchOptions, cut: Cut): Promise<ServerAnswer> {
  return new Promise((resolve, reject) => {
    if (cut.cutBy !== null) return reject(cut.cutBy);
    const sending = new Sending(cut, resolve, reject);
    try {
      agent.dispatch(request, sending);
    } catch (error) {
      sending.onResponseError(null, error);
    }
  });
}

class Sending implements Dispatcher.DispatchHandler {
  readonly #noMore: () => void;
  readonly #resolve: (answer: ServerAnswer) => void;
  readonly #reject: (error: unknown) => void;
  #controller: Dispatcher.DispatchController | null = null;
  #head: Omit<ServerAnswer, "body"> | null = null;
  /** Null: it does not come whole. */
  #pieces: Buffer[] | null = null;
  #body: Readable | null = null;
  #isOver = false;

  constructor(cut: Cut, resolve: (answer: ServerAnswer) => void, reject: (error: unknown) => void) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#noMore = cut.onCut((why) => {
      if (this.#isOver) return;
      this.#stop(why);
      this.#controller?.abort(new Error("given up"));
    });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#isOver) controller.abort(new Error("given up"));
  }

  onResponseStart(controller: Dispatcher.DispatchController, statusCode: number, headers: IncomingHttpHeaders): void {
    if (statusCode < 200 || this.#isOver) return;
    const head = { statusCode, headers };
    this.#head = head;
    this.#pieces = [];
    if (Number(headers["content-length"] ?? Number.NaN) <= SHORT_BYTES_MAX) return;
    // What came with the head is read before this is.
    process.nextTick(() => {
      if (!this.#isOver) this.#flow(controller, head);
    });
  }

  #flow(controller: Dispatcher.DispatchController, head: Omit<ServerAnswer, "body">): void {
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
    for (const piece of this.#pieces ?? []) if (!body.push(piece)) controller.pause();
    this.#pieces = null;
    this.#resolve({ ...head, body });
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

  #stop(error: unknown): void {
    this.#settle();
    if (this.#body) this.#body.destroy(error instanceof Error ? error : new Error("it broke off"));
    else this.#reject(error);
  }

  #settle(): void {
    this.#isOver = true;
    this.#noMore();
  }
}
