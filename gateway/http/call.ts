// One request as the resources see it: who asks, for what, and how to answer.

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { Request } from "express";
import type { Logger } from "pino";
import type { z } from "zod";
import type { FaultPoint } from "../../session-store/fault-point.ts";
import type { SessionId } from "../../session-store/ids.ts";
import { parseSessionId } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionRecord } from "../../session-store/session.ts";
import type { SessionStore } from "../../session-store/store.ts";
import type { Principal } from "../authenticate.ts";
import type { Creation, Unanswered } from "../idempotency.ts";
import { readKey, readRetries } from "../idempotency.ts";
import type { Registry } from "../registry/registry.ts";
import type { Streams } from "../stream.ts";
import type { VaultProxy } from "../vault-proxy.ts";
import type { Bodies } from "./body.ts";
import { parseJson } from "./body.ts";
import { check } from "./check.ts";
import type { PathIds } from "./path-id.ts";
import { PATH_IDS } from "./path-id.ts";
import { readQuery } from "./query.ts";

/** What every resource works with. */
export interface Door {
  readonly store: SessionStore;
  readonly log: Logger;
  readonly fault: FaultPoint;
  readonly unanswered: Unanswered;
  readonly streams: Streams;
  /** Null: this installation has none. */
  readonly vaultProxy: VaultProxy | null;
  readonly registry: Registry;
}

export interface Body<T> {
  readonly value: T;
  readonly bytes: Buffer;
  /** As it came, before defaults. */
  readonly given: unknown;
}

/** Details for a refusal, by the path of what is wrong. */
export type Explain = (path: string) => Record<string, unknown> | undefined;

/** The body with references where it had secrets. */
export type Seal = (call: Call, bytes: Buffer) => Promise<Buffer>;

/** JSON text that is ready to go out. */
export class JsonText {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** A header that no client needs to know. */
export const NOTICE = "manyhands-notice";

/** Who asks, and by what request: all that a verb knows of it, whatever protocol it came by. */
export interface Asker {
  readonly principal: Principal;
  readonly requestId: string;
  /** What an idempotency key is for. */
  readonly path: string;
  readonly key: string | null;
  readonly retries: number;
  sessionId(): SessionId;
  onAnswered(then: () => void): void;
  /** Says something beside the answer that no client needs to know. */
  notify(notice: string): void;
  identify(unanswered: Unanswered, prefix: string, body: unknown): Creation;
}

export class Call implements Asker {
  readonly principal: Principal;
  readonly requestId: string;
  readonly path: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly #ids: ReadonlyMap<string, string>;
  readonly #search: URLSearchParams;
  readonly #bodies: Bodies;

  /** Refuses a path whose ids can't be of their kinds. */
  constructor(request: Request, response: ServerResponse, principal: Principal, made: { requestId: string; bodies: Bodies; ids: PathIds }) {
    const at = request.originalUrl.indexOf("?");
    this.path = at < 0 ? request.originalUrl : request.originalUrl.slice(0, at);
    this.#search = new URLSearchParams(at < 0 ? "" : request.originalUrl.slice(at + 1));
    this.#ids = readIds(request.params, made.ids);
    this.request = request;
    this.response = response;
    this.principal = principal;
    this.requestId = made.requestId;
    this.#bodies = made.bodies;
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

  /** An id from the path, by its parameter's name. */
  id(name = "id"): string {
    const id = this.#ids.get(name);
    if (id === undefined) throw new Error(`the path has no parameter ${name}`);
    return id;
  }

  sessionId(): SessionId {
    const id = parseSessionId(this.id());
    if (!id) throw new Refusal("session_not_found");
    return id;
  }

  query<T>(schema: z.ZodType<T>): T {
    return readQuery(schema, this.#search);
  }

  /** `seal` takes secrets out before anything is parsed. */
  async body<T>(schema: z.ZodType<T>, explain?: Explain, seal?: Seal): Promise<Body<T>> {
    const read = await this.#bodies.read(this.request, this.response);
    const bytes = seal ? await seal(this, read) : read;
    const given = parseJson(bytes);
    return { value: check(schema, given, explain), bytes, given };
  }

  /** For methods without a body: whatever was sent is read and forgotten. */
  async noBody(): Promise<void> {
    if (this.request.method !== "GET") await this.#bodies.read(this.request, this.response);
  }

  notify(notice: string): void {
    this.response.setHeader(NOTICE, notice);
  }

  onAnswered(then: () => void): void {
    this.response.once("finish", then);
  }

  identify(unanswered: Unanswered, prefix: string, body: unknown): Creation {
    const { principal, path, key, retries } = this;
    return unanswered.identify(prefix, { principal, path, key, retries, body, onAnswered: (then) => this.onAnswered(then) });
  }
}

function readIds(params: Readonly<Record<string, unknown>>, kinds: PathIds): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(kinds).map(([name, kind]) => {
      const { schema, code, says } = PATH_IDS[kind];
      const id = schema.safeParse(params[name]);
      if (!id.success) throw new Refusal(code, says);
      return [name, id.data];
    }),
  );
}

/** A session of the caller's workspace; another tenant's is unknown. */
export async function ownSession(door: Pick<Door, "store">, call: Pick<Asker, "principal">, id: SessionId): Promise<SessionRecord> {
  const record = await door.store.getSession(id);
  if (record.workspace !== call.principal.workspace) throw new Refusal("session_not_found");
  return record;
}

/** Serialises once, and sends. */
export function sendJson(response: ServerResponse, status: number, value: unknown): void {
  const text = value instanceof JsonText ? value.text : JSON.stringify(value);
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  response.end(text);
}
