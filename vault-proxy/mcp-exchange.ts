// One request to an MCP server and its answer, on their way through the proxy.
//
//   X1  Bodies flow both ways as they come, with back-pressure. An answer that is packed in spite of what was asked for is unpacked, so that the mask
//       sees what it must hide.
//   X2  A caller that leaves ends the request at the server; an answer that breaks off there breaks off here.
//   X3  An exchange can be cut from outside: when its grant is revoked, when its credential is gone.

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import { type RefusalCode, refuse } from "./answer.ts";
import { Unreachable } from "./guard.ts";
import { isEncoded, mcpAnswerHeaders } from "./inject.ts";
import type { Mask } from "./masks.ts";
import type { ServerAnswer } from "./mcp-send.ts";
import { Replay, TooLarge } from "./replay.ts";

/** As long as the longest call that an operator can allow; a listening stream is opened again after it. */
const EXCHANGE_MS_MAX = 86_400_000;
const ONE_WRITE_BYTES_MAX = 16_384;
const CALLER_LEFT = 499;
/** Nothing of the request got to the server. */
const UNSENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);

export class McpExchange {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  readonly body: Replay;
  status = 0;
  /** Why it did not end well; "" if it did. */
  reason = "";
  bytesOut = 0;
  /** Why it is over before its end; null: it is not. */
  cutBy: Error | null = null;
  readonly #hearers = new Set<(why: Error) => void>();
  readonly #deadline: NodeJS.Timeout;

  constructor(req: IncomingMessage, res: ServerResponse, bytesMax: number) {
    this.req = req;
    this.res = res;
    this.body = new Replay(req, bytesMax, true);
    this.#deadline = setTimeout(() => this.cut("took_too_long"), EXCHANGE_MS_MAX);
    this.#deadline.unref();
    res.once("close", this.#onClose);
    // A write that loses the race against a caller's leaving is told twice, here and by the abort; the abort is the one that counts.
    res.on("error", () => {});
  }

  /** Hears of a cut, until what this gives is called. X2 X3 */
  onCut(hear: (why: Error) => void): () => void {
    this.#hearers.add(hear);
    return () => void this.#hearers.delete(hear);
  }

  /** X3 */
  cut(reason: string): void {
    this.reason = reason;
    this.#cut(new Error("The exchange was cut."));
    this.res.destroy();
  }

  /** Which refusal a failed request comes to. */
  failed(error: unknown): RefusalCode {
    let code = "unknown";
    for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth += 1) {
      if (at instanceof TooLarge) return "too_large";
      if (at instanceof Unreachable) {
        this.#note(`refused_${at.reason}`);
        return at.reason === "network" || at.reason === "time" ? "server_unreachable" : "server_refused";
      }
      if ("code" in at && typeof at.code === "string") code = at.code;
      else if (code === "unknown") code = at.name;
    }
    this.#note(code);
    return UNSENT.has(code) || /^(?:ERR_TLS|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO)/.test(code) ? "server_unreachable" : "server_broke";
  }

  /** Passes the answer on as it comes, masked. X1 X2 */
  async pass(answer: ServerAnswer, mask: Mask): Promise<RefusalCode | null> {
    if (Buffer.isBuffer(answer.body) && !isEncoded(answer.headers)) {
      this.#passWhole(answer, mask.whole(answer.body), mask);
      return null;
    }
    const given = Buffer.isBuffer(answer.body) ? Readable.from([answer.body]) : answer.body;
    const body = unpacked(answer.headers, given);
    if (body === null) {
      given.destroy();
      this.#note("server_encodes");
      return "server_encodes";
    }
    this.status = answer.statusCode;
    const masked = mask.body();
    try {
      this.res.writeHead(answer.statusCode, mcpAnswerHeaders(answer.headers, mask.header));
      // A stream that says nothing yet is open all the same.
      this.res.flushHeaders();
      for await (const piece of body) await this.#write(masked.push(piece));
      await this.#write(masked.end());
      this.res.end();
    } catch (error) {
      this.#note(error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "broken");
      given.destroy();
      this.res.destroy();
    }
    return null;
  }

  /** Head and body leave in one write. */
  #passWhole({ statusCode, headers }: ServerAnswer, bytes: Buffer, mask: Mask): void {
    this.status = statusCode;
    this.bytesOut += bytes.length;
    this.res.writeHead(statusCode, mcpAnswerHeaders(headers, mask.header));
    if (bytes.length <= ONE_WRITE_BYTES_MAX) this.res.end(bytes.toString("latin1"), "latin1");
    else this.res.end(bytes);
  }

  refuse(code: RefusalCode): void {
    this.#note(code);
    if (this.cutBy !== null) {
      this.status = CALLER_LEFT;
      this.res.destroy();
      return;
    }
    // What is still to come of the body would be taken for the next request.
    if (!this.req.complete && !this.res.headersSent) this.res.setHeader("connection", "close");
    this.status = refuse(this.res, code);
  }

  done(): void {
    clearTimeout(this.#deadline);
    this.body.forget();
    if (!this.req.readableEnded) this.req.resume();
  }

  #note(reason: string): void {
    if (this.reason === "") this.reason = this.cutBy !== null ? "caller_left" : reason;
  }

  async #write(piece: Buffer): Promise<void> {
    if (piece.length === 0) return;
    this.bytesOut += piece.length;
    if (!this.res.write(piece)) await this.#drained();
  }

  readonly #onClose = (): void => {
    if (!this.res.writableFinished) this.#cut(new Error("The caller left."));
  };

  #cut(why: Error): void {
    if (this.cutBy !== null) return;
    this.cutBy = why;
    for (const hear of this.#hearers) hear(why);
  }

  #drained(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.cutBy !== null) return reject(this.cutBy);
      const off = this.onCut(reject);
      this.res.once("drain", () => {
        off();
        resolve();
      });
    });
  }
}

/** The body without its packing; null: it is packed in a way that was not asked for and that nothing here opens. X1 */
function unpacked(headers: IncomingHttpHeaders, body: Readable): AsyncIterable<Buffer> | null {
  if (!isEncoded(headers)) return body;
  const open = { gzip: createGunzip, "x-gzip": createGunzip, deflate: createInflate, br: createBrotliDecompress }[
    String(headers["content-encoding"]).trim().toLowerCase()
  ];
  if (open === undefined) return null;
  // What comes is given on at once, not when a block of it is full.
  const opened = open === createBrotliDecompress ? open() : (open as typeof createGunzip)({ flush: 2, finishFlush: 2 });
  body.once("error", (error) => opened.destroy(error));
  opened.once("close", () => body.destroy());
  return body.pipe(opened);
}
