// The beginning of an answer whose hand takes its time. Whatever stands between cuts a connection on which nothing passes (twenty seconds are usual), so
// the client is given a stream, and in it what the hand says in the end, whether the hand says it as a stream or not.
//
//   Y1  It begins after a while without an answer, where the client takes streams; until then an answer keeps its own form and its status.
//   Y2  It says that it is there until somebody else writes to it.

import type { ServerResponse } from "node:http";
import { OPENING, PING, STREAM_HEADERS } from "../mcp/sse.ts";
import { Silence, type Watched } from "./silence.ts";

const REQUEST_AFTER_MS = 1_000;
/** A hand without a listening stream says so, if slowly: its client then need not come back for one. */
const LISTENING_AFTER_MS = 5_000;

const EVENT = "event: message\ndata: ";
const [LF, CR, SPACE] = [10, 13, 32];

const silence = new Silence();

/** How a failure is told where a stream was begun already. */
const tellers = new WeakMap<ServerResponse, (message: object) => void>();
export const tellsFailure = (response: ServerResponse, tell: (message: object) => void): void => void tellers.set(response, tell);

/** False: words can't be said any more. Null: nobody asked for any. */
export function tellFailure(response: ServerResponse, message: object | null): boolean {
  const tell = tellers.get(response);
  if (!tell || response.destroyed || response.writableEnded) return false;
  if (message === null) response.end();
  else tell(message);
  return true;
}

export class EarlyStream {
  static readonly #all = new WeakMap<ServerResponse, EarlyStream>();
  readonly #response: ServerResponse;
  readonly #alive: NodeJS.Timeout;

  private constructor(response: ServerResponse, keepAliveMs: number) {
    this.#response = response;
    response.writeHead(200, STREAM_HEADERS);
    response.write(OPENING);
    this.#alive = setInterval(() => this.#ping(), keepAliveMs);
    response.once("close", () => this.hush());
    tellsFailure(response, (message) => this.end(JSON.stringify(message)));
  }

  static of(response: ServerResponse): EarlyStream | null {
    return EarlyStream.#all.get(response) ?? null;
  }

  /** Begins one when it is time, unless an answer began. Y1 */
  static wait(response: ServerResponse, { isListening, keepAliveMs }: { readonly isListening: boolean; readonly keepAliveMs: number }): Watched {
    const begin = () => {
      if (response.headersSent || response.destroyed || !String(response.req.headers.accept).includes("text/event-stream")) return;
      EarlyStream.#all.set(response, new EarlyStream(response, keepAliveMs));
    };
    const waiting = { silentUntil: performance.now() + (isListening ? LISTENING_AFTER_MS : REQUEST_AFTER_MS), onSilence: begin };
    silence.watch(waiting);
    return waiting;
  }

  static waitNoMore(waiting: Watched): void {
    silence.leave(waiting);
  }

  /** What was ended may lie here for long before it leaves, and so before it is closed; a write after the end would be an error that nobody hears. */
  #ping(): void {
    if (this.#response.writableEnded) this.hush();
    else this.#response.write(PING);
  }

  /** From here on the caller writes. Y2 */
  hush(): void {
    clearInterval(this.#alive);
  }

  /** One message that comes in pieces: their end is `end(null)`. */
  begin(): void {
    this.hush();
    this.#response.write(EVENT);
  }

  /** The whole of a message, or null: the end of what was begun. */
  end(message: Buffer | string | null): void {
    this.hush();
    if (message === null) return void this.#response.end("\n\n");
    this.#response.write(EVENT);
    this.#response.write(onOneLine(Buffer.from(message)));
    this.#response.end("\n\n");
  }
}

/** JSON has line breaks between its parts only, where a space is as good; in an event each would begin another line. */
export function onOneLine(json: Buffer): Buffer {
  if (!json.includes(LF) && !json.includes(CR)) return json;
  return Buffer.from(json.map((byte) => (byte === LF || byte === CR ? SPACE : byte)));
}
