// A client of the API that does not give up: it sends under an idempotency key until it is answered, and reads whole lists.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { fetch } from "undici";
import { z } from "zod";
import { until } from "../support/until.ts";
import { type AskedTurn, lastWordsOf, WireEvent } from "./wire-checkers.ts";

const ANSWER_MS = 5_000;
const GIVE_UP_MS = 90_000;
const AGAIN_MS = 50;
const TURN_MS = 90_000;
const PAGE = 1000;

const Made = z.looseObject({ id: z.string() });
const Session = z.looseObject({ id: z.string(), status: z.string() });
const Events = z.looseObject({ data: z.array(WireEvent), next_page: z.string().nullish() });

export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

export class Api {
  readonly #url: string;
  readonly #key: string;

  constructor(url: string, key: string) {
    this.#url = url;
    this.#key = key;
  }

  /** One try. Rejects when there is no answer. */
  async ask(method: "GET" | "POST", path: string, body?: unknown, idempotencyKey?: string): Promise<Answer> {
    const answer = await fetch(`${this.#url}${path}`, {
      method,
      headers: {
        "x-api-key": this.#key,
        "content-type": "application/json",
        ...(idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    return { status: answer.status, body: await answer.json() };
  }

  /** Tries until it is acknowledged: no answer and 5xx are tried again under the same key. */
  async insist(method: "GET" | "POST", path: string, body?: unknown): Promise<unknown> {
    const key = method === "POST" ? randomUUID() : undefined;
    const deadline = Date.now() + GIVE_UP_MS;
    for (;;) {
      const answer = await this.ask(method, path, body, key).catch((error: unknown) => ({ status: 0, body: String(error) }));
      if (answer.status >= 200 && answer.status < 300) return answer.body;
      const isTransient = answer.status === 0 || answer.status >= 500;
      if (!isTransient || Date.now() > deadline) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
      await sleep(AGAIN_MS);
    }
  }

  /** A session with an agent of its own. */
  async openSession(tools: readonly unknown[]): Promise<ChaosSession> {
    const agent = Made.parse(await this.insist("POST", "/v1/agents", { name: "chaos", model: "claude-haiku-4-5", tools }));
    const environment = Made.parse(await this.insist("POST", "/v1/environments", { name: `chaos ${randomUUID()}` }));
    const session = Session.parse(await this.insist("POST", "/v1/sessions", { agent: agent.id, environment_id: environment.id }));
    return new ChaosSession(this, session.id);
  }
}

export class ChaosSession {
  readonly id: string;
  readonly #api: Api;

  constructor(api: Api, id: string) {
    this.#api = api;
    this.id = id;
  }

  /** Sends events until they are acknowledged; gives them as stored. */
  async send(...events: readonly unknown[]): Promise<readonly WireEvent[]> {
    return Events.parse(await this.#api.insist("POST", `/v1/sessions/${this.id}/events`, { events })).data;
  }

  /** One try, whatever comes of it. */
  trySend(...events: readonly unknown[]): Promise<Answer> {
    return this.#api.ask("POST", `/v1/sessions/${this.id}/events`, { events });
  }

  /** Asks for a turn by a script of the scripted model. */
  async askFor(nonce: string, script: string): Promise<AskedTurn> {
    const [acknowledged] = await this.send({ type: "user.message", content: [{ type: "text", text: script }] });
    if (acknowledged === undefined) throw new Error("an acknowledgement without an event");
    return { nonce, acknowledged };
  }

  async status(): Promise<string> {
    return Session.parse(await this.#api.insist("GET", `/v1/sessions/${this.id}`)).status;
  }

  async events(): Promise<readonly WireEvent[]> {
    const events: WireEvent[] = [];
    let next = "";
    do {
      const page = Events.parse(await this.#api.insist("GET", `/v1/sessions/${this.id}/events?limit=${PAGE}${next}`));
      events.push(...page.data);
      next = page.next_page ? `&page=${encodeURIComponent(page.next_page)}` : "";
    } while (next !== "");
    return events;
  }

  /** Waits until the session is idle and everything sent was applied; gives its events. */
  settled(timeoutMs = TURN_MS): Promise<readonly WireEvent[]> {
    let events: readonly WireEvent[] = [];
    return until(
      async () => {
        if ((await this.status()) !== "idle") return null;
        events = await this.events();
        return events.every(({ processed_at: at }) => at !== null) ? events : null;
      },
      { timeoutMs, pollMs: AGAIN_MS, what: () => `session ${this.id} idle; its last events: ${JSON.stringify(events.slice(-8))}` },
    );
  }
}

/** A turn with an effect that must not happen twice, a call that only reads, and last words. Slow enough to be met in mid-stream. */
export const scriptOf = (nonce: string): string =>
  [
    `turn ${nonce}`,
    "token_delay: 5",
    "chunk: 8",
    "say: I write a line into a file, and then look at what it holds.",
    `call bash: {"command":"echo ${nonce} >> effects.txt; sleep 0.4; echo written"}`,
    "---",
    'call read: {"file_path":"/workspace/effects.txt"}',
    "---",
    `say: ${lastWordsOf(nonce)}`,
  ].join("\n");
