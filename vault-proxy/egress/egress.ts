// The egress proxy: the only way out of a hand's container.
//
//   CONNECT egress:1         a hand host, with a session's grant for `egress`: what comes on the connection from here on is a line (line.ts), on which
//                            the programs of a hand speak to an HTTP proxy: requests in absolute form, and CONNECT
//   GET /egress/environment  with the same grant: the variables that stand for the session's credentials, and the certificate that hands trust
//
//   E1  Where a line may go is judged for every request and every CONNECT: first by the session's policy, then by the address that is connected to.
//   E2  A CONNECT to a host for which the session has no credential is a tunnel: not a byte in it is read.
//   E3  A request is never passed on with another host than the one that was judged; TRACE is never passed on. For a body
//       whose end can't be told nobody is connected to (framing.ts F1).
//   E4  No path, header or body is ever logged.
//   E5  A request in origin form for /git/… is git's (git/route.ts). A grant for git alone opens a line, and nothing on it but that.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Logger } from "pino";
import { answer, refuse } from "../answer.ts";
import type { Audit } from "../audit.ts";
import { inTurn, isFramedOddly } from "../framing.ts";
import type { GitRoute } from "../git/route.ts";
import type { Checked, Grants } from "../grant.ts";
import type { VaultStore } from "../store.ts";
import { type Onward, pass } from "./exchange.ts";
import { insertionOf } from "./insertion.ts";
import { Interceptor, isTls } from "./intercept.ts";
import { Line, Lines, readPolicy } from "./line.ts";
import { type Place, placeOf } from "./place.ts";
import { Denied, deny, denyConnect, last } from "./says.ts";
import { type Secret, Secrets } from "./secrets.ts";
import { tunnel } from "./tunnel.ts";
import type { Way } from "./way.ts";

const AUTHORITY = "egress:1";
const ENVIRONMENT = "/egress/environment";
const HEADER_BYTES_MAX = 65_536;
const LINE_IDLE_MS = 60_000;

export interface EgressOptions {
  readonly grants: Grants;
  readonly way: Way;
  readonly vaults: VaultStore;
  readonly audit: Audit;
  readonly git: GitRoute;
  readonly log: Logger;
}

export class Egress {
  readonly #options: EgressOptions;
  readonly #secrets: Secrets;
  readonly #lines = new Lines();
  readonly #interceptor = new Interceptor();
  readonly #proxy: Server;

  constructor(options: EgressOptions) {
    this.#options = options;
    this.#secrets = new Secrets(options.vaults);
    this.#proxy = createServer(
      { keepAliveTimeout: LINE_IDLE_MS, maxHeaderSize: HEADER_BYTES_MAX },
      inTurn((req, res) => void this.#request(req, res)),
    );
    this.#proxy.on("connect", (req: IncomingMessage, socket: Duplex, head: Buffer) => void this.#connect(req, socket, head));
  }

