// The scripted model: a Messages API on loopback that plays scripts (script.ts), refuses what the real endpoint refuses (rules.ts) and
// keeps what it was asked. No model, no chance.
//
//   POST /v1/messages   POST /v1/messages/count_tokens   GET /v1/models[/ID]
//   GET /__requests?contains=&since=&limit=[&count]   DELETE /__requests   GET /__stats   GET /__health

import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { ForcedScripts } from "./forced.ts";
import { countTokens, makeId, playStep } from "./reply.ts";
import { type ModelRequest, readRequest } from "./request.ts";
import { refuseRequest } from "./rules.ts";
import { type Fault, place, type Step } from "./script.ts";
import { envelope, streamReply } from "./stream.ts";

export interface ModelOptions {
  readonly port?: number;
  readonly host?: string;
  /** If given, every other key is refused. */
  readonly key?: string;
  /** Plays instead of the scripts; null leaves a request to them. */
  readonly play?: (request: ModelRequest) => Step | null;
  readonly recordedMax?: number;
}

/** One request that came. Credentials are never kept: only by which headers they came. */
interface Recorded {
  readonly n: number;
  readonly at: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly credentials: readonly string[];
  body: unknown;
  /** How many steps of its script had been played. */
  step?: number;
  fault?: string;
  /** Why it was refused. */
  rejected?: string;
  aborted?: boolean;
}

interface RequestFilter {
  readonly contains?: string;
  readonly since?: number;
  readonly limit?: number;
}

export interface ScriptedModel {
  readonly url: string;
  /** The requests that came, oldest first; the last `limit` of those that fit. */
  requests(filter?: RequestFilter): readonly Recorded[];
  stats(): { readonly total: number; readonly active: number; readonly max_active: number; readonly aborted: number; readonly rejected: number };
  /** Forgets the requests and how often faults have struck. */
  clear(): void;
  close(): Promise<void>;
}

const BODY_BYTES_MAX = 32 * 1024 * 1024;
const RECORDED_MAX = 5_000;
const LIMIT = 100;
const STALL_MS = 60_000;
const CREDENTIALS = ["authorization", "x-api-key", "cookie", "proxy-authorization"];
const MODEL = { id: "scripted-model", type: "model", display_name: "Scripted model", created_at: "2026-01-01T00:00:00Z" };
const ERROR_TYPES: ReadonlyMap<number, string> = new Map([
  [400, "invalid_request_error"],
  [401, "authentication_error"],
  [402, "billing_error"],
  [403, "permission_error"],
  [404, "not_found_error"],
  [413, "request_too_large"],
  [429, "rate_limit_error"],
  [504, "timeout_error"],
  [529, "overloaded_error"],
]);

