// The answer to one POST: JSON when the result comes first and soon, a stream otherwise.

import type { ServerResponse } from "node:http";
import type { EventStream } from "./stream.ts";

/** After it a client is shown that its request is under way. */
const STREAM_AFTER_MS = 1_000;

export class Reply {
  readonly stream: EventStream;
  readonly #response: ServerResponse;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #isPrimed: boolean;
  readonly #timer: NodeJS.Timeout;
  #isStreaming = false;

  constructor(
    response: ServerResponse,
    stream: EventStream,
    options: { readonly isPrimed: boolean; readonly headers?: Readonly<Record<string, string>> },
  ) {
    this.stream = stream;
    this.#response = response;
    this.#headers = options.headers ?? {};
    this.#isPrimed = options.isPrimed;
    this.#timer = setTimeout(() => this.#begin(), STREAM_AFTER_MS).unref();
  }

  /** A message before the last one. */
  send(message: object): void {
    this.#begin();
    this.stream.send(JSON.stringify(message));
  }

  end(message: object, status = 200): void {
    clearTimeout(this.#timer);
    const text = JSON.stringify(message);
    if (!this.#isStreaming && !this.#response.destroyed) {
      this.#response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text), ...this.#headers });
      this.#response.end(text);
      this.stream.end();
      return;
    }
    this.stream.send(text);
    this.stream.end();
  }

  /** Called off: there is no answer. */
  drop(): void {
    this.#begin();
    this.stream.end();
  }

  #begin(): void {
    clearTimeout(this.#timer);
    if (this.#isStreaming) return;
    this.#isStreaming = true;
    if (this.#response.destroyed) return;
    for (const [name, value] of Object.entries(this.#headers)) this.#response.setHeader(name, value);
    this.stream.attach(this.#response, 0, this.#isPrimed);
  }
}
