// A tool's call, as the verbs of the HTTP API see a request: the same functions, the same checks, the same refusals.

import type { z } from "zod";
import type { SessionId } from "../../../session-store/ids.ts";
import { mint, parseSessionId } from "../../../session-store/ids.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import type { Asker, Body } from "../../http/call.ts";
import { check } from "../../http/check.ts";
import type { Creation, Unanswered } from "../../idempotency.ts";
import { readKey } from "../../idempotency.ts";
import type { Caller } from "../caller.ts";

export interface Asking {
  readonly caller: Caller;
  readonly path: string;
  readonly session?: string;
  readonly key?: string | undefined;
}

export class ToolAsker implements Asker {
  readonly principal: Caller;
  readonly path: string;
  readonly key: string | null;
  readonly requestId = mint("req");
  readonly retries = 0;
  /** What was said beside the answer. */
  notice: string | undefined;
  readonly #session: string | undefined;

  constructor({ caller, path, session, key }: Asking) {
    this.principal = caller;
    this.path = path;
    this.key = readKey(key);
    this.#session = session;
  }

  sessionId(): SessionId {
    const id = parseSessionId(this.#session ?? "");
    if (!id) throw new Refusal("session_not_found");
    return id;
  }

  /** A tool's call has no retry that its transport would announce: there is nothing to remember for one. */
  onAnswered(then: () => void): void {
    then();
  }

  notify(notice: string): void {
    this.notice = notice;
  }

  identify(unanswered: Unanswered, prefix: string, body: unknown): Creation {
    const { principal, path, key, retries } = this;
    return unanswered.identify(prefix, { principal, path, key, retries, body, onAnswered: (then) => this.onAnswered(then) });
  }
}

/** What a tool sends in place of a request's body, read by the same schema. */
export function bodyOf<T>(schema: z.ZodType<T>, given: unknown): Body<T> {
  return { value: check(schema, given), bytes: Buffer.from(JSON.stringify(given)), given };
}
