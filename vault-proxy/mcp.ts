// The MCP route: a caller with a grant speaks to a server, and the vault proxy puts the server's credential in.
//
//   POST, GET, DELETE /mcp
//     authorization: Bearer <grant>    its use names "mcp"
//     x-manyhands-target: <address>    where the request goes
//     x-manyhands-server: <address>    the server whose credential is used, where its requests have other paths than it has (the old SSE kind);
//                                      of the same origin, and the target itself if absent
//
//   I1  Nobody is contacted before the grant is good, and nobody but a server that a credential of the grant's vaults is bound to. Where there is none
//       the caller is told so (`no_credential`), and goes by itself or not at all.
//   I2  The credential goes to its own origin: by TLS, to an address that was checked, and after no redirect (see guard.ts).
//   I3  The target is in no path, no log line and no audit line of ours, but for its origin: an address may itself be a secret.
//   I4  A use of a credential is in the audit, on the disk, before the request leaves.
//   I5  A 401 is answered with one renewal of the credential and one more try; a 403 is the server's answer.
//   I6  What comes back passes by an allow-list and hides the credential, in whatever form the server gives it back.
//   I7  An exchange ends with its session's grants, and within CHECK_MS with its credential. A grant that ends by its time ends nothing that is open.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import type { Dispatcher } from "undici";
import { type RefusalCode, refuse } from "./answer.ts";
import type { Vaults } from "./api/vaults.ts";
import { type Audit, AuditTrouble } from "./audit.ts";
import { type Bound, boundTo } from "./bound.ts";
import type { Grant, Grants } from "./grant.ts";
import type { Guard } from "./guard.ts";
import { isEncoded, mcpRequestHeaders } from "./inject.ts";
import { Masks } from "./masks.ts";
import { McpExchange } from "./mcp-exchange.ts";
import { type ServerAnswer, send } from "./mcp-send.ts";
import type { Refresher, Usable } from "./oauth/refresh.ts";
import type { Why } from "./oauth/refresh-state.ts";
import { isStorageTrouble } from "./oauth/stored.ts";

const BODY_BYTES_MAX = 33 * 1024 * 1024;
/** Exchanges that are open at a time: most are streams that say nothing. */
const OPEN_MAX = 4_096;
const CHECK_MS = 60_000;
const URL_CHARS_MAX = 2_048;
const ADDRESSES_MAX = 256;

export interface McpRouteOptions {
  readonly vaults: Vaults;
  readonly grants: Grants;
  readonly guard: Guard;
  readonly refresher: Refresher;
  readonly audit: Audit;
  readonly log: Logger;
  readonly bodyBytesMax?: number;
}

interface Asked {
  readonly grant: Grant;
  readonly target: URL;
  readonly server: URL;
  readonly method: Method;
}

type Method = "POST" | "GET" | "DELETE";
const METHODS: Readonly<Partial<Record<string, Method>>> = { POST: "POST", GET: "GET", DELETE: "DELETE" };

export class McpRoute {
  readonly #options: McpRouteOptions;
  readonly #masks = new Masks();
  /** By session. I7 */
  readonly #open = new Map<string, Set<McpExchange>>();
  #count = 0;

