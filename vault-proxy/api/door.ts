// The vaults' API as the gateway reaches it: `/v1/vaults…`, the check of a session's vaults, and the API's part of the document.
//
//   D1  Nothing is said or read before the gateway's token is good. What it says, whose key it saw and the request's id come in the token.
//   D2  A change that was asked for is gone through with, also when the asker has left: what it came to is found by asking again.
//   D3  A secret lives in the body and in the sealed record; it is in no log line, no error and no answer.
//   D4  A refusal to a gateway comes after its body was read to the end: an answer in the middle of it may be lost with the connection, and the
//       gateway would have to say that the change may have been made.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import type { Caller, Grants } from "../grant.ts";
import { StoreTrouble } from "../store.ts";
import type { UrlRule } from "./auth.ts";
import type { ApiCall } from "./call.ts";
import { check, parseJson, readQuery } from "./check.ts";
import type { ConnectParts } from "./connect.ts";
import { openApiPartOf } from "./openapi.ts";
import { ApiRefusal, busy, envelope, invalid, noSuchCredential, noSuchVault, notFound, refusalOf } from "./refusal.ts";
import { type Operation, PATH_IDS, routesOf } from "./routes.ts";
import type { Validator } from "./validate.ts";
import { VaultCheck, type Vaults } from "./vaults.ts";

/** No vault's body comes near it. */
const BODY_BYTES_MAX = 1024 * 1024;
/** Requests that are open at a time. */
const OPEN_MAX = 256;
const BUG = "Internal server error. Request id: ";

export interface VaultDoorOptions {
  readonly vaults: Vaults;
  readonly grants: Grants;
  readonly rule: UrlRule;
  readonly connect: ConnectParts;
  readonly validator: Validator;
  readonly log: Logger;
}

interface Found {
  readonly operation: Operation;
  readonly ids: ReadonlyMap<string, string>;
}

export class VaultDoor {
  readonly #options: VaultDoorOptions;
  readonly vaults: Vaults;
  readonly #routes: ReturnType<typeof routesOf>;
  readonly #part: string;
  #open = 0;

  constructor(options: VaultDoorOptions) {
    this.#options = options;
    this.vaults = options.vaults;
    this.#routes = routesOf(this.vaults, options.rule, { ...options.connect, validator: options.validator });
    this.#part = JSON.stringify(openApiPartOf(this.#routes));
  }

  /** True: this request is ours, and is answered. */
  takes(url: string): boolean {
    return /^\/(v1\/vaults|vaults\/check)(?:[/?]|$)/.test(url) || url === "/openapi.json";
  }

  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    // Says nothing that the source does not.
    if (req.url === "/openapi.json" && req.method === "GET") return send(res, 200, this.#part);
    const caller = await this.#options.grants.door(req.headers.authorization);
    if (caller === null || caller === "unready") {
      this.#options.log.warn({ reason: caller ?? "invalid" }, "door.refused");
      const refusal =
        caller === null
          ? new ApiRefusal(401, "authentication_error", "The gateway's token is missing, was not issued here, or has ended.")
          : new ApiRefusal(503, "api_error", "The vault proxy has no key to check tokens with yet.");
      return answerRefusal(req, res, refusal, "req_unknown");
    }
    this.#open += 1;
    const startedAt = performance.now();
    let operation = "";
    try {
      if (this.#open > OPEN_MAX) throw busy();
      const [path = "", search = ""] = (req.url ?? "").split(/\?(.*)/s);
      const isCheck = path === "/vaults/check" && req.method === "POST";
      const found = isCheck ? null : this.#find(path, req.method ?? "", res);
      operation = found?.operation.id ?? "vaults.check";
      const call = callOf(req, res, { caller, path, ids: found?.ids ?? new Map() });
      const body = await this.#run(req, call, { found, search: new URLSearchParams(search) });
      send(res, 200, JSON.stringify(body));
    } catch (error) {
      await readToEnd(req);
      this.#refuse(req, res, error, caller);
    } finally {
      this.#open -= 1;
      const { requestId, workspace } = caller;
      const ms = Math.round((performance.now() - startedAt) * 10) / 10;
      this.#options.log.info({ requestId, workspace, operation, status: res.statusCode, ms }, "vaults.answered");
    }
  }

  async #run(req: IncomingMessage, call: ApiCall, { found, search }: { found: Found | null; search: URLSearchParams }): Promise<unknown> {
    if (found === null) return this.vaults.check(call, check(VaultCheck, parseJson(await readBody(req))).vault_ids);
    const { operation } = found;
    const query = readQuery(operation.query, search);
    const bytes = await readBody(req);
    const given = operation.body === null ? null : parseJson(bytes);
    const body = operation.body === null ? null : check(operation.body, given);
    return operation.run(call, { query, body, given });
  }

