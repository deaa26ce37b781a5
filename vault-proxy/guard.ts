// The one way out to servers that somebody else named: MCP servers, authorization servers, what their metadata points at.
//
//   Y1  Only to the internet: loopback, private, link-local and other internal addresses are refused, and so is plain HTTP, but for hosts that the
//       operator listed in MANYHANDS_INTERNAL_HOSTS.
//   Y2  A name is resolved once, at the connection, and what was checked is what is connected to: a name that means something else a moment later
//       gains nothing. One bad address of a name refuses the name.
//   Y3  `fetch` follows no redirect: it is an error like any other. (A token request that is sent on would hand the token's keys to a stranger.)
//   Y4  `fetch` gives an answer whole, within a bound of bytes and of time. What streams goes through `agent`, and its user bounds it.
//   Y5  An `Unreachable` says why in words that are safe to show: it names the host, never a path, a query, a header or a body.

import { lookup } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import { Agent, type Response as Answer, buildConnector, type Dispatcher, fetch, type RequestInit as Request } from "undici";
import { isInternal } from "./address.ts";
import type { Reach } from "./reach.ts";

const CONNECT_MS = 10_000;
const CONNECTIONS_MAX = 64;
/** A whole exchange of `fetch`. */
const FETCH_MS = 15_000;
/** The longest answer of `fetch`: metadata, a registration, tokens. */
const ANSWER_BYTES_MAX = 256 * 1024;
const HOST_CHARS_MAX = 100;

/**
 * `internal`, `scheme`, `userinfo`: the address is refused, nothing was sent. `redirect`, `size`, `time`: what it answered, or did not.
 * `network`: no connection, or a broken one.
 */
export type UnreachableReason = "internal" | "scheme" | "userinfo" | "redirect" | "size" | "time" | "network";

export class Unreachable extends Error {
  override readonly name = "Unreachable";
  readonly reason: UnreachableReason;

  constructor(reason: UnreachableReason, says: string) {
    super(says);
    this.reason = reason;
  }
}

export interface GuardLimits {
  readonly connectMs?: number;
  readonly fetchMs?: number;
  readonly answerBytesMax?: number;
  /** To one origin. */
  readonly connections?: number;
  /** For what streams through `agent`: how long the head, and any one piece of the body, may take; 0: as long as its user lets it. */
  readonly headersMs?: number;
  readonly bodyMs?: number;
}

export class Guard {
  /** For what streams: the same checks at the connection. It never follows redirects by itself. */
  readonly agent: Dispatcher;
  readonly #reach: Reach;
  readonly #fetchMs: number;
  readonly #answerBytesMax: number;

  constructor(reach: Reach, limits: GuardLimits = {}) {
    this.#reach = reach;
    this.#fetchMs = limits.fetchMs ?? FETCH_MS;
    this.#answerBytesMax = limits.answerBytesMax ?? ANSWER_BYTES_MAX;
    this.agent = new Agent({
      connections: limits.connections ?? CONNECTIONS_MAX,
      headersTimeout: limits.headersMs ?? 0,
      bodyTimeout: limits.bodyMs ?? 0,
      connect: this.#connector(limits.connectMs ?? CONNECT_MS),
    });
  }

  /** Why nothing will be sent to this address, as far as it can be seen in it; null: it is tried. Y1 */
  refuses(url: URL): Unreachable | null {
    if (url.protocol !== "https:" && url.protocol !== "http:")
      return new Unreachable("scheme", `the address begins with ${url.protocol.slice(0, HOST_CHARS_MAX)}, not with https:`);
    if (url.username !== "" || url.password !== "") return new Unreachable("userinfo", "the address holds a user name or a password");
    return this.#refusesHost(url);
  }

