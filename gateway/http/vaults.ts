// `/v1/vaults…`: let in here, answered by the vault proxy, and passed on as bytes in both directions (G1–G3 of vault-proxy.ts).

import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { PassThrough } from "node:stream";
import type { Request, RequestHandler } from "express";
import type { Dispatcher } from "undici";
import { Refusal } from "../../session-store/refusal.ts";
import type { Asking, VaultProxy } from "../vault-proxy.ts";

/** The vault proxy takes no longer body. */
const BODY_BYTES_MAX = 1024 * 1024;
/** What is too long is read to its end for so long and so far, so that the refusal reaches the sender. */
const DRAIN_MS = 10_000;
const DRAIN_BYTES_MAX = 256 * 1024 * 1024;
const REQUEST_HEADERS = ["content-type", "content-encoding", "idempotency-key", "x-stainless-retry-count"] as const;
const ANSWER_HEADERS = ["content-type", "content-length", "cache-control", "retry-after", "x-should-retry", "allow"] as const;

/** Passes what is under a path to the vault proxy. `askingOf` says who was let in. */
export function relayVaults(proxy: VaultProxy, askingOf: (request: Request, response: ServerResponse) => Asking): RequestHandler {
  return async (request, response) => {
    const method = request.method;
    // HEAD is no method of this API, and others have no meaning anywhere in it.
    if (method !== "GET" && method !== "POST" && method !== "DELETE") throw new Refusal("method_not_allowed");
    const left = new AbortController();
    response.once("close", () => left.abort());
    const headers: Record<string, string> = {};
    for (const name of REQUEST_HEADERS) {
      const value = request.headers[name];
      if (typeof value === "string") headers[name] = value;
    }
    const body = method === "POST" || (method === "DELETE" && hasBody(request)) ? new Body(request, headers) : null;
    let answer: Dispatcher.ResponseData;
    try {
      answer = await proxy.pass(askingOf(request, response), {
        method,
        path: request.originalUrl,
        headers,
        body: body?.stream ?? null,
        signal: left.signal,
      });
    } catch (error) {
      if (left.signal.aborted) return;
      body?.overwrite();
      await body?.drain();
      throw body?.isTooLong ? new Refusal("too_large", `The request body is over the limit of ${BODY_BYTES_MAX} bytes.`) : error;
    }
    try {
      await pass(answer, response, left.signal);
    } finally {
      body?.overwrite();
    }
  };
}

const hasBody = (request: Request): boolean => request.headers["content-length"] !== undefined || request.headers["transfer-encoding"] !== undefined;

async function pass(answer: Dispatcher.ResponseData, response: ServerResponse, left: AbortSignal): Promise<void> {
  // An aborted answer rejects by itself; without a listener that would be nobody's error.
  answer.body.on("error", () => {});
  for (const name of ANSWER_HEADERS) {
    const value = answer.headers[name];
    if (typeof value === "string") response.setHeader(name, value);
  }
  response.writeHead(answer.statusCode);
  try {
    for await (const piece of answer.body) if (!response.write(piece)) await once(response, "drain", { signal: left });
    response.end();
  } catch {
    // Half an answer can't be taken back: it breaks off here, too.
    response.destroy();
  }
}

/** A request's body on its way: counted, and overwritten once it is answered, since a secret would lie in memory that is free until that is used again. */
class Body {
  readonly stream = new PassThrough();
  readonly #request: Request;
  readonly #passed: Buffer[] = [];
  #bytes = 0;
  isTooLong = false;

  constructor(request: Request, headers: Record<string, string>) {
    this.#request = request;
    const length = Number(request.headers["content-length"] ?? Number.NaN);
    if (length <= BODY_BYTES_MAX) headers["content-length"] = String(length);
    this.stream.on("error", () => {});
    if (length > BODY_BYTES_MAX) this.#refuse();
    request.on("data", (piece: Buffer) => {
      this.#bytes += piece.length;
      if (this.#bytes > BODY_BYTES_MAX) this.#refuse();
      else this.#passed.push(piece);
      if (!this.isTooLong && !this.stream.destroyed && !this.stream.write(piece)) {
        request.pause();
        this.stream.once("drain", () => request.resume());
      }
    });
    request.once("end", () => this.stream.end());
    request.once("error", (error) => this.stream.destroy(error));
    // Once the proxy has answered, what is still to come is read and dropped.
    this.stream.once("close", () => request.resume());
  }

  #refuse(): void {
    this.isTooLong = true;
    this.stream.destroy(new Error("too long"));
  }

  overwrite(): void {
    for (const piece of this.#passed.splice(0)) piece.fill(0);
  }

  async drain(): Promise<void> {
    if (!this.isTooLong || this.#request.complete) return;
    this.#request.resume();
    const deadline = AbortSignal.timeout(DRAIN_MS);
    while (!this.#request.complete && !this.#request.destroyed && !deadline.aborted && this.#bytes <= DRAIN_BYTES_MAX)
      await Promise.race([once(this.#request, "data", { signal: deadline }), once(this.#request, "end", { signal: deadline })]).catch(() => {});
  }
}
