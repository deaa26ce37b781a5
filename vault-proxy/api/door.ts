// The vaults' API as the gateway reaches it: `/v1/vaults…`, the check of a session's vaults, and the API's part of the document.
//
//   D1  Nothing is said or read before the gateway's token is good. What it says, whose key it saw and the request's id come in the token.
//   D2  A change that was asked for is gone through with, also when the asker has left: what it came to is found by asking again.
//   D3  A secret lives in the body and in the sealed record; it is in no log line, no error and no answer.
//   D4  Refusals are told as at every door for gateways (answers.ts A1 A2).

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import type { Caller, Grants } from "../grant.ts";
import { admitted, refuse, send } from "./answers.ts";
import type { UrlRule } from "./auth.ts";
import type { ApiCall } from "./call.ts";
import { check, parseJson, readQuery } from "./check.ts";
import type { ConnectParts } from "./connect.ts";
import { openApiPartOf } from "./openapi.ts";
import { ApiRefusal, busy, invalid, noSuchCredential, noSuchVault, notFound } from "./refusal.ts";
import { type Operation, PATH_IDS, routesOf } from "./routes.ts";
import type { Validator } from "./validate.ts";
import { VaultCheck, type Vaults } from "./vaults.ts";

/** No vault's body comes near it. */
const BODY_BYTES_MAX = 1024 * 1024;
/** Requests that are open at a time. */
const OPEN_MAX = 256;

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
    const { grants, log } = this.#options;
    const caller = await admitted(req, res, grants, log);
    if (caller === null) return;
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
      await refuse({ req, res, bytesMax: BODY_BYTES_MAX }, error, caller, log);
    } finally {
      this.#open -= 1;
      const { requestId, workspace } = caller;
      const ms = Math.round((performance.now() - startedAt) * 10) / 10;
      log.info({ requestId, workspace, operation, status: res.statusCode, ms }, "vaults.answered");
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
