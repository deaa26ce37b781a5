// The model route: a caller with a grant speaks to the model, and the vault proxy puts the key in.
//
//   V1  Nobody is contacted before the grant is good, the path is one of the two, and the size is within the limit.
//   V2  Bodies flow both ways as they come, with back-pressure. Only where the operator's file of providers decides by the model's name is a request
//       read first, whole (models/).
//   V3  Redirects are not followed: a key goes to its provider's door only.
//   V4  An error of ours says what happened and names no address.
//   V5  The use of a key is on the disk, in the audit, before the request leaves.
//   V6  A session that has spent its limit asks no more.
//   V7  An exchange ends with its session's grants: a revocation cuts it.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import { Agent, type Dispatcher } from "undici";
import { type RefusalCode, refuse } from "./answer.ts";
import { type Audit, AuditTrouble } from "./audit.ts";
import type { Grant, Grants } from "./grant.ts";
import { isEncoded, requestHeaders } from "./inject.ts";
import type { ModelKey } from "./model-key.ts";
import { Exchange } from "./models/exchange.ts";
import { JsonObject } from "./models/fields.ts";
import type { Models, Price, Provider } from "./models/providers.ts";
import type { Spending } from "./models/spend.ts";
import { shape } from "./models/styles.ts";
import { StoreTrouble } from "./store.ts";

/** The model's own limit is 32 MB; a little more lets it give the answer itself. */
const BODY_BYTES_MAX = 33 * 1024 * 1024;
/** Requests that are open at a time. */
const OPEN_MAX = 1_024;
const CONNECT_TIMEOUT_MS = 10_000;
const KEEP_ALIVE_MS = 30_000;

const PATHS: ReadonlyMap<string, string> = new Map([
  ["/model/v1/messages", "/v1/messages"],
  ["/model/v1/messages/count_tokens", "/v1/messages/count_tokens"],
]);

export interface ModelRouteOptions {
  readonly models: Models;
  readonly spend: Spending;
  readonly headersTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly bodyBytesMax?: number;
  readonly grants: Grants;
  readonly audit: Audit;
  readonly log: Logger;
}

/** A request as it leaves. */
interface Leaving {
  readonly provider: Provider;
  readonly key: ModelKey;
  readonly path: string;
  /** Null: as it comes. */
  readonly body: Buffer | null;
  readonly isFramed: boolean;
  readonly price: Price | null;
}

export class ModelRoute {
  readonly #options: ModelRouteOptions;
  readonly #agent: Agent;
  #open = 0;
  /** By session. V7 */
  readonly #exchanges = new Map<string, Set<Exchange>>();

