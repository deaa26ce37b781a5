// The model route: a caller with a grant speaks to the model, and the vault proxy puts the key in.
//
//   V1  Nobody is contacted before the grant is good, the path is one of the two, and the size is within the limit.
//   V2  Bodies flow both ways as they come, with back-pressure; nothing is collected.
//   V3  A caller that leaves ends the request upstream at once, and an answer that breaks off upstream breaks off for the caller too.
//   V4  Redirects are not followed: the key goes to the configured door only.
//   V5  An error of ours says what happened and names no address.
//   V6  The use of the key is on the disk, in the audit, before the request leaves.

import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { Transform } from "node:stream";
import type { Logger } from "pino";
import { type Dispatcher, Pool } from "undici";
import { type RefusalCode, refuse } from "./answer.ts";
import { type Audit, AuditTrouble } from "./audit.ts";
import type { Grant, Grants } from "./grant.ts";
import { answerHeaders, isEncoded, requestHeaders } from "./inject.ts";
import type { ModelKey, ModelKeys } from "./model-key.ts";

/** The model's own limit is 32 MB; a little more lets it give the answer itself. */
const BODY_BYTES_MAX = 33 * 1024 * 1024;
/** Requests that are open at a time. */
const OPEN_MAX = 1_024;
/** No answer takes longer, however steadily it trickles. */
const REQUEST_MS_MAX = 3_600_000;
/** In our log only: nobody was there to be answered. */
const CALLER_LEFT = 499;
const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 30_000;

const PATHS: ReadonlyMap<string, string> = new Map([
  ["/model/v1/messages", "/v1/messages"],
  ["/model/v1/messages/count_tokens", "/v1/messages/count_tokens"],
]);

export interface ModelRouteOptions {
  readonly url: URL;
  readonly headersTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly bodyBytesMax?: number;
  readonly keys: ModelKeys;
  readonly grants: Grants;
  readonly audit: Audit;
  readonly log: Logger;
}

export class ModelRoute {
  readonly #options: ModelRouteOptions;
  readonly #pool: Pool;
  readonly #prefix: string;
  #open = 0;

  constructor(options: ModelRouteOptions) {
    this.#options = options;
    this.#prefix = options.url.pathname.replace(/\/+$/, "");
    this.#pool = new Pool(options.url.origin, {
      connect: { timeout: CONNECT_TIMEOUT_MS },
      headersTimeout: options.headersTimeoutMs,
      bodyTimeout: options.idleTimeoutMs,
      keepAliveTimeout: KEEP_ALIVE_MS,
    });
  }

  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const path = req.method === "POST" ? upstreamPath(req.url ?? "") : null;
    if (path === null) {
      refuse(res, "no_route");
      return;
    }
    const checked = await this.#options.grants.check(req.headers.authorization, "model");
    if (checked.type === "refused") {
      this.#options.log.warn({ reason: checked.reason }, "grant.refused");
      refuse(res, checked.reason === "unready" ? "grant_unready" : checked.reason === "other_use" ? "other_use" : "no_grant");
      return;
    }
    await this.#granted(req, res, path, checked.grant);
  }

  /** Closes the connections; what is open is cut. */
  async close(): Promise<void> {
    await this.#pool.destroy();
  }

  async #granted(req: IncomingMessage, res: ServerResponse, path: string, grant: Grant): Promise<void> {
    const startedAt = performance.now();
    const exchange = new Exchange(req, res, this.#options.bodyBytesMax ?? BODY_BYTES_MAX);
    this.#open += 1;
    try {
      const refusal = await this.#relay(exchange, path, grant);
      if (refusal !== null) exchange.refuse(refusal);
    } finally {
      this.#open -= 1;
      exchange.done();
      const { sessionId, fence } = grant;
      const { status, reason, bytesIn, bytesOut } = exchange;
      const ms = Math.round((performance.now() - startedAt) * 10) / 10;
      this.#options.log.info({ sessionId, fence, path, status, ...(reason === "" ? {} : { reason }), ms, bytesIn, bytesOut }, "model.relayed");
    }
  }

  /** V6 */
  async #isAudited(path: string, { sessionId, fence }: Grant): Promise<boolean> {
    try {
      const { origin } = this.#options.url;
      await this.#options.audit.write({ use: "model", session: sessionId, fence, credential: "model_key", origin, path: this.#prefix + path });
      return true;
    } catch (error) {
      if (error instanceof AuditTrouble) return false;
      throw error;
    }
  }

  /** Gives the refusal to answer with; null once the model's own answer went out, whole or as far as it came. */
  async #relay(exchange: Exchange, path: string, grant: Grant): Promise<RefusalCode | null> {
    const key = this.#options.keys.current();
    if (key === null) return "no_model_key";
    if (this.#open > OPEN_MAX) return "busy";
    if (isEncoded(exchange.req.headers)) return "encoded";
    if (exchange.isDeclaredTooLarge()) return "too_large";
    if (!(await this.#isAudited(path, grant))) return "no_audit";
    let upstream: Dispatcher.ResponseData;
    try {
      upstream = await this.#pool.request({
        method: "POST",
        path: this.#prefix + path,
        headers: requestHeaders(exchange.req.headers, key),
        body: exchange.body(),
        signal: exchange.signal,
      });
    } catch (error) {
      return exchange.failed(error);
    }
    // An aborted request's answer rejects by itself; without a listener that would be nobody's error.
    upstream.body.on("error", () => {});
    if (upstream.statusCode >= 300 && upstream.statusCode < 400) return exchange.drop(upstream, "model_redirects");
    if (isEncoded(upstream.headers)) return exchange.drop(upstream, "model_encodes");
    await exchange.pass(upstream, key);
    return null;
  }
}

/** The path at the model, with the query if it is one that may pass; null for every other. V1 */
function upstreamPath(url: string): string | null {
  const cut = url.indexOf("?");
  const path = PATHS.get(cut < 0 ? url : url.slice(0, cut));
  if (path === undefined) return null;
  if (cut < 0 || cut === url.length - 1) return path;
  return url.slice(cut) === "?beta=true" ? `${path}?beta=true` : null;
}

/** One request and its answer, on their way. */
class Exchange {
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

  /** Which refusal a failed request comes to. V5 */
  failed(error: unknown): RefusalCode {
    if (this.#isTooLarge) return "too_large";
    const code = codeOf(error);
    this.reason = this.#abort.signal.aborted ? "caller_left" : code;
    return code === "UND_ERR_HEADERS_TIMEOUT" || code === "UND_ERR_CONNECT_TIMEOUT" ? "model_silent" : "model_unreachable";
  }

  drop(upstream: Dispatcher.ResponseData, code: RefusalCode): RefusalCode {
    upstream.body.destroy();
    this.reason = code;
    return code;
  }

  /** Passes the answer on as it comes, masked. V2 V3 */
  async pass(upstream: Dispatcher.ResponseData, key: ModelKey): Promise<void> {
    this.status = upstream.statusCode;
    const masked = key.scrubber.body();
    try {
      this.res.writeHead(upstream.statusCode, answerHeaders(upstream.headers, key));
      for await (const piece of upstream.body) await this.#write(masked.push(piece));
      await this.#write(masked.end());
      this.res.end();
    } catch (error) {
      this.reason = this.#abort.signal.aborted ? "caller_left" : codeOf(error);
      this.res.destroy();
    }
  }

  refuse(code: RefusalCode): void {
    this.status = this.#abort.signal.aborted ? CALLER_LEFT : refuse(this.res, code);
    if (this.reason === "") this.reason = code;
  }

  done(): void {
    clearTimeout(this.#deadline);
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