  /** A connection of a hand host. */
  async take(req: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    socket.on("error", () => {});
    if (head.length > 0) socket.unshift(head);
    const { grants, log } = this.#options;
    const { authorization } = req.headers;
    if (!isConnect(req)) return say(socket, "400 Bad Request");
    const checked = req.url === AUTHORITY ? await enter(grants, authorization) : null;
    if (checked === null || checked.type === "refused") {
      if (checked !== null) log.warn({ reason: checked.reason }, "grant.refused");
      return say(socket, checked === null ? "404 Not Found" : checked.reason === "unready" ? "503 Service Unavailable" : "401 Unauthorized");
    }
    const { grant } = checked;
    if (grant.network === undefined) return say(socket, "403 Forbidden");
    if (!this.#lines.hasRoom(grant.sessionId)) return say(socket, "529 Overloaded");
    const signal = this.#lines.add(socket, grant.sessionId);
    socket.write("HTTP/1.1 200 Connected\r\n\r\n");
    const policy = await readPolicy(socket, grant.network);
    if (policy === null) {
      log.warn({ sessionId: grant.sessionId }, "egress.policy_refused");
      socket.destroy();
      return;
    }
    this.#lines.set(socket, new Line({ grant, policy, authorization, grants, signal }));
    this.#proxy.emit("connection", socket);
  }

  /** What a hand of the session has in its environment. */
  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (req.url !== ENVIRONMENT || req.method !== "GET") return void refuse(res, "no_route");
    const checked = await enter(this.#options.grants, req.headers.authorization);
    if (checked.type === "refused") {
      this.#options.log.warn({ reason: checked.reason }, "grant.refused");
      return void refuse(res, checked.reason === "unready" ? "grant_unready" : checked.reason === "other_use" ? "other_use" : "no_grant");
    }
    try {
      const secrets = checked.grant.use.includes("egress") ? await this.#secrets.of(checked.grant) : [];
      const variables = secrets.map(({ name, placeholder }) => ({ name, placeholder }));
      answer(res, 200, { variables, certificate: variables.length === 0 ? null : (await this.#secrets.authority()).certificate });
    } catch (error) {
      deny(res, deniedOf(error));
    }
  }

  /** The session is over: what it has open is cut. */
  revoked(session: string): void {
    this.#lines.cut(session);
  }

  /** Lines that do nothing go at once; `cut` is for the rest. */
  close(): void {
    this.#lines.close("idle");
  }

  cut(): void {
    this.#lines.close("all");
  }

  async #request(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const line = this.#lines.lineOf(req.socket);
    if (line === null) return void req.socket.destroy();
    if (isFramedOddly(req)) return void deny(res, new Denied("odd_framing"));
    if (this.#options.git.takes(req.url)) return await this.#options.git.handle(line, req, res);
    const [, authority, path = ""] = /^http:\/\/([^/?#\\]*)(.*)$/i.exec(req.url ?? "") ?? [];
    if (authority === undefined) return void deny(res, new Denied("not_a_proxy_request"));
    await this.#exchange(line, req, res, { place: placeOf(authority, 80), path: path.startsWith("/") ? path : `/${path}`, scheme: "http" });
  }

  async #connect(req: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    socket.on("error", () => {});
    const line = this.#lines.lineOf(socket);
    if (line === null) return void socket.destroy();
    if (head.length > 0) socket.unshift(head);
    const startedAt = performance.now();
    const place = placeOf(req.url ?? "", null);
    let isOpen = false;
    try {
      await line.during(async () => {
        if (!isConnect(req)) throw new Denied("not_a_connect", place);
        const judged = judge(line, place);
        const hasSecrets = (await this.#secrets.at(line.grant, judged.host)).length > 0;
        // A host that has a credential is connected to when its first request comes: what is wrong then can be told in words of HTTP.
        const outside = hasSecrets ? null : await this.#options.way.open(judged, line.signal);
        isOpen = true;
        socket.write("HTTP/1.1 200 Connection Established\r\n\r\n");
        const facts = outside === null ? await this.#intercepted(line, socket, judged) : { way: "tunnel", ...(await tunnel(socket, outside)) };
        this.#told(line, judged, startedAt, facts);
      }, useOf(line));
    } catch (error) {
      const denied = deniedOf(error);
      this.#told(line, place, startedAt, { way: "connect", ...factsOf(denied) });
      if (isOpen) socket.destroy();
      else denyConnect(socket, denied);
    }
  }

  async #intercepted(line: Line, socket: Duplex, place: Place): Promise<object> {
    const begins = await isTls(socket);
    if (begins === null) throw new Denied("no_handshake", place);
    if (!begins) return { way: "tunnel", ...(await tunnel(socket, await this.#options.way.open(place, line.signal))) };
    const context = (await this.#secrets.authority()).contextOf(place.host);
    await this.#interceptor.take(socket, place, context, (req, res, path) => this.#exchange(line, req, res, { place, path, scheme: "https" }));
    return { way: "intercepted" };
  }

  async #exchange(line: Line, req: IncomingMessage, res: ServerResponse, asked: Asked): Promise<void> {
    const startedAt = performance.now();
    const { scheme } = asked;
    try {
      await line.during(async () => {
        const place = judge(line, asked.place);
        if (req.method === "TRACE") throw new Denied("no_trace", place); // E3
        const secrets = await this.#secretsFor(line, place, scheme);
        this.#told(line, place, startedAt, { way: scheme, ...(await pass(req, res, this.#onward(line, { ...asked, place }, secrets))) });
      }, useOf(line));
    } catch (error) {
      const denied = deniedOf(error);
      deny(res, denied);
      this.#told(line, asked.place, startedAt, { way: scheme, ...factsOf(denied) });
    }
  }

  /** Without TLS a credential is for the operator's own hosts. */
  async #secretsFor(line: Line, place: Place, scheme: Asked["scheme"]): Promise<readonly Secret[]> {
    return scheme === "https" || this.#options.way.isOperators(place) ? await this.#secrets.at(line.grant, place.host) : [];
  }

  #onward({ grant, signal }: Line, { place, path, scheme }: Asked & { readonly place: Place }, secrets: readonly Secret[]): Onward {
    const { way, audit } = this.#options;
    return {
      place,
      path,
      impliedPort: scheme === "https" ? 443 : 80,
      open: () => (scheme === "https" ? way.openTls(place, signal) : way.open(place, signal)),
      insertion: secrets.length === 0 ? null : insertionOf({ grant, place, scheme, secrets, audit }),
    };
  }

  /** E4 */
  #told({ grant }: Line, place: Place | null, startedAt: number, facts: object): void {
    const { sessionId, fence } = grant;
    this.#options.log.info({ sessionId, fence, to: place?.text, ms: Math.round(performance.now() - startedAt), ...facts }, "egress.passed");
  }
}

interface Asked {
  readonly place: Place | null;
  readonly path: string;
  readonly scheme: "http" | "https";
}

/** E5 */
async function enter(grants: Grants, authorization: string | undefined): Promise<Checked> {
  const checked = await grants.check(authorization, "egress");
  return checked.type === "refused" && checked.reason === "other_use" ? await grants.check(authorization, "git") : checked;
}

/** What a line is asked about when its grant is asked again. */
const useOf = ({ grant }: Line): string => (grant.use.includes("egress") ? "egress" : "git");

/** E1 E5 */
function judge(line: Line, place: Place | null): Place {
  if (place === null) throw new Denied("not_a_place");
  if (!line.grant.use.includes("egress") || !line.policy.allows(place)) throw new Denied("not_allowed", place);
  return place;
}

/** What is no `Denied` is a bug. */
function deniedOf(error: unknown): Denied {
  if (error instanceof Denied) return error;
  throw error;
}

const factsOf = ({ code, detail }: Denied): object => ({ denied: code, ...(detail === "" ? {} : { code: detail }) });

function say(socket: Duplex, status: string): void {
  last(socket, `HTTP/1.1 ${status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`);
}

/** What follows a CONNECT is the tunnel's: one with a body, or with two readings of where it ends, is none. */
function isConnect({ headers, httpVersion }: IncomingMessage): boolean {
  const hasBody = headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) !== 0;
  return !hasBody && (headers.host !== undefined || httpVersion === "1.0");
}
