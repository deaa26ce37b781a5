// The outcomes of a session that have not ended, folded from its log: the one that is worked toward, and one that waits behind an interrupt.
//
//   O1  An outcome is taken up by `log.outcome`, judged between `_start` and `_end`, and ended by every result but `needs_revision`.
//   O2  An evaluation that is open stays open over deaths, retries and hand-overs: it is judged anew under the same start.
//   O3  What a grader's answer took counts once, with the end of its evaluation.

import type { BrainEntry, Stored } from "../session-store/entry.ts";
import type { EvaluationResult, ModelUsage } from "../session-store/events/brain.ts";
import type { DefineOutcome } from "../session-store/events/client.ts";
import type { EventId, Position } from "../session-store/ids.ts";
import { mintEvent } from "../session-store/ids.ts";

export const NO_TOKENS: ModelUsage = { input_tokens: 0, output_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 };

export interface Outcome {
  readonly event: DefineOutcome;
  readonly position: Position;
  readonly isTakenUp: boolean;
  /** Number of the open evaluation, or of the next one. */
  readonly iteration: number;
  /** The start of the open evaluation. */
  readonly evaluation: EventId | null;
  /** What answers without a verdict took in the open evaluation. */
  readonly spent: ModelUsage;
}

export class Outcomes {
  readonly #open = new Map<string, Outcome>();

  /** In the order in which they were defined. */
  get all(): readonly Outcome[] {
    return [...this.#open.values()];
  }
  /** The one that the agent works toward. */
  get current(): Outcome | null {
    return this.all.find(({ isTakenUp }) => isTakenUp) ?? null;
  }

  define(event: DefineOutcome, position: Position): void {
    this.#open.set(event.outcome_id, { event, position, isTakenUp: false, iteration: 0, evaluation: null, spent: NO_TOKENS });
  }

  /** O1 O2 O3 */
  take(entry: Stored["entry"]): void {
    switch (entry.type) {
      case "log.outcome":
        this.#change(entry.outcome_id, () => ({ isTakenUp: true }));
        break;
      case "span.outcome_evaluation_start":
        this.#change(entry.outcome_id, () => ({ evaluation: entry.id, iteration: entry.iteration }));
        break;
      case "log.grading":
        for (const { event, evaluation } of this.all)
          if (evaluation === entry.span) this.#change(event.outcome_id, ({ spent }) => ({ spent: sum(spent, entry.usage) }));
        break;
      case "span.outcome_evaluation_end":
        if (entry.result === "needs_revision")
          this.#change(entry.outcome_id, () => ({ evaluation: null, iteration: entry.iteration + 1, spent: NO_TOKENS }));
        else this.#open.delete(entry.outcome_id);
        break;
      default:
        break;
    }
  }

  #change(id: string, change: (outcome: Outcome) => Partial<Outcome>): void {
    const outcome = this.#open.get(id);
    if (outcome) this.#open.set(id, { ...outcome, ...change(outcome) });
  }
}

function sum(one: ModelUsage, other: ModelUsage): ModelUsage {
  return {
    input_tokens: one.input_tokens + other.input_tokens,
    output_tokens: one.output_tokens + other.output_tokens,
    cache_read_input_tokens: one.cache_read_input_tokens + other.cache_read_input_tokens,
    cache_creation_input_tokens: one.cache_creation_input_tokens + other.cache_creation_input_tokens,
  };
}

/** The end of an evaluation, or of an outcome that none had begun for. `usage`: of the answer that held the verdict. O3 */
export function evaluationEnd(outcome: Outcome, result: EvaluationResult, explanation: string, usage = NO_TOKENS): BrainEntry {
  return {
    id: mintEvent(),
    type: "span.outcome_evaluation_end",
    outcome_evaluation_start_id: outcome.evaluation ?? "",
    outcome_id: outcome.event.outcome_id,
    iteration: outcome.iteration,
    result,
    explanation: explanation.toWellFormed(),
    usage: sum(outcome.spent, usage),
  };
}

export const interrupted = (outcome: Outcome): BrainEntry => evaluationEnd(outcome, "interrupted", "The user interrupted the session.");