export async function startModel(options: ModelOptions = {}): Promise<ScriptedModel> {
  const model = new Model(options);
  const server = createServer((req, res) => {
    model.handle(req, res).catch((error: unknown) => {
      if (res.destroyed) return; // The client left; that is kept with the request.
      fail(res, 500, `scripted model: ${error instanceof Error ? error.stack : String(error)}`);
    });
  });
  const host = options.host ?? "127.0.0.1";
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, host, resolve);
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("The scripted model has no address.");
  return {
    url: `http://${host}:${address.port}`,
    requests: (filter) => model.find(filter ?? {}).slice(-(filter?.limit ?? LIMIT)),
    stats: () => model.stats(),
    clear: () => model.clear(),
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

class Model {
  readonly #options: ModelOptions;
  readonly #recorded: Recorded[] = [];
  readonly #forced = new ForcedScripts();
  readonly #struck = new Map<string, number>();
  #total = 0;
  #active = 0;
  #activeMax = 0;
  #aborted = 0;
  #rejected = 0;

  constructor(options: ModelOptions) {
    this.#options = options;
  }

  find({ contains = "", since = 0 }: RequestFilter): readonly Recorded[] {
    return this.#recorded.filter((entry) => entry.n > since && (contains === "" || JSON.stringify([entry.headers, entry.body]).includes(contains)));
  }

  stats() {
    return { total: this.#total, active: this.#active, max_active: this.#activeMax, aborted: this.#aborted, rejected: this.#rejected };
  }

  clear(): void {
    this.#recorded.length = 0;
    this.#struck.clear();
    this.#forced.clear();
  }

  async handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const url = new URL(req.url ?? "/", "http://model");
    if (url.pathname.startsWith("/__")) return this.#inspect(req, res, url);
    if (!this.#isKeyRight(req)) return fail(res, 401, "invalid x-api-key");
    if (req.method === "GET" && url.pathname === "/v1/models") {
      return send(res, 200, { data: [MODEL], has_more: false, first_id: MODEL.id, last_id: MODEL.id });
    }
    if (req.method === "GET" && url.pathname.startsWith("/v1/models/")) {
      return send(res, 200, { ...MODEL, id: decodeURIComponent(url.pathname.slice("/v1/models/".length)) });
    }
    const isCount = url.pathname === "/v1/messages/count_tokens";
    if (req.method !== "POST" || (url.pathname !== "/v1/messages" && !isCount)) return fail(res, 404, `Not found: ${url.pathname}`);
    const entry = this.#record(req, url.pathname);
    this.#active += 1;
    this.#activeMax = Math.max(this.#activeMax, this.#active);
    const left = new AbortController();
    res.once("close", () => {
      if (res.writableFinished || entry.fault === "drop") return;
      entry.aborted = true;
      this.#aborted += 1;
      left.abort(new Error("The client left."));
    });
    try {
      await this.#messages({ req, res, entry, isCount, signal: left.signal });
    } finally {
      this.#active -= 1;
    }
  }

  async #messages(on: { req: IncomingMessage; res: ServerResponse; entry: Recorded; isCount: boolean; signal: AbortSignal }): Promise<void> {
    const { res, entry, signal } = on;
    const text = await readText(on.req);
    if (text === null) return this.#reject(res, entry, 413, "Request exceeds the maximum size");
    entry.body = readJson(text);
    if (entry.body === undefined) return this.#reject(res, entry, 400, "The request body is not valid JSON");
    if (on.req.headers["anthropic-version"] === undefined) return this.#reject(res, entry, 400, "anthropic-version: header is required");
    const request = readRequest(entry.body, on.isCount);
    if (typeof request === "string") return this.#reject(res, entry, 400, request);
    const refusal = refuseRequest(request);
    if (refusal !== null) return this.#reject(res, entry, 400, refusal);
    if (on.isCount) return send(res, 200, { input_tokens: countTokens(request) });
    await this.#reply(res, entry, request, signal);
  }

  async #reply(res: ServerResponse, entry: Recorded, request: ModelRequest, signal: AbortSignal): Promise<void> {
    const own = this.#options.play?.(request) ?? null;
    const forced = own === null ? this.#forced.place(request) : null;
    const found = forced ?? (own === null ? place(request.messages) : { step: own, key: makeId("play"), played: 0 });
    entry.step = found.played;
    const step: Step = found.step ?? { actions: [] };
    const reply = playStep(found.step, request);
    const fault = this.#strike(step.faults ?? [], found.key);
    if (fault !== null) entry.fault = fault.type === "error" ? `error ${fault.value}` : fault.type;
    if (step.waitMs) await sleep(step.waitMs, undefined, { signal });
    if (fault?.type === "error") {
      const headers = fault.retryAfter === null ? {} : { "retry-after": fault.retryAfter };
      return fail(res, Number(fault.value) || 500, fault.message ?? `The script answers with ${fault.value || 500}.`, headers);
    }
    if (request.stream === true) {
      res.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "request-id": makeId("req") });
      await streamReply(res, reply, { step, fault, signal });
      if (forced && fault === null) this.#forced.answered(forced);
      return;
    }
    if (fault?.type === "drop") {
      res.destroy();
      return;
    }
    if (fault?.type === "malformed") {
      res.writeHead(200, { "content-type": "application/json" });
      res.end('{"id":"msg_cut","type":"mess');
      return;
    }
    if (fault?.type === "sse_error")
      return fail(res, 529, fault.message ?? "The script answers with an error.", {}, fault.value || "overloaded_error");
    if (fault?.type === "stall") await sleep(Number(fault.value) || STALL_MS, undefined, { signal });
    send(res, 200, envelope(reply, reply.content));
    if (forced && fault === null) this.#forced.answered(forced);
  }

  /** The first fault of the step that has not struck often enough. */
  #strike(faults: readonly Fault[], key: string): Fault | null {
    for (const [at, fault] of faults.entries()) {
      const name = createHash("sha256").update(`${at}\n${key}`).digest("base64");
      const times = this.#struck.get(name) ?? 0;
      if (times >= fault.times) continue;
      this.#struck.set(name, times + 1);
      return fault;
    }
    return null;
  }

  #record(req: IncomingMessage, path: string): Recorded {
    const headers = Object.fromEntries(Object.entries(req.headers).filter(([name]) => !CREDENTIALS.includes(name)));
    const credentials = CREDENTIALS.filter((name) => req.headers[name] !== undefined);
    this.#total += 1;
    const entry: Recorded = { n: this.#total, at: new Date().toISOString(), path, headers, credentials, body: null };
    this.#recorded.push(entry);
    if (this.#recorded.length > (this.#options.recordedMax ?? RECORDED_MAX)) this.#recorded.shift();
    return entry;
  }

  #reject(res: ServerResponse, entry: Recorded, status: number, reason: string): void {
    entry.rejected = reason;
    this.#rejected += 1;
    fail(res, status, reason);
  }

  #isKeyRight({ headers }: IncomingMessage): boolean {
    const given = headers["x-api-key"] ?? headers.authorization?.replace(/^Bearer\s+/i, "");
    return this.#options.key === undefined || given === this.#options.key;
  }

  #inspect(req: IncomingMessage, res: ServerResponse, url: URL): void {
    const [status, body] = this.#look(req, url);
    send(res, status, body);
  }

  #look(req: IncomingMessage, { pathname, searchParams: asked }: URL): [number, unknown] {
    if (pathname === "/__health") return [200, { ok: true }];
    if (pathname === "/__stats") return [200, this.stats()];
    if (pathname !== "/__requests") return [404, { type: "error", error: { type: "not_found_error", message: `Not found: ${pathname}` } }];
    if (req.method === "DELETE") {
      this.clear();
      return [200, { ok: true }];
    }
    const found = this.find({ contains: asked.get("contains") ?? "", since: Number(asked.get("since") ?? 0) });
    return [200, { count: found.length, requests: asked.has("count") ? [] : found.slice(-Number(asked.get("limit") ?? LIMIT)) }];
  }
}

async function readText(req: IncomingMessage): Promise<string | null> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of req) {
    bytes += piece.length;
    // The rest is read and forgotten, so that the client gets to the answer.
    if (bytes <= BODY_BYTES_MAX) pieces.push(piece);
  }
  return bytes > BODY_BYTES_MAX ? null : Buffer.concat(pieces).toString("utf8");
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // Answered with 400, as the endpoint does.
  }
}

function fail(
  res: ServerResponse,
  status: number,
  message: string,
  headers: Record<string, string> = {},
  type = ERROR_TYPES.get(status) ?? "api_error",
): void {
  if (res.headersSent) res.destroy();
  else send(res, status, { type: "error", error: { type, message }, request_id: makeId("req") }, headers);
}

function send(res: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  const text = JSON.stringify(body);
  res.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text), "request-id": makeId("req"), ...headers });
  res.end(text);
}