  constructor(options: McpRouteOptions) {
    this.#options = options;
  }

  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const method = METHODS[req.method ?? ""];
    const code = req.url !== "/mcp" ? "no_route" : method === undefined ? "not_allowed" : null;
    if (code !== null || method === undefined) {
      refuse(res, code ?? "not_allowed");
      return;
    }
    const checked = await this.#options.grants.check(req.headers.authorization, "mcp");
    if (checked.type === "refused") {
      this.#options.log.warn({ reason: checked.reason }, "grant.refused");
      refuse(res, checked.reason === "unready" ? "grant_unready" : checked.reason === "other_use" ? "other_use" : "no_grant");
      return;
    }
    await this.#granted(req, res, method, checked.grant);
  }

  /** Ends what is open of a session whose grants were revoked. I7 */
  cut(sessionId: string): void {
    for (const exchange of this.#open.get(sessionId) ?? []) exchange.cut("revoked");
  }

  async #granted(req: IncomingMessage, res: ServerResponse, method: Method, grant: Grant): Promise<void> {
    const startedAt = performance.now();
    const exchange = new McpExchange(req, res, this.#options.bodyBytesMax ?? BODY_BYTES_MAX);
    const leave = this.#enter(grant.sessionId, exchange);
    const facts: { origin?: string; credential?: string; isRenewed?: boolean } = {};
    try {
      const refusal = await this.#relay(exchange, method, grant, facts);
      if (refusal !== null) exchange.refuse(refusal);
    } finally {
      leave();
      exchange.done();
      const { sessionId, fence } = grant;
      const { status, reason, bytesOut } = exchange;
      const ms = Math.round((performance.now() - startedAt) * 10) / 10;
      const told = { sessionId, fence, method, ...facts, status, ...(reason === "" ? {} : { reason }), ms, bytesIn: exchange.body.bytes, bytesOut };
      this.#options.log.info(told, "mcp.relayed");
    }
  }

  #enter(sessionId: string, exchange: McpExchange): () => void {
    const open = this.#open.get(sessionId) ?? new Set();
    this.#open.set(sessionId, open.add(exchange));
    this.#count += 1;
    return () => {
      this.#count -= 1;
      open.delete(exchange);
      if (open.size === 0 && this.#open.get(sessionId) === open) this.#open.delete(sessionId);
    };
  }

  /** Gives the refusal to answer with; null once the server's own answer went out, whole or as far as it came. */
  async #relay(
    exchange: McpExchange,
    method: Method,
    grant: Grant,
    facts: { origin?: string; credential?: string; isRenewed?: boolean },
  ): Promise<RefusalCode | null> {
    const { req } = exchange;
    if (this.#count > OPEN_MAX) return "busy";
    if (isEncoded(req.headers)) return "encoded";
    if (Number(req.headers["content-length"] ?? 0) > (this.#options.bodyBytesMax ?? BODY_BYTES_MAX)) return "too_large";
    const addresses = addressesOf(req, method);
    if (addresses === null) return "bad_target";
    const asked: Asked = { grant, method, ...addresses };
    facts.origin = asked.target.origin;
    try {
      const bound = await boundTo(this.#options.vaults, grant, asked.server);
      if (bound === null) return "no_credential";
      facts.credential = bound.place.credential;
      const refused = this.#options.guard.refuses(asked.target);
      if (refused !== null) return exchange.failed(refused);
      const usable = await this.#usable(bound, { type: "due" }, grant);
      return usable.type === "use" ? await this.#send(exchange, asked, bound, usable.token, facts) : (CODES[codeOf(usable)] ?? "sign_in_needed");
    } catch (error) {
      if (!isStorageTrouble(error)) throw error;
      exchange.reason = "reason" in error ? error.reason : `status_${error.status}`;
      return "no_vault_store";
    }
  }

  /** I5 */
  async #send(exchange: McpExchange, asked: Asked, bound: Bound, token: string, facts: { isRenewed?: boolean }): Promise<RefusalCode | null> {
    const hasBody = asked.method === "POST";
    if (bound.auth.type !== "mcp_oauth") exchange.body.forget();
    const first = await this.#ask(exchange, asked, bound, token, hasBody ? (exchange.body.short() ?? exchange.body.first()) : null);
    if (typeof first === "string") return first;
    if (first.statusCode !== 401 || bound.auth.type !== "mcp_oauth") return await this.#answered(exchange, asked, bound, token, first);
    const usable = await this.#usable(bound, { type: "rejected", token }, asked.grant);
    if (usable.type === "as_it_is") return await this.#answered(exchange, asked, bound, token, first);
    if (!Buffer.isBuffer(first.body)) first.body.destroy();
    if (usable.type !== "use") return CODES[codeOf(usable)] ?? "sign_in_needed";
    facts.isRenewed = true;
    const body = hasBody ? await exchange.body.again() : null;
    if (hasBody && body === null) return "renewed";
    const second = await this.#ask(exchange, asked, bound, usable.token, body);
    return typeof second === "string" ? second : await this.#answered(exchange, asked, bound, usable.token, second);
  }

  /** I2 I4 */
  async #ask(
    exchange: McpExchange,
    { target, method, grant }: Asked,
    { place }: Bound,
    token: string,
    given: AsyncIterable<Buffer> | Promise<Buffer> | Buffer | null,
  ): Promise<ServerAnswer | RefusalCode> {
    const { audit, guard } = this.#options;
    try {
      // A short body comes in while the line is written.
      const [body] = await Promise.all([
        given,
        audit.write({ use: "mcp", session: grant.sessionId, fence: grant.fence, ...place, origin: target.origin }),
      ]);
      const headers = mcpRequestHeaders(exchange.req.headers, token);
      if (body === null) delete headers["content-length"];
      const request: Dispatcher.DispatchOptions = {
        origin: target.origin,
        path: target.pathname + target.search,
        method,
        headers,
        // An iterable is taken as well; the declaration lags behind.
        body: body as Buffer | null,
      };
      return await send(guard.agent, request, exchange);
    } catch (error) {
      return error instanceof AuditTrouble ? "no_audit" : exchange.failed(error);
    }
  }

  async #answered(exchange: McpExchange, asked: Asked, bound: Bound, token: string, answer: ServerAnswer): Promise<RefusalCode | null> {
    exchange.body.forget();
    if (answer.statusCode >= 300 && answer.statusCode < 400 && answer.statusCode !== 304) {
      if (!Buffer.isBuffer(answer.body)) answer.body.destroy();
      return "server_redirects";
    }
    if (Buffer.isBuffer(answer.body)) return await exchange.pass(answer, this.#masks.of(bound.place.credential, token));
    const watch = setInterval(() => void this.#check(exchange, asked, bound), CHECK_MS);
    try {
      return await exchange.pass(answer, this.#masks.of(bound.place.credential, token));
    } finally {
      clearInterval(watch);
    }
  }

  /** I7 */
  async #check(exchange: McpExchange, { grant, server }: Asked, { place }: Bound): Promise<void> {
    try {
      const now = await boundTo(this.#options.vaults, grant, server);
      if (now?.place.credential !== place.credential) exchange.cut("credential_gone");
    } catch (error) {
      // The next look may be luckier; what is open stays open.
      if (!isStorageTrouble(error)) throw error;
    }
  }

  async #usable({ place, auth }: Bound, why: Why, { sessionId, fence }: Grant): Promise<Usable> {
    if (auth.type === "static_bearer") return auth.token === null ? { type: "gone" } : { type: "use", token: auth.token };
    return (await this.#options.refresher.usable(place, auth, why, { session: sessionId, fence })).usable;
  }
}

/** What to answer where there is nothing to use. */
const CODES: Readonly<Record<string, RefusalCode>> = {
  sign_in: "sign_in_needed",
  gone: "no_credential",
  failed: "not_refreshed",
  busy: "refresh_busy",
  unstored: "unstored",
  unaudited: "no_audit",
};
const codeOf = (usable: Usable): string => (usable.type === "later" ? usable.reason : usable.type);

function addressesOf({ headers }: IncomingMessage, method: Method): { readonly target: URL; readonly server: URL } | null {
  const target = addressOf(headers["x-manyhands-target"]);
  const server = headers["x-manyhands-server"] === undefined ? target : addressOf(headers["x-manyhands-server"]);
  if (target === null || server === null || target.origin !== server.origin) return null;
  // The old SSE kind has its messages posted to another path; nothing else of it goes anywhere but to the server's own address.
  const isSame = target.pathname === server.pathname && target.search === server.search;
  return isSame || method === "POST" ? { target, server } : null;
}

function addressOf(text: string | string[] | undefined): URL | null {
  if (typeof text !== "string" || text.length > URL_CHARS_MAX) return null;
  const known = addresses.get(text);
  if (known) return known;
  if (!URL.canParse(text)) return null;
  const url = new URL(text);
  const isPlain = url.username === "" && url.password === "" && url.hash === "";
  if (!isPlain || !/^https?:$/.test(url.protocol)) return null;
  if (addresses.size >= ADDRESSES_MAX) addresses.clear();
  addresses.set(text, url);
  return url;
}

/** Read once: callers say the same few again and again. */
const addresses = new Map<string, URL>();
