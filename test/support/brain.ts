// A brain without a harness: takes a session and appends what a test tells it to, in a turn's own words.

import type { Lease } from "../../session-store/due.ts";
import type { BrainEntry, Stored } from "../../session-store/entry.ts";
import { NO_USAGE } from "../../session-store/events/brain.ts";
import type { EventId, SessionId } from "../../session-store/ids.ts";
import { mint, mintEvent } from "../../session-store/ids.ts";
import { pendingOf } from "../../session-store/session.ts";
import type { SessionStore } from "../../session-store/store.ts";

export const running = (): BrainEntry => ({ id: mintEvent(), type: "session.status_running" });
export const says = (text: string, id: EventId = mintEvent()): BrainEntry => ({ id, type: "agent.message", content: [{ type: "text", text }] });
export const spanStart = (id: EventId = mintEvent()): BrainEntry => ({ id, type: "span.model_request_start" });
export const spanEnd = (start: EventId): BrainEntry => ({
  id: mintEvent(),
  type: "span.model_request_end",
  model_request_start_id: start,
  is_error: false,
  model_usage: { input_tokens: 1, output_tokens: 1, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 },
});
export const asks = (id: EventId): BrainEntry => ({ id, type: "agent.tool_use", name: "bash", input: {}, evaluated_permission: "ask" });
export const calls = (id: EventId): BrainEntry => ({ id, type: "agent.custom_tool_use", name: "look_up", input: { q: 1 } });
export const note = (): BrainEntry => ({ type: "log.note", harness: "test", data: "secret of the harness" });
const usage = (): BrainEntry => ({ id: mintEvent(), type: "session.usage", usage: NO_USAGE, budget: null });
export const idle = (...waitsFor: EventId[]): BrainEntry[] => [
  usage(),
  {
    id: mintEvent(),
    type: "session.status_idle",
    stop_reason: waitsFor.length > 0 ? { type: "requires_action", event_ids: waitsFor } : { type: "end_turn" },
    stop_details: null,
  },
];

const TAKES_MAX = 200;

export class Brain {
  readonly lease: Lease;
  readonly #store: SessionStore;
  #n = 0;

  private constructor(store: SessionStore, lease: Lease) {
    this.#store = store;
    this.lease = lease;
  }

  /** Takes this session. What else is due is taken too, and left held. */
  static async take(store: SessionStore, id: string): Promise<Brain> {
    for (let tries = 0; tries < TAKES_MAX; tries += 1) {
      const lease = await store.take("test", mint("nonce"));
      if (lease?.id === id) return new Brain(store, lease);
      if (!lease) break;
    }
    throw new Error(`${id} is not due`);
  }

  emit(...entries: BrainEntry[]): Promise<readonly Stored[]> {
    return this.#store.emitEvents(this.lease, ++this.#n, entries);
  }

  /** Applies what waits: all of it, or the first so many. */
  async apply(count = Number.POSITIVE_INFINITY): Promise<void> {
    const { projection } = await this.#store.getSession(this.lease.id as SessionId);
    const entries = pendingOf(projection)
      .slice(0, count)
      .map(({ position, id }): BrainEntry => ({ type: "log.applied", ref: position, id }));
    if (entries.length > 0) await this.emit(...entries);
  }

  async finish(...entries: BrainEntry[]): Promise<void> {
    const { head } = await this.#store.getSession(this.lease.id);
    const ended = await this.#store.finish(this.lease, ++this.#n, head, entries);
    if (ended === "more") throw new Error("something came before the end of the turn");
  }

  /** A whole turn: what waits is applied and answered. */
  static async turn(store: SessionStore, id: string, text = "hello"): Promise<void> {
    const brain = await Brain.take(store, id);
    await brain.emit(running());
    await brain.apply();
    const span = mintEvent();
    await brain.emit(spanStart(span), says(text), spanEnd(span));
    await brain.finish(...idle());
  }
}
