// Server-sent events on one response.
//
//   E1  Headers and a first comment leave at once, then a comment every `keepAliveMs`: proxies keep the stream open, and pass it on unbuffered.
//   E2  A reader whose buffer stays over BUFFER_BYTES_MAX for SLOW_MS is cut off.

import type { ServerResponse } from "node:http";

/** E1 */
export const STREAM_HEADERS = { "content-type": "text/event-stream", "cache-control": "no-cache, no-transform", "x-accel-buffering": "no" } as const;
export const OPENING = ": open\n\n";
export const PING = ": ping\n\n";

const BUFFER_BYTES_MAX = 4 * 1024 * 1024;
const SLOW_MS = 10_000;

export class SseResponse {
  readonly #response: ServerResponse;
  readonly #timer: NodeJS.Timeout;
  readonly #gone: (() => void)[] = [];
  #isOver = false;

  constructor(response: ServerResponse, keepAliveMs: number, headers: Readonly<Record<string, string>> = {}) {
    this.#response = response;
    response.writeHead(200, { ...STREAM_HEADERS, ...headers });
    response.write(OPENING);
    this.#timer = setInterval(() => this.#write(PING), keepAliveMs);
    response.once("close", () => this.#over());
  }

  get isOpen(): boolean {
    return !this.#isOver;
  }

  onClose(then: () => void): void {
    if (this.#isOver) then();
    else this.#gone.push(then);
  }

  /** An event with a place but nothing in it: where a client resumes that got no further. */
  prime(id: string): void {
    this.#write(`id: ${id}\ndata: \n\n`);
  }

  /** Resolves when there is room for the next one, or nobody to read it. E2 */
  async message(text: string, id: string | null): Promise<void> {
    this.#write(`${id === null ? "" : `id: ${id}\n`}event: message\ndata: ${text}\n\n`);
    if (this.#response.writableLength > BUFFER_BYTES_MAX) await this.#drained();
  }

  end(): void {
    if (this.#isOver) return;
    this.#response.end();
    this.#over();
  }

  #over(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearInterval(this.#timer);
    for (const then of this.#gone.splice(0)) then();
  }

  #write(text: string): void {
    if (!this.#isOver && !this.#response.destroyed) this.#response.write(text);
  }

  #drained(): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#response.off("drain", done).off("close", done);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#response.destroy();
        done();
      }, SLOW_MS);
      this.#response.once("drain", done).once("close", done);
    });
  }
}