  /** An answer with its whole body. Throws `Unreachable`, or the signal's own reason. Y3 Y4 */
  readonly fetch = async (url: string | URL, init: RequestInit = {}): Promise<Response> => {
    const at = new URL(url);
    const refused = this.refuses(at);
    if (refused !== null) throw refused;
    const deadline = AbortSignal.timeout(this.#fetchMs);
    const request: Request = {
      method: init.method ?? "GET",
      headers: [...new Headers(init.headers)],
      ...bodyOf(init.body),
      signal: init.signal ? AbortSignal.any([init.signal, deadline]) : deadline,
      redirect: "manual",
      dispatcher: this.agent,
    };
    try {
      const answer = await fetch(at, request);
      if (answer.status >= 300 && answer.status < 400 && answer.status !== 304) {
        await answer.body?.cancel();
        throw new Unreachable("redirect", `${hostOf(at)} answers with a redirect, which is not followed`);
      }
      return await this.#whole(answer, at);
    } catch (error) {
      if (init.signal?.aborted) throw init.signal.reason;
      throw unreachableOf(error, at, deadline.aborted);
    }
  };

  async close(): Promise<void> {
    await this.agent.destroy();
  }

  async #whole(answer: Answer, at: URL): Promise<Response> {
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    for await (const piece of answer.body ?? []) {
      bytes += piece.byteLength;
      if (bytes > this.#answerBytesMax) throw new Unreachable("size", `${hostOf(at)} answers with more than ${this.#answerBytesMax} bytes`);
      pieces.push(piece);
    }
    const headers = new Headers([...answer.headers]);
    // The body is decoded already.
    for (const name of ["content-encoding", "content-length", "transfer-encoding"]) headers.delete(name);
    return new Response(bytes === 0 ? null : Buffer.concat(pieces), { status: answer.status, statusText: answer.statusText, headers });
  }

  /** What the host's spelling already tells. */
  #refusesHost(url: URL): Unreachable | null {
    if (this.#reach.isAllowed(url)) return null;
    if (url.protocol !== "https:") return new Unreachable("scheme", `${hostOf(url)} is not spoken to without TLS: ${ALLOW}`);
    const host = bareOf(url.hostname);
    return isIP(host) !== 0 && isInternal(host) ? internal(host) : null;
  }

  /** Y2 */
  #connector(timeout: number): buildConnector.connector {
    const [guarded, allowed] = [lookupGuarded, lookup].map((each) => buildConnector({ timeout, lookup: each as LookupFunction }));
    return (options: buildConnector.Options, callback: buildConnector.Callback) => {
      const at = urlOf(options);
      const refused = at === null ? internal(options.hostname) : this.#refusesHost(at);
      const connect = at !== null && this.#reach.isAllowed(at) ? allowed : guarded;
      if (refused !== null || connect === undefined) return callback(refused ?? new Error("there is no connector"), null);
      connect(options, callback);
    };
  }
}

const ALLOW = "the operator can allow the host by MANYHANDS_INTERNAL_HOSTS";
const bareOf = (host: string): string => host.replace(/^\[|\]$/g, "");
const hostOf = (url: URL): string => url.host.slice(0, HOST_CHARS_MAX);
const internal = (host: string): Unreachable =>
  new Unreachable("internal", `${host.slice(0, HOST_CHARS_MAX)} is at an internal address, which is not spoken to: ${ALLOW}`);

function urlOf({ protocol, hostname, port }: buildConnector.Options): URL | null {
  const host = isIP(bareOf(hostname)) === 6 ? `[${bareOf(hostname)}]` : hostname;
  const text = `${protocol}//${host}${port ? `:${port}` : ""}`;
  return URL.canParse(text) ? new URL(text) : null;
}

const lookupGuarded: LookupFunction = (hostname, options, callback) => {
  lookup(hostname, { ...options, all: true }, (error, addresses) => {
    if (error) return callback(error, "", 0);
    const [first] = addresses;
    if (first === undefined) return callback(new Unreachable("network", `${hostname.slice(0, HOST_CHARS_MAX)} has no address`), "", 0);
    if (addresses.some(({ address }) => isInternal(address))) return callback(internal(hostname), "", 0);
    if (options.all === true) callback(null, addresses);
    else callback(null, first.address, first.family);
  });
};

function bodyOf(body: unknown): { body?: string | Uint8Array } {
  if (body === undefined || body === null) return {};
  if (typeof body === "string" || body instanceof Uint8Array) return { body };
  if (body instanceof URLSearchParams) return { body: body.toString() };
  throw new TypeError("a body is text, bytes or parameters");
}

/** undici hides what went wrong in the cause of a TypeError. Y5 */
function unreachableOf(error: unknown, at: URL, isLate: boolean): unknown {
  for (let each = error; each instanceof Error; each = each.cause) {
    if (each instanceof Unreachable) return each;
    if (isLate || each.name === "TimeoutError" || ("code" in each && each.code === "UND_ERR_CONNECT_TIMEOUT"))
      return new Unreachable("time", `${hostOf(at)} did not answer in time`);
    if ("code" in each && typeof each.code === "string")
      return new Unreachable("network", `${hostOf(at)} can't be reached (${each.code.slice(0, HOST_CHARS_MAX)})`);
  }
  return error instanceof TypeError ? new Unreachable("network", `${hostOf(at)} can't be reached`) : error;
}
