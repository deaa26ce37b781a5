// One request to the model and its answer, on their way through.
//
//   E1  A caller that leaves ends the request upstream at once, and an answer that breaks off upstream breaks off for the caller too.
//   E2  Bodies flow as they come, with back-pressure. One that has to be read is held whole, within the limit of one body and of all together.
//   E3  An exchange can be cut from outside, when its grant is revoked.

import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Transform } from "node:stream";
import type { Dispatcher } from "undici";
import { type RefusalCode, refuse } from "../answer.ts";
import { answerHeaders } from "../inject.ts";
import type { ModelKey } from "../model-key.ts";
import { EventFrames } from "./event-frames.ts";
import { UsageReader, type Used } from "./usage.ts";

/** No answer takes longer, however steadily it trickles. */
const REQUEST_MS_MAX = 3_600_000;
/** In our log only: nobody was there to be answered. */
const CALLER_LEFT = 499;
/** Bytes of bodies that are held at a time, of all requests. E2 */
const HELD_BYTES_MAX = 256 * 1024 * 1024;

let heldBytes = 0;

/** One request and its answer, on their way. */
export class Exchange {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  status = 0;
  /** Why it did not end well; "" if it did. */
  reason = "";
  bytesIn = 0;
  bytesOut = 0;
  readonly #bytesMax: number;
  readonly #abort = new AbortController();
  readonly #deadline: NodeJS.Timeout;
  #isTooLarge = false;
  #held = 0;

  constructor(req: IncomingMessage, res: ServerResponse, bytesMax: number) {
    this.req = req;
    this.res = res;
    this.#bytesMax = bytesMax;
    this.#deadline = setTimeout(() => res.destroy(), REQUEST_MS_MAX);
    this.#deadline.unref();
    res.once("close", this.#onClose);
    // A write that loses the race against a caller's leaving is told twice, here and by the abort; the abort is the one that counts.
    res.on("error", () => {});
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  isDeclaredTooLarge(): boolean {
    return Number(this.req.headers["content-length"] ?? 0) > this.#bytesMax;
  }

  /** The request's body. A stated length is held by the HTTP parser; without one the bytes are counted as they pass. */
  body(): IncomingMessage | Transform {
    const length = this.req.headers["content-length"];
    if (length !== undefined) {
      this.bytesIn = Number(length);
      return this.req;
    }
    const counted = new Transform({
      transform: (piece: Buffer, _encoding, next) => {
        this.bytesIn += piece.length;
        this.#isTooLarge = this.bytesIn > this.#bytesMax;
        next(this.#isTooLarge ? new Error("too large") : null, piece);
      },
    });
    this.req.once("error", (error) => counted.destroy(error));
    return this.req.pipe(counted);
  }

  /** The request's whole body; null: too many bytes are held already. Rejects when the caller leaves or sends too much. E2 */
  async whole(): Promise<Buffer | null> {
    const pieces: Buffer[] = [];
    let bytes = 0;
    // A refusal in the middle of it must still find its way back.
    for await (const piece of this.body().iterator({ destroyOnReturn: false })) {
      const chunk = Buffer.from(piece);
      if (heldBytes + chunk.length > HELD_BYTES_MAX) return null;
      heldBytes += chunk.length;
      this.#held += chunk.length;
      bytes += chunk.length;
      pieces.push(chunk);
    }
    return Buffer.concat(pieces, bytes);
  }

  /** Nothing more goes either way. E3 */
  cut(reason: string): void {
    this.reason = reason;
    this.#abort.abort(new Error("The exchange was cut."));
    this.res.destroy();
  }

  /** Which refusal a failed request comes to. */
  failed(error: unknown): RefusalCode {
    if (this.#isTooLarge) return "too_large";
    const code = codeOf(error);
    if (this.reason === "") this.reason = this.#abort.signal.aborted ? "caller_left" : code;
    return code === "UND_ERR_HEADERS_TIMEOUT" || code === "UND_ERR_CONNECT_TIMEOUT" ? "model_silent" : "model_unreachable";
  }

  drop(upstream: Dispatcher.ResponseData, code: RefusalCode): RefusalCode {
    upstream.body.destroy();
    this.reason = code;
    return code;
  }

  /** Passes the answer on as it comes, masked; gives what it says that it took. E1 E2 */
  async pass(upstream: Dispatcher.ResponseData, key: ModelKey, isFramed: boolean): Promise<Used> {
    this.status = upstream.statusCode;
    const masked = key.scrubber.body();
    const headers = answerHeaders(upstream.headers, key);
    if (isFramed) {
      headers["content-type"] = "text/event-stream; charset=utf-8";
      delete headers["content-length"];
    }
    const frames = isFramed ? new EventFrames() : null;
    const usage = new UsageReader(typeof headers["content-type"] === "string" ? headers["content-type"] : undefined);
    try {
      this.res.writeHead(upstream.statusCode, headers);
      for await (const piece of upstream.body) {
        const bytes = frames === null ? piece : frames.push(piece);
        usage.push(bytes);
        await this.#write(masked.push(bytes));
      }
      frames?.end();
      usage.end();
      await this.#write(masked.end());
      this.res.end();
    } catch (error) {
      if (this.reason === "") this.reason = this.#abort.signal.aborted ? "caller_left" : codeOf(error);
      this.res.destroy();
    }
    return usage.used;
  }

  refuse(code: RefusalCode): void {
    this.status = this.#abort.signal.aborted ? CALLER_LEFT : refuse(this.res, code);
    if (this.reason === "") this.reason = code;
  }

  done(): void {
    clearTimeout(this.#deadline);
    heldBytes -= this.#held;
    this.#held = 0;
  }

  async #write(piece: Buffer): Promise<void> {
    if (piece.length === 0) return;
    this.bytesOut += piece.length;
    if (!this.res.write(piece)) await once(this.res, "drain", { signal: this.#abort.signal });
  }

  readonly #onClose = (): void => {
    if (!this.res.writableFinished) this.#abort.abort(new Error("The caller left."));
  };
}

function codeOf(error: unknown): string {
  if (error instanceof Error && "code" in error && typeof error.code === "string") return error.code;
  return error instanceof Error ? error.name : "unknown";
}
