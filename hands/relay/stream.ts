// What a client is sent over one stream of server-sent events, kept for a while for a client whose connection broke.
//
//   E1  Each message has an id; the newest EVENTS_MAX of a stream, at most BYTES_MAX of them, can be had again from any of their ids on.
//   E2  A client that reads too slowly is cut off. It loses nothing but what E1 lets go.

import type { ServerResponse } from "node:http";

const EVENTS_MAX = 512;
const BYTES_MAX = 8 * 1024 * 1024;
const UNREAD_BYTES_MAX = 80 * 1024 * 1024;
const KEEP_ALIVE_MS = 15_000;

interface Event {
  readonly n: number;
  readonly text: string;
}

export class EventStream {
  readonly id: string;
  readonly #kept: Event[] = [];
  #bytes = 0;
  #count = 0;
  #isOver = false;
  #out: ServerResponse | null = null;
  #leftAt: number | null = null;
  #timer: NodeJS.Timeout | undefined;

  constructor(id: string) {
    this.id = id;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Is somebody reading? */
  get isHeard(): boolean {
    return this.#out !== null;
  }

  /** Since when nobody reads any more; null: somebody does, or nobody ever did. */
  get leftAt(): number | null {
    return this.#leftAt;
  }

  /** Goes on with this connection after the event `after`; one before it ends. E1 */
  attach(response: ServerResponse, after: number, isPrimed: boolean): void {
    this.#leave();
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache, no-transform" });
    response.write(isPrimed ? `id: ${this.id}.${after}\ndata: \n\n` : ": open\n\n");
    for (const { n, text } of this.#kept) if (n > after) this.#write(response, n, text);
    if (this.#isOver) return void response.end();
    this.#out = response;
    this.#leftAt = null;
    this.#timer = setInterval(() => response.write(": ping\n\n"), KEEP_ALIVE_MS);
    response.once("close", () => {
      if (this.#out !== response) return;
      this.#leave();
      this.#leftAt = Date.now();
    });
  }

  send(text: string): void {
    this.#count += 1;
    this.#kept.push({ n: this.#count, text });
    this.#bytes += text.length;
    while (this.#kept.length > 1 && (this.#kept.length > EVENTS_MAX || this.#bytes > BYTES_MAX)) this.#bytes -= this.#kept.shift()?.text.length ?? 0;
    if (this.#out) this.#write(this.#out, this.#count, text);
    // E2
    if (this.#out && this.#out.writableLength > UNREAD_BYTES_MAX) this.#out.destroy();
  }

  end(): void {
    this.#isOver = true;
    this.#leave();
  }

  #write(response: ServerResponse, n: number, text: string): void {
    response.write(`id: ${this.id}.${n}\nevent: message\ndata: ${text}\n\n`);
  }

  #leave(): void {
    clearInterval(this.#timer);
    this.#out?.end();
    this.#out = null;
  }
}
