// One conversation: a session, what people do in it, and what they see of it. Both programs of this example stand on this file.
//
//   C1  `follow` gives every item once and in the log's order, whatever breaks in between: it opens the stream first, reads the history up to
//       what is known already, and then goes on with the stream, passing over what the history had.
//   C2  A message that had to wait is given twice, with one id: when it was sent, and when it takes its place.
//   C3  What people send carries a key, so that sending it again, after an answer that was lost, does it once.

import { setTimeout as sleep } from "node:timers/promises";
import Anthropic from "@anthropic-ai/sdk";
import type { Answer, Assistant } from "./assistant.ts";
import { type Item, itemOf, type Live, SHOWN, type StreamEvent } from "./items.ts";

const PAGE_EVENTS = 200;
/** Of a longer history, the newest events are shown. */
const HISTORY_EVENTS_MAX = 10_000;
const ANSWER_MS = 15_000;
/** A stream that says nothing for so long is opened anew: a connection can be gone without a word. */
const SILENT_MS = 120_000;
const RETRY_MIN_MS = 250;
const RETRY_MAX_MS = 3_000;
const RETRIES_MAX = 200;

type EventParams = Anthropic.Beta.Sessions.Events.EventSendParams["events"][number];

export class Conversation {
  readonly sessionId: string;
  readonly #client: Anthropic;

  constructor(client: Anthropic, sessionId: string) {
    this.#client = client;
    this.sessionId = sessionId;
  }

  static async start(client: Anthropic, { agentId, environmentId }: Assistant, key: string): Promise<Conversation> {
    const session = await client.beta.sessions.create(
      { agent: agentId, environment_id: environmentId, title: "Chat" },
      { headers: { "idempotency-key": key }, timeout: ANSWER_MS },
    );
    return new Conversation(client, session.id);
  }

  say(text: string, key: string): Promise<void> {
    return this.#send({ type: "user.message", content: [{ type: "text", text }] }, key);
  }

  confirm(callId: string, isAllowed: boolean): Promise<void> {
    return this.#send(
      { type: "user.tool_confirmation", tool_use_id: callId, result: isAllowed ? "allow" : "deny" },
      `confirm-${callId}-${isAllowed}`,
    );
  }

  interrupt(key: string): Promise<void> {
    return this.#send({ type: "user.interrupt" }, key);
  }

  answer(callId: string, { text, isError }: Answer): Promise<void> {
    const content = [{ type: "text" as const, text }];
    return this.#send({ type: "user.custom_tool_result", custom_tool_use_id: callId, content, is_error: isError }, `answer-${callId}-${isError}`);
  }

  /** C3 */
  async #send(event: EventParams, key: string): Promise<void> {
    await this.#client.beta.sessions.events.send(this.sessionId, { events: [event] }, { headers: { "idempotency-key": key }, timeout: ANSWER_MS });
  }

  /**
   * Everything after the event with the id `after` (null: from the start), then what comes, until `signal` or the session's end. Reconnects by
   * itself; throws if the session can't be read (it is not there, the key is wrong), or nobody answers for a long time. C1 C2
   */
  async *follow(after: string | null, hasPreviews: boolean, signal: AbortSignal): AsyncGenerator<Item | Live> {
    const given = new Given(after);
    for (let failures = 0; !signal.aborted; ) {
      try {
        for await (const item of this.#connect(given, hasPreviews, signal)) {
          failures = 0;
          yield item;
          if (item.type === "status" && item.status === "ended") return;
        }
      } catch (error) {
        if (signal.aborted) return;
        if (isFinal(error) || failures >= RETRIES_MAX) throw error;
      }
      if (signal.aborted) return;
      yield { type: "link", isOpen: false };
      await sleep(Math.min(RETRY_MIN_MS * 2 ** failures, RETRY_MAX_MS), undefined, { signal }).catch(() => {});
      failures += 1;
    }
  }

  async *#connect(given: Given, hasPreviews: boolean, signal: AbortSignal): AsyncGenerator<Item | Live> {
    const stream = await this.#client.beta.sessions.events.stream(this.sessionId, hasPreviews ? { event_deltas: ["agent.message"] } : {}, {
      signal,
      timeout: ANSWER_MS,
      maxRetries: 0,
    });
    const silent = setTimeout(() => stream.controller.abort(), SILENT_MS);
    try {
      for (const event of await this.#missed(given, signal)) yield* given.itemsOf(event);
      yield { type: "link", isOpen: true };
      for await (const event of stream) {
        silent.refresh();
        // What the history had whole may still be on its way piece by piece.
        if (event.type === "event_delta") {
          if (!given.has(event.event_id)) yield { type: "delta", id: event.event_id, text: event.delta.content.text };
        }
        // It comes whether or not the request came to a message: one that did has been given by now.
        else if (event.type === "span.model_request_end") yield { type: "dropped" };
        else yield* given.itemsOf(event);
      }
    } finally {
      clearTimeout(silent);
      stream.controller.abort();
    }
  }

  /** From the newest one backwards, so that a reconnect costs what was missed and not the whole history. */
  async #missed(given: Given, signal: AbortSignal): Promise<StreamEvent[]> {
    const missed: StreamEvent[] = [];
    const history = this.#client.beta.sessions.events.list(
      this.sessionId,
      { order: "desc", limit: PAGE_EVENTS, types: SHOWN },
      { signal, timeout: ANSWER_MS },
    );
    for await (const event of history) {
      if (given.has(event.id) || missed.length >= HISTORY_EVENTS_MAX) break;
      missed.push(event);
    }
    return missed.reverse();
  }
}

/** What a follower was given already. */
class Given {
  /** By id; false: only its waiting form. */
  readonly #events = new Map<string, boolean>();

  constructor(after: string | null) {
    if (after !== null) this.#events.set(after, true);
  }

  /** Was it given in its place in the log? Then so was everything before it. */
  has(id: string): boolean {
    return this.#events.get(id) === true;
  }

  *itemsOf(event: StreamEvent): Generator<Item> {
    const item = itemOf(event);
    if (item === null) return;
    const before = this.#events.get(item.id);
    if (before === true || (before === false && !isPlaced(event))) return;
    this.#events.set(item.id, isPlaced(event));
    yield item;
  }
}

function isPlaced(event: StreamEvent): boolean {
  return "processed_at" in event && typeof event.processed_at === "string";
}

/** No retry helps. */
function isFinal(error: unknown): boolean {
  return error instanceof Anthropic.APIError && [400, 401, 403, 404].includes(error.status ?? 0);
}