  constructor(options: ModelRouteOptions) {
    this.#options = options;
    this.#agent = new Agent({
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

  /** Ends what is open of a session whose grants were revoked. V7 */
  cut(session: string): void {
    for (const exchange of this.#exchanges.get(session) ?? []) exchange.cut("revoked");
  }

  /** Closes the connections; what is open is cut. */
  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  async #granted(req: IncomingMessage, res: ServerResponse, path: string, grant: Grant): Promise<void> {
    const startedAt = performance.now();
    const exchange = new Exchange(req, res, this.#options.bodyBytesMax ?? BODY_BYTES_MAX);
    const leave = this.#enter(grant.sessionId, exchange);
    try {
      const refusal = await this.#relay(exchange, path, grant);
      if (refusal !== null) exchange.refuse(refusal);
    } finally {
      leave();
      exchange.done();
      const { sessionId, fence } = grant;
      const { status, reason, bytesIn, bytesOut } = exchange;
      const ms = Math.round((performance.now() - startedAt) * 10) / 10;
      this.#options.log.info({ sessionId, fence, path, status, ...(reason === "" ? {} : { reason }), ms, bytesIn, bytesOut }, "model.relayed");
    }
  }

  #enter(session: string, exchange: Exchange): () => void {
    const open = this.#exchanges.get(session) ?? new Set();
    this.#exchanges.set(session, open.add(exchange));
    this.#open += 1;
    return () => {
      this.#open -= 1;
      open.delete(exchange);
      if (open.size === 0 && this.#exchanges.get(session) === open) this.#exchanges.delete(session);
    };
  }

  /** V5 */
  async #isAudited({ provider, path }: Leaving, { sessionId, fence }: Grant): Promise<boolean> {
    // Under its own name in a file of providers.
    const credential = this.#options.models.isPlain ? "model_key" : `model_key:${provider.name}`;
    try {
      await this.#options.audit.write({ use: "model", session: sessionId, fence, credential, origin: provider.url.origin, path });
      return true;
    } catch (error) {
      if (error instanceof AuditTrouble) return false;
      throw error;
    }
  }

  /** Gives the refusal to answer with; null once the model's own answer went out, whole or as far as it came. */
  async #relay(exchange: Exchange, path: string, grant: Grant): Promise<RefusalCode | null> {
    const { spend, log } = this.#options;
    if (this.#open > OPEN_MAX) return "busy";
    if (isEncoded(exchange.req.headers)) return "encoded";
    if (exchange.isDeclaredTooLarge()) return "too_large";
    const limited = await this.#limited(exchange, grant);
    if (limited !== null) return limited;
    const leaving = await this.#leaving(exchange, path);
    if (typeof leaving === "string") return leaving;
    if (!(await this.#isAudited(leaving, grant))) return "no_audit";
    const { provider, key, body, isFramed, price } = leaving;
    const headers = requestHeaders(exchange.req.headers, key, provider.auth);
    if (body !== null) headers["content-length"] = String(body.length);
    let upstream: Dispatcher.ResponseData;
    try {
      upstream = await this.#agent.request({
        origin: provider.url.origin,
        method: "POST",
        path: leaving.path,
        headers,
        body: body ?? exchange.body(),
        signal: exchange.signal,
      });
    } catch (error) {
      return exchange.failed(error);
    }
    // An aborted request's answer rejects by itself; without a listener that would be nobody's error.
    upstream.body.on("error", () => {});
    if (upstream.statusCode >= 300 && upstream.statusCode < 400) return exchange.drop(upstream, "model_redirects");
    if (isEncoded(upstream.headers)) return exchange.drop(upstream, "model_encodes");
    const used = await exchange.pass(upstream, key, isFramed && upstream.statusCode === 200);
    const { sessionId, fence } = grant;
    const usd = price === null ? undefined : await spend.count(sessionId, used, price);
    if (used.input + used.output > 0) log.info({ sessionId, fence, provider: provider.name, ...used, usd }, "model.used");
    return null;
  }

  /** V6 */
  async #limited(exchange: Exchange, { sessionId }: Grant): Promise<RefusalCode | null> {
    const { models, spend } = this.#options;
    try {
      return models.limit !== null && (await spend.spentBy(sessionId)) >= models.limit ? "spent" : null;
    } catch (error) {
      if (!(error instanceof StoreTrouble)) throw error;
      exchange.reason = error.reason;
      return "no_vault_store";
    }
  }

  /** Where a request goes, and what it is there. V2 */
  async #leaving(exchange: Exchange, path: string): Promise<Leaving | RefusalCode> {
    const { models } = this.#options;
    if (models.isPlain) return leavingOf(models.providerOf(""), { path, body: null, isFramed: false, price: null });
    let body: Buffer | null;
    try {
      body = await exchange.whole();
    } catch (error) {
      return exchange.failed(error);
    }
    if (body === null) return "busy";
    const object = JsonObject.read(body);
    const model = object?.get("model");
    if (object === null || typeof model !== "string" || model === "") return "no_model_name";
    const price = models.priceOf(model);
    if (models.limit !== null && price === null) return "no_price";
    const provider = models.providerOf(model);
    const betas = exchange.req.headers["anthropic-beta"];
    const shaped = shape(provider, path, model, object, typeof betas === "string" ? betas : undefined);
    if (shaped === null) return "no_such_request";
    return leavingOf(provider, { path: shaped.path, body: shaped.body ?? body, isFramed: shaped.answer === "event_frames", price });
  }
}

function leavingOf(provider: Provider, request: Pick<Leaving, "path" | "body" | "isFramed" | "price">): Leaving | "no_model_key" {
  const key = provider.keys.current();
  return key === null ? "no_model_key" : { ...request, provider, key, path: provider.url.pathname.replace(/\/+$/, "") + request.path };
}

/** The path at the model, with the query if it is one that may pass; null for every other. V1 */
function upstreamPath(url: string): string | null {
  const cut = url.indexOf("?");
  const path = PATHS.get(cut < 0 ? url : url.slice(0, cut));
  if (path === undefined) return null;
  if (cut < 0 || cut === url.length - 1) return path;
  return url.slice(cut) === "?beta=true" ? `${path}?beta=true` : null;
}
