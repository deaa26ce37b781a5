// One request to the model: the official SDK over a keep-alive pool, its stream read event by event.
//
//   K1  One attempt, never a retry: the budget is the host's.
//   K2  A reply counts only when the stream said that it is complete; a cut, silent or garbled stream is a failure, and nothing of it is kept.
//   K3  The SDK logs nothing: it would quote the model's text.

import Anthropic from "@anthropic-ai/sdk";
import { Agent, fetch as undiciFetch } from "undici";
import type { ModelFailure, PreviewPiece, Reply } from "../harness.ts";
import { failureOf } from "./failure.ts";
import { refusalOf } from "./refused.ts";
import { ReplyBuilder } from "./reply.ts";
import type { Request } from "./request.ts";

/** From the request's last byte to the answer's head: a long prompt is read first. */
/** As IDLE_MS of the harness: the vault proxy gives up sooner. */
const HEADERS_MS = 660_000;
const CONNECTIONS_MAX = 256;
const FAST_MODE = { "anthropic-beta": "fast-mode-2026-02-01" };

export type Refused = { readonly category: string | null; readonly explanation: string | null };
export type Answer =
  | { readonly type: "reply"; readonly reply: Reply; readonly refusal: Refused }
  | { readonly type: "failed"; readonly failure: ModelFailure; readonly refused: ReturnType<typeof refusalOf> };

export class ModelClient {
  readonly #clients = new Map<string, Anthropic>();
  readonly #agent: Agent;

  constructor(idleMs: number) {
    this.#agent = new Agent({ bodyTimeout: idleMs, headersTimeout: Math.max(idleMs, HEADERS_MS), connections: CONNECTIONS_MAX });
  }

  /** Rejects with the signal's reason when it aborts; every other trouble is a failure. */
  async ask(
    model: { readonly baseURL: string; readonly grant: string },
    request: Request,
    signal: AbortSignal,
    hear: (piece: PreviewPiece) => void,
  ): Promise<Answer> {
    signal.throwIfAborted();
    const builder = new ReplyBuilder(hear);
    const headers = { authorization: `Bearer ${model.grant}`, ...(request.speed === "fast" ? FAST_MODE : {}) };
    let events: AsyncIterator<Anthropic.MessageStreamEvent>;
    try {
      const stream = await this.#clientOf(model.baseURL).messages.create(request, { signal, headers });
      events = stream[Symbol.asyncIterator]();
    } catch (error) {
      signal.throwIfAborted();
      return failed(error);
    }
    for (;;) {
      let next: IteratorResult<Anthropic.MessageStreamEvent>;
      try {
        next = await events.next();
      } catch (error) {
        signal.throwIfAborted();
        // What breaks after the reply's end takes nothing of it away.
        if (builder.isComplete) break;
        return failed(error);
      }
      signal.throwIfAborted();
      if (next.done) break;
      builder.add(next.value);
    }
    if (builder.isComplete) return { type: "reply", reply: builder.reply(), refusal: builder.refusal };
    const failure = { type: "model_request_failed_error", message: "The model's answer was cut off.", isTransient: true } as const;
    return { type: "failed", failure, refused: null };
  }

  #clientOf(baseURL: string): Anthropic {
    const known = this.#clients.get(baseURL);
    if (known) return known;
    const client = new Anthropic({
      baseURL,
      apiKey: null,
      // Each request brings its own grant.
      authToken: "grant",
      maxRetries: 0,
      timeout: HEADERS_MS,
      logLevel: "off",
      fetch: pooled(this.#agent),
    });
    this.#clients.set(baseURL, client);
    return client;
  }
}

const failed = (error: unknown): Answer => ({ type: "failed", failure: failureOf(error), refused: refusalOf(error) });

type Fetch = typeof globalThis.fetch;
type PooledInit = Omit<RequestInit, "dispatcher"> & { readonly dispatcher: Agent };

/** undici's own fetch over our pool. Its types are those of the global one, spelled a second time. */
function pooled(dispatcher: Agent): Fetch {
  const fetch = undiciFetch as unknown as (url: Parameters<Fetch>[0], init?: PooledInit) => ReturnType<Fetch>;
  return (url, init) => fetch(url, { ...init, dispatcher });
}
