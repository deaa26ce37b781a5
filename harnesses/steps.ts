// What a host does next with a session, read off its log: one pure function, asked at a take, after every step and when more came.
//
//   T1  Any log has a next step: a host may have died at any entry.
//   T2  An interrupt comes before everything but the closing of a dangling span.
//   T3  Every allowed or confirmed call runs to its end before an idle asks the client for the rest.
//   T4  The model is asked only when nothing is open and something was said or came to a result since its last reply.
//   T5  An outcome is judged when its agent would stop; an evaluation that is open comes to its verdict before the agent hears anything new.
//   T6  Calls that came by the session's door delay neither a turn's begin nor a model request; only an end waits for them.

import type { StopReason } from "../session-store/events/brain.ts";
import type { EventId } from "../session-store/ids.ts";
import type { Call, LogView } from "./view.ts";

/** Takes without progress after which a session is given up (D7). */
const TAKES_MAX = 5;

export type Step =
  /** Give the lease back; nothing is to be written. */
  | { readonly type: "nothing" }
  /** Its worker keeps dying: end the turn, so that the next message starts afresh. */
  | { readonly type: "give_up" }
  /** A model request was cut off by the end of its worker. */
  | { readonly type: "close_span" }
  | { readonly type: "interrupt" }
  /** Take up what was asked for by the session's door, apply confirmations and run what may run. */
  | { readonly type: "calls" }
  /** Nothing is left to do but the calls that came by the session's door: the lease is held until they have ended. T6 */
  | { readonly type: "asked" }
  /** A client must answer these. */
  | { readonly type: "wait"; readonly ids: readonly EventId[] }
  | { readonly type: "run" }
  /** Have the outcome judged, or go on with the evaluation that is open. */
  | { readonly type: "evaluate" }
  | { readonly type: "end"; readonly stop: StopReason };

/** `attempt` of the lease: takes since the last progress. */
export function nextStep(view: LogView, attempt: number): Step {
  if (view.isTerminated) return { type: "nothing" };
  if (attempt - view.handOvers >= TAKES_MAX && !isResting(view)) return { type: "give_up" };
  if (view.openSpan !== null) return { type: "close_span" };
  if (view.hasInterrupt) return { type: "interrupt" };
  if (view.confirmations.length > 0 || view.asked.waiting.length > 0 || view.ownCalls.some(mayRun)) return { type: "calls" };
  const hasAsked = view.openCalls.length > view.ownCalls.length;
  if (view.ownCalls.length > 0) return hasAsked ? { type: "asked" } : { type: "wait", ids: view.ownCalls.map((call) => call.id) };
  const outcome = view.outcomes.current;
  if (outcome?.evaluation) return { type: "evaluate" };
  if (view.messages.length > 0) return { type: "run" };
  if (isOver(view)) return hasAsked ? { type: "asked" } : { type: "nothing" };
  if (view.hasQuestion || view.lastReply?.stop_reason === "pause_turn") return { type: "run" };
  if (hasAsked) return { type: "asked" };
  if (view.lastReply?.stop_reason === "refusal") return { type: "end", stop: { type: "refusal" } };
  return outcome ? { type: "evaluate" } : { type: "end", stop: { type: "end_turn" } };
}

/** The turn is over, nothing came since and nothing is open. */
function isResting(view: LogView): boolean {
  return isOver(view) && view.asked.waiting.length === 0 && view.openCalls.length === 0;
}

/** The turn is over, and nothing was said since. */
function isOver(view: LogView): boolean {
  return view.status === "idle" && view.lastStop?.type !== "requires_action" && view.waiting.length === 0;
}

/** Allowed, or asked for and confirmed. A denied call that is open still has its error result to come. */
export function mayRun(call: Call): boolean {
  return call.kind === "allow" || call.kind === "deny" || (call.kind === "ask" && call.answer?.isApplied === true);
}

/** An idle that names the same calls as the last one says nothing new. */
export function isSaid(view: LogView, ids: readonly EventId[]): boolean {
  const { status, lastStop } = view;
  return status === "idle" && lastStop?.type === "requires_action" && lastStop.event_ids.join() === ids.join();
}
