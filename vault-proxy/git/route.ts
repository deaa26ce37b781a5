// The git route: git in a hand speaks smart HTTP to a path of ours, and the vault proxy puts the repository's token in.
//
//   GET  /git/<host>/<path>/info/refs?service=git-upload-pack | git-receive-pack
//   POST /git/<host>/<path>/git-upload-pack | git-receive-pack
//
//   R1  Nothing else is there: the target is compared, as it came, with what the repositories of the grant's session have. No path is ever decoded,
//       joined or cleaned, so there is none that reads differently elsewhere.
//   R2  The token goes to its repository's own origin, at an address that was checked (guard.ts). A redirect is followed within the origin, and only to
//       the same question about another path, which is how hosts say that a repository was renamed.
//   R3  What the caller says of itself is its git's version and the protocol's; who it is, is the token's to say, or nobody's where there is none.
//   R4  Each request is in the audit, on the disk, before it leaves.
//   R5  Both bodies stream with back-pressure. An answer passes if it is git's; it hides the token wherever it stands in one piece, pack or not: a pack
//       that holds it as it is does not arrive whole, and git says so.
//   R6  Where the line ends (revoked, the hand is gone), the request at the host ends.

import type { IncomingMessage, ServerResponse } from "node:http";
import { pipeline } from "node:stream/promises";
import type { Logger } from "pino";
import type { Dispatcher } from "undici";
import { type Audit, AuditTrouble } from "../audit.ts";
import type { Line } from "../egress/line.ts";
import { Denied } from "../egress/says.ts";
import { Guard, Unreachable } from "../guard.ts";
import { isEncoded } from "../inject.ts";
import { type Mask, Masks } from "../masks.ts";
import { StoreTrouble } from "../store.ts";
import { type GitHosts, pathOf } from "./hosts.ts";
import { codeOf, counted, headersOf, IDLE_MS, movedTo, SERVICES, type Service, wordsOf } from "./message.ts";
import type { Repositories, Repository } from "./repositories.ts";
import { denyGit, GitDenied } from "./says.ts";

const CONNECTIONS_MAX = 256;
const TOTAL_MS = 6 * 3_600_000;
const ANSWER_BYTES_MAX = 64 * 1024 ** 3;
const REDIRECTS_MAX = 3;
const MOVED_MAX = 10_000;

export interface GitRouteOptions {
  readonly repositories: Repositories;
  readonly hosts: GitHosts;
  readonly audit: Audit;
  readonly log: Logger;
}

/** What is asked of which repository. */
interface Asked {
  readonly repository: Repository;
  readonly service: Service;
  readonly isAdvertisement: boolean;
}

/** What the log is told of a request. */
interface Facts {
  to?: string;
  service?: Service;
  status?: number;
  bytesIn?: number;
  bytesOut?: number;
}

export class GitRoute {
  readonly #options: GitRouteOptions;
  readonly #guard: Guard;
  readonly #masks = new Masks();
  /** Where renamed repositories are now: session and address → path. */
  readonly #moved = new Map<string, string>();

  constructor(options: GitRouteOptions) {
    this.#options = options;
    this.#guard = new Guard(options.hosts.reach, { connections: CONNECTIONS_MAX, headersMs: IDLE_MS, bodyMs: IDLE_MS });
  }

  takes(target: string | undefined): boolean {
    return target?.startsWith("/git/") ?? false;
  }

  /** A request that came on a session's line. */
  async handle(line: Line, req: IncomingMessage, res: ServerResponse): Promise<void> {
    const startedAt = performance.now();
    const facts: Facts = {};
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(new GitDenied("silent")), TOTAL_MS);
    timer.unref();
    res.once("close", () => over.abort(new GitDenied("ended")));
    let denied: GitDenied | null = null;
    try {
      await line.during(() => this.#pass(line, req, res, AbortSignal.any([over.signal, line.signal]), facts), "git");
    } catch (error) {
      denied = deniedOf(error);
      denyGit(res, denied);
    } finally {
      clearTimeout(timer);
      const { sessionId, fence } = line.grant;
      const ms = Math.round(performance.now() - startedAt);
      this.#options.log.info({ sessionId, fence, ...facts, ms, ...(denied && { denied: denied.code }) }, "git.passed");
    }
  }

  async close(): Promise<void> {
    await this.#guard.close();
  }

