// One request as the resources see it: who asks, for what, and how to answer.

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { Request, RequestHandler, Router } from "express";
import type { Logger } from "pino";
import { z } from "zod";
import type { FaultPoint } from "../../session-store/fault-point.ts";
import type { SessionId } from "../../session-store/ids.ts";
import { parseSessionId } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionRecord } from "../../session-store/session.ts";
import type { SessionStore } from "../../session-store/store.ts";
import type { Principal } from "../authenticate.ts";
import type { Creation, Unanswered } from "../idempotency.ts";
import { readKey, readRetries } from "../idempotency.ts";
import type { Streams } from "../stream.ts";
import type { Bodies } from "./body.ts";
import { parseJson } from "./body.ts";
import { check } from "./check.ts";
import { readQuery } from "./query.ts";

/** What every resource works with. */
export interface Door {
  readonly store: SessionStore;
  readonly log: Logger;
  readonly fault: FaultPoint;
  readonly unanswered: Unanswered;
  readonly streams: Streams;
}

export interface Body<T> {
  readonly value: T;
  readonly bytes: Buffer;
  /** As it came, before defaults. */
  readonly given: unknown;
}

const NO_QUERY = z.strictObject({});

/** JSON text that is ready to go out. */
export class JsonText {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

export class Call {
  readonly principal: Principal;
  readonly requestId: string;
  readonly path: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly #params: Readonly<Record<string, unknown>>;
  readonly #search: URLSearchParams;
  readonly #bodies: Bodies;

  constructor(request: Request, response: ServerResponse, principal: Principal, { requestId, bodies }: { requestId: string; bodies: Bodies }) {
    const at = request.originalUrl.indexOf("?");
    this.path = at < 0 ? request.originalUrl : request.originalUrl.slice(0, at);
    this.#search = new URLSearchParams(at < 0 ? "" : request.originalUrl.slice(at + 1));
    this.#params = request.params;
    this.request = request;
    this.response = response;
    this.principal = principal;
    this.requestId = requestId;
    this.#bodies = bodies;
  }

  get headers(): IncomingHttpHeaders {
    return this.request.headers;
  }
  get key(): string | null {
    return readKey(this.headers["idempotency-key"]);
  }
  get retries(): number {
    return readRetries(this.headers["x-stainless-retry-count"]);
  }

  /** An id from the path; one that can't be of this kind is unknown. */
  id(name: string, prefix: string): string {
    const id = this.#params[name];
    if (typeof id !== "string" || !id.startsWith(`${prefix}_`) || !/^[0-9A-Za-z_]{1,80}$/.test(id))
      throw new Refusal("not_found", `There is no such ${NOUNS[prefix] ?? "object"}.`);
    return id;
  }

  sessionId(): SessionId {
    const id = parseSessionId(String(this.#params.id));
    if (!id) throw new Refusal("session_not_found");
    return id;
  }

  query<T>(schema: z.ZodType<T>): T {
    return readQuery(schema, this.#search);
  }

  /** Refuses every query parameter. */
  noQuery(): void {
    this.query(NO_QUERY);
  }

  async body<T>(schema: z.ZodType<T>, explain?: (path: string) => Record<string, unknown> | undefined): Promise<Body<T>> {
    this.noQuery();
    const bytes = await this.#bodies.read(this.request, this.response);
    const given = parseJson(bytes);
    return { value: check(schema, given, explain), bytes, given };
  }

  /** For POSTs without a body: whatever was sent is read and forgotten. */
  async noBody(): Promise<void> {
    this.noQuery();
    await this.#bodies.read(this.request, this.response);
  }

  onAnswered(then: () => void): void {
    this.response.once("finish", then);
  }

  identify(unanswered: Unanswered, prefix: string, body: unknown): Creation {
    const { principal, path, key, retries } = this;
    return unanswered.identify(prefix, { principal, path, key, retries, body, onAnswered: (then) => this.onAnswered(then) });
  }
}

const NOUNS: Readonly<Record<string, string>> = { agent: "agent", env: "environment", sthr: "thread" };

/** A session of the caller's workspace; another tenant's is unknown. */
export async function ownSession(door: Door, call: Call, id: SessionId): Promise<SessionRecord> {
  const record = await door.store.getSession(id);
  if (record.workspace !== call.principal.workspace) throw new Refusal("session_not_found");
  return record;
}

/** Gives what is to be answered as JSON, or `undefined` when the response was taken over. */
type Handle = (call: Call) => Promise<unknown>;
type Methods = Readonly<Partial<Record<"get" | "post" | "delete", Handle>>>;
/** Adds a path with its methods; any other method is 405. */
export type AddPath = (path: string, methods: Methods) => void;

export function pathAdder(router: Router, toCall: (request: Request, response: ServerResponse) => Call): AddPath {
  return (path, methods) => {
    const route = router.route(path);
    const allowed: string[] = [];
    for (const name of ["get", "post", "delete"] as const) {
      const handle = methods[name];
      if (!handle) continue;
      allowed.push(name.toUpperCase());
      const run: RequestHandler = async (request, response, next) => {
        // Express answers HEAD by GET's handler; a stream must not open for it.
        if (request.method === "HEAD") return next();
        const answer = await handle(toCall(request, response));
        if (answer !== undefined) sendJson(response, 200, answer);
      };
      route[name](run);
    }
    route.all((_request, response) => {
      response.setHeader("allow", allowed.join(", "));
      throw new Refusal("method_not_allowed");
    });
  };
}

/** Serialises once, and sends. */
export function sendJson(response: ServerResponse, status: number, value: unknown): void {
  const text = value instanceof JsonText ? value.text : JSON.stringify(value);
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  response.end(text);
}
