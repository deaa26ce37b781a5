// What gateways ask for repositories: to seal the tokens of a request, and to keep those of a session.
//
//   POST /seal            a request's body as the client sent it; answers with it, references in the place of its tokens (seal.ts)
//   POST /repositories    {session, repositories}: what this session may reach from now on, and by which token
//   GET  /repositories    the sessions that have any
//   POST /repositories/sweep {sessions}: removes what is kept for these, which are gone, unless it is young
//
//   D1  Nothing is read before the gateway's token is good; a refusal comes after the body was read to its end.
//   D2  A token is in no log line, no error and no answer; the bytes that held it are overwritten.
//   D3  At most HELD_BYTES_MAX of bodies are held at a time, also of those that are still on their way.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import { z } from "zod";
import { check, parseJson } from "../api/check.ts";
import { ApiRefusal, busy, envelope, invalid, notFound, refusalOf } from "../api/refusal.ts";
import type { Caller, Grants } from "../grant.ts";
import { StoreTrouble } from "../store.ts";
import type { GitHosts } from "./hosts.ts";
import { REPOSITORIES_MAX, type Repositories } from "./repositories.ts";
import type { Seals } from "./seal.ts";

/** A request that makes a session may be as long as the gateway takes one. */
const SEAL_BYTES_MAX = 33 * 1024 * 1024;
const BODY_BYTES_MAX = 1024 * 1024;
/** Of all bodies together. D3 */
const HELD_BYTES_MAX = 8 * SEAL_BYTES_MAX;
const SWEPT_MAX = 1_000;

const session = z.string().regex(/^sesn_[0-9A-Za-z]{1,64}$/);
const Wanted = z.strictObject({
  session,
  repositories: z
    .array(z.strictObject({ url: z.string().max(2_048), token: z.string().max(2_048).nullish() }))
    .min(1)
    .max(REPOSITORIES_MAX),
});
const Swept = z.strictObject({ sessions: z.array(session).max(SWEPT_MAX) });

export interface GitDoorOptions {
  readonly grants: Grants;
  readonly hosts: GitHosts;
  readonly seals: Seals;
  readonly repositories: Repositories;
  readonly log: Logger;
}

export class GitDoor {
  readonly #options: GitDoorOptions;
  #held = 0;

  constructor(options: GitDoorOptions) {
    this.#options = options;
  }

  takes(url: string): boolean {
    return url === "/seal" || url === "/repositories" || url === "/repositories/sweep";
  }

  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { grants, log } = this.#options;
    const caller = await grants.door(req.headers.authorization);
    if (caller === null || caller === "unready") {
      log.warn({ reason: caller ?? "invalid" }, "door.refused");
      const refusal =
        caller === null
          ? new ApiRefusal(401, "authentication_error", "The gateway's token is missing, was not issued here, or has ended.")
          : new ApiRefusal(503, "api_error", "The vault proxy has no key to check tokens with yet.");
      return refuse(req, res, refusal, "req_unknown");
    }
    const operation = `${req.method} ${req.url}`;
    const startedAt = performance.now();
    const pieces: Buffer[] = [];
    try {
      await this.#read(req, operation === "POST /seal" ? SEAL_BYTES_MAX : BODY_BYTES_MAX, pieces);
      const whole = Buffer.concat(pieces);
      try {
        send(res, 200, await this.#run(operation, caller, whole));
      } finally {
        whole.fill(0);
      }
    } catch (error) {
      const refusal = refusalOf(error);
      const { requestId } = caller;
      if (error instanceof StoreTrouble) log.error({ requestId, reason: error.reason, detail: error.detail }, "vault_store.failed");
      // A bug's own words may quote what it fell over.
      if (refusal === null) log.error({ requestId, error: error instanceof Error ? error.name : typeof error }, "request.broke");
      await refuse(req, res, refusal ?? new ApiRefusal(500, "api_error", "Internal server error."), requestId);
    } finally {
      for (const piece of pieces) this.#held -= piece.fill(0).length;
      const ms = Math.round((performance.now() - startedAt) * 10) / 10;
      log.info({ requestId: caller.requestId, workspace: caller.workspace, operation, status: res.statusCode, ms }, "repositories.answered");
    }
  }

  async #run(operation: string, { workspace }: Caller, bytes: Buffer): Promise<string> {
    const { seals, repositories } = this.#options;
    switch (operation) {
      case "POST /seal":
        return await seals.body(workspace, bytes);
      case "POST /repositories": {
        const wanted = check(Wanted, parseJson(bytes));
        await repositories.put(workspace, wanted.session, await this.#opened(workspace, wanted));
        return "{}";
      }
      case "GET /repositories":
        return JSON.stringify({ sessions: await repositories.sessions(workspace) });
      case "POST /repositories/sweep": {
        let count = 0;
        for (const each of check(Swept, parseJson(bytes)).sessions) if (await repositories.sweep(workspace, each)) count += 1;
        return JSON.stringify({ swept: count });
      }
      default:
        throw notFound("There is no such path.");
    }
  }

  /** Tokens in the place of references; an absent one stays as it is kept. */
  async #opened(workspace: string, { repositories }: z.infer<typeof Wanted>) {
    const all: { url: string; token: string | null | undefined }[] = [];
    for (const [index, { url, token: reference }] of repositories.entries()) {
      const says = this.#options.hosts.refuses(url);
      if (says !== null) throw invalid(`resources.${index}.url: ${says}`);
      const token = typeof reference === "string" ? await this.#options.seals.unseal(workspace, reference) : reference;
      if (token === null && reference !== null) throw invalid(`resources.${index}.authorization_token: is no reference of this vault proxy`);
      all.push({ url, token });
    }
    return all;
  }

  /** Into `pieces`; what is held of a body that is refused is there too. D3 */
  async #read(req: IncomingMessage, bytesMax: number, pieces: Buffer[]): Promise<void> {
    let bytes = 0;
    try {
      for await (const piece of req.iterator({ destroyOnReturn: false })) {
        bytes += piece.length;
        if (bytes > bytesMax) throw new ApiRefusal(413, "request_too_large", `The request body is over the limit of ${bytesMax} bytes.`);
        if (this.#held + piece.length > HELD_BYTES_MAX) throw busy();
        this.#held += piece.length;
        pieces.push(piece);
      }
    } catch (error) {
      throw error instanceof ApiRefusal ? error : invalid("body: the connection ended before the body did");
    }
  }
}

/** D1 */
async function refuse(req: IncomingMessage, res: ServerResponse, refusal: ApiRefusal, requestId: string): Promise<void> {
  let bytes = 0;
  try {
    for await (const piece of req.iterator({ destroyOnReturn: false })) {
      bytes += piece.length;
      if (bytes > SEAL_BYTES_MAX) break;
    }
  } catch {
    // The gateway has left: nobody waits for the answer.
  }
  for (const [name, value] of Object.entries(refusal.headers)) res.setHeader(name, value);
  if (!req.complete) res.setHeader("connection", "close");
  send(res, refusal.status, JSON.stringify(envelope(refusal.type, refusal.message, requestId)));
}

function send(res: ServerResponse, status: number, text: string): void {
  res.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text), "cache-control": "no-store" });
  res.end(text);
}
