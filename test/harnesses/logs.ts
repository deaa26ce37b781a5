// Logs for tests of pure functions: entries in their places, without a store.

import type { Entry, Stored } from "../../session-store/entry.ts";
import type { EvaluationResult, ModelUsage } from "../../session-store/events/brain.ts";
import { eventOf } from "../../session-store/events/client.ts";
import type { ReplyBlock } from "../../session-store/events/log.ts";
import type { EventId, Fence } from "../../session-store/ids.ts";
import { mintEvent, outcomeOf, position } from "../../session-store/ids.ts";
import { agent, TOOLSET } from "./agents.ts";

export const USAGE: ModelUsage = { input_tokens: 1, output_tokens: 2, cache_read_input_tokens: 3, cache_creation_input_tokens: 4 };

/** A log under construction: each call of `add` appends. */
export class TestLog {
  readonly stored: Stored[] = [];
  fence = 1;

  constructor() {
    this.add({
      type: "log.created",
      workspace: "default",
      agent: agent([TOOLSET]),
      environment_id: "env_1",
      title: null,
      metadata: {},
      resources: [],
      vault_ids: [],
    });
  }

  get entries(): readonly Entry[] {
    return this.stored.map(({ entry }) => entry);
  }

  add(...entries: readonly Entry[]): this {
    for (const entry of entries)
      this.stored.push({ position: position(this.stored.length + 1), at: this.stored.length * 1_000, fence: this.fence as Fence, entry });
    return this;
  }

  /** Receives a message, and applies it at once unless told not to. */
  message(text: string, isApplied = true): this {
    const id = mintEvent();
    this.add({ type: "log.received", event: { id, type: "user.message", content: [{ type: "text", text }] }, waits: true });
    return isApplied ? this.add({ type: "log.applied", ref: position(this.stored.length), id }) : this;
  }

  /** Receives an outcome, and has it taken up at once unless told not to. */
  outcome(rubric = "good", { max = 3, isTakenUp = true } = {}): EventId {
    const id = mintEvent();
    const input = { type: "user.define_outcome", description: "a report", rubric: { type: "text", content: rubric }, max_iterations: max } as const;
    this.add({ type: "log.received", event: eventOf(id, input), waits: false });
    if (isTakenUp) this.add({ type: "log.outcome", id, outcome_id: outcomeOf(id) });
    return id;
  }

  /** Begins an evaluation of the outcome that an event defined; gives its start. */
  evaluation(of: EventId, iteration = 0): EventId {
    const id = mintEvent();
    this.add({ id, type: "span.outcome_evaluation_start", outcome_id: outcomeOf(of), iteration });
    return id;
  }

  verdict(of: EventId, result: EvaluationResult, { start = "", iteration = 0, explanation = "because" } = {}): this {
    const span = { outcome_evaluation_start_id: start, outcome_id: outcomeOf(of), iteration };
    return this.add({ id: mintEvent(), type: "span.outcome_evaluation_end", ...span, result, explanation, usage: USAGE });
  }

  interrupt(): this {
    return this.add({ type: "log.received", event: { id: mintEvent(), type: "user.interrupt" }, waits: true });
  }

  running(): this {
    return this.add({ id: mintEvent(), type: "session.status_running" });
  }

  idle(ids?: readonly EventId[]): this {
    const stop_reason = ids ? ({ type: "requires_action", event_ids: ids } as const) : ({ type: "end_turn" } as const);
    return this.add({ id: mintEvent(), type: "session.status_idle", stop_reason, stop_details: null });
  }

  span(): EventId {
    const id = mintEvent();
    this.add({ id, type: "span.model_request_start" });
    return id;
  }

  /** A reply with calls of these kinds; gives their event ids. */
  reply(
    kinds: readonly ("allow" | "ask" | "custom")[],
    more: readonly ReplyBlock[] = [],
    stop = kinds.length > 0 ? "tool_use" : "end_turn",
  ): EventId[] {
    const span = this.span();
    const calls = kinds.map(() => ({ tool_use_id: `toolu_${mintEvent().slice(5)}`, event_id: mintEvent() }));
    const uses = calls.map(({ tool_use_id }): ReplyBlock => ({ type: "tool_use", id: tool_use_id, name: "bash", input_json: '{"command":"ls"}' }));
    this.add({ type: "log.reply", harness: "claude", span, model: "m", stop_reason: stop, content: [...more, ...uses], calls, usage: USAGE });
    for (const [index, kind] of kinds.entries()) {
      const id = calls[index]?.event_id ?? mintEvent();
      if (kind === "custom") this.add({ id, type: "agent.custom_tool_use", name: "look_up", input: {} });
      else this.add({ id, type: "agent.tool_use", name: "bash", input: { command: "ls" }, evaluated_permission: kind });
    }
    this.add({ id: mintEvent(), type: "span.model_request_end", model_request_start_id: span, is_error: false, model_usage: USAGE });
    return calls.map(({ event_id }) => event_id);
  }

  result(id: EventId, text = "done"): this {
    return this.add({ id: mintEvent(), type: "agent.tool_result", tool_use_id: id, content: [{ type: "text", text }], is_error: false });
  }

  confirm(id: EventId, result: "allow" | "deny", isApplied = false): this {
    const event = { id: mintEvent(), type: "user.tool_confirmation", tool_use_id: id, result } as const;
    this.add({ type: "log.received", event, waits: true });
    return isApplied ? this.add({ type: "log.applied", ref: position(this.stored.length), id: event.id }) : this;
  }

  error(retry: "retrying" | "exhausted"): this {
    return this.add({ id: mintEvent(), type: "session.error", error: { type: "unknown_error", message: "m", retry_status: { type: retry } } });
  }
}
