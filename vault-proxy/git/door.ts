// What gateways ask for repositories: to seal the tokens of a request, and to keep those of a session.
//
//   POST /seal            a request's body as the client sent it; answers with it, references in the place of its tokens (seal.ts)
//   POST /repositories    {session, repositories}: what this session may reach from now on, and by which token
//   GET  /repositories    the sessions that have any
//   POST /repositories/sweep {sessions}: removes what is kept for these, which are gone, unless it is young
//
//   D1  Nothing is read before the gateway's token is good; refusals are told as at every door for gateways (api/answers.ts A1 A2).
//   D2  A token is in no log line, no error and no answer; the bytes that held it are overwritten.
//   D3  At most HELD_BYTES_MAX of bodies are held at a time, also of those that are still on their way.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import { z } from "zod";
import { admitted, refuse, send } from "../api/answers.ts";
import { check, parseJson } from "../api/check.ts";
import { ApiRefusal, busy, invalid, notFound } from "../api/refusal.ts";
import type { Caller, Grants } from "../grant.ts";
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
    const caller = await admitted(req, res, grants, log);
    if (caller === null) return;
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
      await refuse({ req, res, bytesMax: SEAL_BYTES_MAX }, error, caller, log);
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