  async #pass({ grant }: Line, req: IncomingMessage, res: ServerResponse, signal: AbortSignal, facts: Facts): Promise<void> {
    const asked = this.#find(req, grant.workspace === null ? [] : await this.#options.repositories.of(grant.workspace, grant.sessionId));
    const { repository, service } = asked;
    const { origin, pathname } = new URL(repository.url);
    facts.to = origin;
    facts.service = service;
    const refused = this.#guard.refuses(new URL(repository.url));
    if (refused !== null) throw refused;
    const credential = repository.token === null ? "none" : "repository_token";
    const { sessionId: session, fence, workspace } = grant;
    await this.#options.audit.write({
      use: "git",
      session,
      fence,
      ...(workspace === null ? {} : { workspace }),
      credential,
      origin,
      path: `${pathname}/${service}`,
    });
    signal.throwIfAborted();
    const body = asked.isAdvertisement ? null : counted(req, service, signal, (bytes) => (facts.bytesIn = bytes));
    const answer = await this.#ask(asked, req, body, signal, `${session} ${repository.url}`);
    facts.status = answer.statusCode;
    const mask = repository.token === null ? null : this.#masks.of(`${session} ${repository.url}`, repository.token);
    await this.#answered(asked, answer, res, mask, (bytes) => (facts.bytesOut = bytes));
  }

  /** R1 */
  #find(req: IncomingMessage, repositories: readonly Repository[]): Asked {
    for (const repository of repositories) {
      const path = pathOf(repository.url);
      for (const service of SERVICES) {
        if (req.method === "GET" && req.url === `${path}/info/refs?service=${service}`) return { repository, service, isAdvertisement: true };
        if (req.method === "POST" && req.url === `${path}/${service}`) return { repository, service, isAdvertisement: false };
      }
    }
    throw new GitDenied("not_ours");
  }

  /** R2 */
  async #ask(
    { repository, service, isAdvertisement }: Asked,
    req: IncomingMessage,
    body: AsyncIterable<Buffer> | null,
    signal: AbortSignal,
    name: string,
  ): Promise<Dispatcher.ResponseData> {
    const { origin, pathname } = new URL(repository.url);
    const headers = headersOf(req, service, isAdvertisement, repository.token);
    // Where it is now is asked anew each time; what follows on the answer goes to the same place.
    let base = isAdvertisement ? pathname : (this.#moved.get(name) ?? pathname);
    if (isAdvertisement) this.#moved.delete(name);
    for (let hops = 0; ; hops += 1) {
      const answer = await this.#guard.agent.request({
        origin,
        path: isAdvertisement ? `${base}/info/refs?service=${service}` : `${base}/${service}`,
        method: isAdvertisement ? "GET" : "POST",
        headers,
        // An iterable is taken as well; the declaration lags behind.
        body: body as Buffer | null,
        signal,
      });
      // An aborted request's answer rejects by itself; without a listener that would be nobody's error.
      answer.body.on("error", () => {});
      const isRedirect = answer.statusCode >= 300 && answer.statusCode < 400;
      if (!isRedirect) return answer;
      answer.body.destroy();
      if (!isAdvertisement) {
        this.#moved.delete(name);
        throw new GitDenied("moved");
      }
      const next = movedTo(answer.headers.location, `${origin}${base}/info/refs?service=${service}`, service);
      if (next === null || hops >= REDIRECTS_MAX) throw new GitDenied("redirects");
      base = next;
      this.#remember(name, base);
    }
  }

  #remember(name: string, base: string): void {
    this.#moved.delete(name);
    this.#moved.set(name, base);
    const [oldest] = this.#moved.keys();
    if (this.#moved.size > MOVED_MAX && oldest !== undefined) this.#moved.delete(oldest);
  }

  /** R5 */
  async #answered(
    { repository, service, isAdvertisement }: Asked,
    answer: Dispatcher.ResponseData,
    res: ServerResponse,
    mask: Mask | null,
    count: (bytes: number) => void,
  ): Promise<void> {
    const { statusCode, headers } = answer;
    if (statusCode !== 200) throw new GitDenied(codeOf(statusCode, repository), await wordsOf(answer, mask));
    const type = `application/x-${service}-${isAdvertisement ? "advertisement" : "result"}`;
    if (headers["content-type"] !== type || isEncoded(headers)) {
      answer.body.destroy();
      throw new GitDenied("no_git");
    }
    const length = headers["content-length"];
    res.writeHead(200, { "content-type": type, "cache-control": "no-cache", ...(typeof length === "string" && { "content-length": length }) });
    const masked = mask?.body();
    let bytes = 0;
    await pipeline(
      answer.body,
      async function* (pieces: AsyncIterable<Buffer>) {
        for await (const piece of pieces) {
          bytes += piece.length;
          count(bytes);
          if (bytes > ANSWER_BYTES_MAX) throw new GitDenied("too_large");
          yield masked === undefined ? piece : masked.push(piece);
        }
        if (masked !== undefined) yield masked.end();
      },
      res,
    );
  }
}

/** Whatever a host or a hand does is none of these: they are bugs. */
const isBug = (error: Error): boolean => [TypeError, ReferenceError, RangeError, SyntaxError].some((kind) => error instanceof kind);

function deniedOf(error: unknown): GitDenied {
  let code = "";
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth += 1) {
    if (at instanceof GitDenied) return at;
    if (at instanceof Denied) return new GitDenied("ended");
    if (at instanceof StoreTrouble) return new GitDenied("no_vault", at.reason);
    if (at instanceof AuditTrouble) return new GitDenied("no_audit");
    if (at instanceof Unreachable) return new GitDenied(at.reason === "network" || at.reason === "time" ? "unreachable" : "refused");
    if ("code" in at && typeof at.code === "string") code = at.code;
    else if (isBug(at)) throw error;
    else if (code === "") code = at.name;
  }
  return new GitDenied(/TIMEOUT/.test(code) ? "silent" : "unreachable", code);
}