  #find(path: string, method: string, res: ServerResponse): Found {
    for (const route of this.#routes) {
      const ids = match(route.path, path);
      if (ids === null) continue;
      const operation = Object.entries(route.methods).find(([name]) => name === method)?.[1];
      if (!operation) {
        res.setHeader("allow", Object.keys(route.methods).join(", "));
        throw new ApiRefusal(405, "invalid_request_error", "The method is not allowed on this path.");
      }
      for (const [name, id] of ids) {
        if (name === "vault" && !PATH_IDS.vault.safeParse(id).success) throw noSuchVault();
        if (name === "credential" && !PATH_IDS.credential.safeParse(id).success) throw noSuchCredential();
      }
      return { operation, ids };
    }
    throw notFound("There is no such path.");
  }

  #refuse(req: IncomingMessage, res: ServerResponse, error: unknown, { requestId }: Caller): void {
    const refusal = refusalOf(error);
    if (error instanceof StoreTrouble) this.#options.log.error({ requestId, reason: error.reason, detail: error.detail }, "vault_store.failed");
    // A bug's own words may quote what it fell over: its kind and its place must do.
    if (refusal === null)
      this.#options.log.error({ requestId, error: error instanceof Error ? error.name : typeof error, at: placeOf(error) }, "request.broke");
    answerRefusal(req, res, refusal ?? new ApiRefusal(500, "api_error", `${BUG}${requestId}`), requestId);
  }
}

/** The ids of a path that fits; an id that can't be decoded is the id of nothing. */
function match(pattern: string, path: string): ReadonlyMap<string, string> | null {
  const [wanted, given] = [pattern.split("/"), path.split("/")];
  if (wanted.length !== given.length) return null;
  const ids = new Map<string, string>();
  for (const [index, part] of wanted.entries()) {
    const name = /^\{(\w+)\}$/.exec(part)?.[1];
    const text = given[index] ?? "";
    if (name !== undefined && text !== "") ids.set(name, decoded(text));
    else if (part !== text) return null;
  }
  return ids;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

const KEY = /^[\x21-\x7e]{1,255}$/;

function callOf(
  req: IncomingMessage,
  res: ServerResponse,
  { caller, path, ids }: { caller: Caller; path: string; ids: ReadonlyMap<string, string> },
): ApiCall {
  const key = req.headers["idempotency-key"];
  if (key !== undefined && (typeof key !== "string" || !KEY.test(key)))
    throw invalid("idempotency-key: 1 to 255 printable ASCII characters without spaces");
  const retries = req.headers["x-stainless-retry-count"];
  return {
    caller,
    path,
    key: key ?? null,
    retries: typeof retries === "string" && /^\d{1,4}$/.test(retries) ? Number(retries) : 0,
    id: (name) => {
      const id = ids.get(name);
      if (id === undefined) throw new Error(`the path has no ${name}`);
      return id;
    },
    onAnswered: (then) => void res.once("finish", then),
  };
}

async function readBody(req: IncomingMessage): Promise<Buffer> {
  const encoding = req.headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity") throw invalid("content-encoding: is not supported");
  const pieces: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const piece of req.iterator({ destroyOnReturn: false })) {
      bytes += piece.length;
      if (bytes > BODY_BYTES_MAX) break;
      pieces.push(piece);
    }
  } catch {
    throw invalid("body: the connection ended before the body did");
  }
  if (bytes > BODY_BYTES_MAX) throw new ApiRefusal(413, "request_too_large", `The request body is over the limit of ${BODY_BYTES_MAX} bytes.`);
  return Buffer.concat(pieces);
}

/** D4. As far as a body may go; one that breaks off is over, too. */
async function readToEnd(req: IncomingMessage): Promise<void> {
  let bytes = 0;
  try {
    for await (const piece of req.iterator({ destroyOnReturn: false })) {
      bytes += piece.length;
      if (bytes > BODY_BYTES_MAX) return;
    }
  } catch {
    // The gateway has left: nobody waits for the answer.
  }
}

function answerRefusal(req: IncomingMessage, res: ServerResponse, refusal: ApiRefusal, requestId: string): void {
  if (res.headersSent) {
    res.destroy();
    return;
  }
  for (const [name, value] of Object.entries(refusal.headers)) res.setHeader(name, value);
  if (!req.complete) res.setHeader("connection", "close");
  send(res, refusal.status, JSON.stringify(envelope(refusal.type, refusal.message, requestId)));
}

function send(res: ServerResponse, status: number, text: string): void {
  res.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text), "cache-control": "no-store" });
  res.end(text);
}

const placeOf = (error: unknown): string | undefined =>
  error instanceof Error
    ? error.stack
        ?.split("\n")
        .find((line) => line.trimStart().startsWith("at "))
        ?.trim()
    : undefined;
