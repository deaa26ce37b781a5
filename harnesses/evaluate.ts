// Has an outcome judged: one evaluation, from its start to its verdict (contract §13).
//
//   E1  The harness asks the model, in a context of its own; the host writes what comes of it. An evaluation that is open already goes on.
//   E2  A failed request, or an answer without a verdict, counts against the same budget as the turn's other model requests.
//   E3  While it goes on the log gets a sign of life every BEAT_MS; none comes after its end.

import type { BrainEntry } from "../session-store/entry.ts";
import type { EvaluationResult } from "../session-store/events/brain.ts";
import type { EventId } from "../session-store/ids.ts";
import { mintEvent } from "../session-store/ids.ts";
import { errorEntry, runningEntries } from "./entries.ts";
import { type Halt, weigh } from "./halt.ts";
import type { Evaluation, Judged } from "./harness.ts";
import type { LeaseContext } from "./host-context.ts";
import type { Journal } from "./journal.ts";
import { evaluationEnd, type Outcome } from "./outcomes.ts";
import { aborted, pause } from "./stop.ts";

const BEAT_MS = 5_000;
const EXPLANATION_CHARS_MAX = 16_384;

/** Resolves when the verdict is in the log, or with what ends the turn instead. Rejects with the signal's reason. */
export async function evaluate(context: LeaseContext, journal: Journal, model: Evaluation["model"], signal: AbortSignal): Promise<Halt | null> {
  const { view } = journal;
  const { span, fields } = await open(context, journal);
  const beat = setInterval(() => {
    // A lost lease is told by the signal.
    if (!signal.aborted) journal.append([signOfLife(fields)]).catch(() => {});
  }, BEAT_MS);
  try {
    for (;;) {
      const judged = await judge(context, journal, model, signal);
      signal.throwIfAborted();
      if (judged.type === "verdict") {
        clearInterval(beat);
        await journal.append([verdictEntry(outcomeOf(journal), judged)]);
        return null;
      }
      const spent: BrainEntry[] = judged.usage ? [{ type: "log.grading", span, usage: judged.usage }] : [];
      const weighed = weigh(context, view, judged.failure);
      await journal.append([...spent, ...(weighed.type === "wait" ? [errorEntry(weighed.error, "retrying")] : [])]);
      if (weighed.type !== "wait") return weighed;
      await pause(weighed.ms, signal);
    }
  } finally {
    clearInterval(beat);
  }
}

/** E1 */
async function open({ lease }: LeaseContext, journal: Journal): Promise<{ readonly span: EventId; readonly fields: Fields }> {
  const { event, iteration, evaluation } = outcomeOf(journal);
  const fields = { outcome_id: event.outcome_id, iteration };
  const span = evaluation ?? mintEvent();
  const begun: BrainEntry = evaluation ? signOfLife(fields) : { id: span, type: "span.outcome_evaluation_start", ...fields };
  await journal.append([...runningEntries({ id: lease.id, view: journal.view }), begun]);
  return { span, fields };
}

async function judge({ harness }: LeaseContext, journal: Journal, model: Evaluation["model"], signal: AbortSignal): Promise<Judged> {
  const { agent, entries } = journal.view;
  const { description, rubric } = outcomeOf(journal).event;
  if (!harness.evaluate) return { type: "verdict", result: "failed", explanation: `The harness "${harness.name}" judges no outcomes.`, usage: null };
  const task = { agent, description, rubric: rubric.content, signal, model, getEvents: () => entries.map(({ entry }) => entry) };
  const stop = aborted(signal);
  try {
    const judging = harness.evaluate(task);
    // A grader that was stopped may still fail: its evaluation is over by then.
    judging.catch(() => {});
    return await Promise.race([judging, stop.promise]);
  } finally {
    stop.off();
  }
}

function verdictEntry(outcome: Outcome, { result, explanation, usage }: Extract<Judged, { type: "verdict" }>): BrainEntry {
  const isLast = outcome.iteration + 1 >= outcome.event.max_iterations;
  const told: EvaluationResult = result === "needs_revision" && isLast ? "max_iterations_reached" : result;
  return evaluationEnd(outcome, told, explanation.slice(0, EXPLANATION_CHARS_MAX), usage ?? undefined);
}

interface Fields {
  readonly outcome_id: string;
  readonly iteration: number;
}

/** E3 */
const signOfLife = (fields: Fields): BrainEntry => ({ id: mintEvent(), type: "span.outcome_evaluation_ongoing", ...fields });

function outcomeOf({ view }: Journal): Outcome {
  const outcome = view.outcomes.current;
  if (!outcome) throw new Error("There is no outcome to judge.");
  return outcome;
}
