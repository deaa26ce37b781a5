// Brings the open calls of a session as far as they go without a client: confirmations take effect, what may run runs to its end.

import type { BrainEntry } from "../session-store/entry.ts";
import type { Calls } from "./calls.ts";
import { appliedEntries, errorResult, runningEntries } from "./entries.ts";
import type { LeaseContext } from "./host-context.ts";
import type { Journal } from "./journal.ts";
import { mayRun } from "./steps.ts";
import { aborted } from "./stop.ts";
import type { Call, LogView } from "./view.ts";

/**
 * Resolves when no call of the model runs and none may run: what is open then waits for a client, or came by the session's door and is not waited
 * for. Rejects with the signal's reason.
 */
export async function settleCalls(context: LeaseContext, journal: Journal, calls: Calls, signal: AbortSignal): Promise<void> {
  const { view } = journal;
  for (;;) {
    signal.throwIfAborted();
    const entries = confirmed(view);
    // A call that came by the door is no turn: the session does not begin to run for it.
    const willRun = view.ownCalls.some((call) => mayRun(call) || isAllowed(view, call));
    const isLast = view.ownCalls.every((call) => isDenied(view, call));
    const opening = willRun || (isLast && entries.length > 0) ? runningEntries({ id: context.lease.id, view }) : [];
    await journal.append([...opening, ...entries]);
    signal.throwIfAborted();
    calls.start(view.openCalls.filter(mayRun));
    if (view.confirmations.length > 0) continue;
    if (!view.ownCalls.some(({ id }) => calls.isUnderWay(id))) return;
    await awaitCalls(journal, calls, signal);
  }
}

/** Resolves at the next result of a call, or when something came. Rejects with the signal's reason. */
export async function awaitCalls(journal: Journal, calls: Calls, signal: AbortSignal): Promise<void> {
  if (!calls.isBusy) return;
  const news = journal.news();
  const stop = aborted(signal);
  try {
    await Promise.race([calls.next(), news.promise, stop.promise]);
  } finally {
    news.off();
    stop.off();
  }
}

/** What makes the waiting confirmations take effect: applied, and an error result for each denied call. */
function confirmed(view: LogView): readonly BrainEntry[] {
  return view.confirmations.flatMap((waiting) => {
    const call = view.openCalls.find(({ id }) => id === waiting.event.tool_use_id);
    const applied = appliedEntries([waiting]);
    if (!call || waiting.event.result === "allow") return applied;
    const why = waiting.event.deny_message ? `: ${waiting.event.deny_message}` : ".";
    return [...applied, errorResult(call, `The user denied this call${why}`)];
  });
}

const answerOf = (view: LogView, call: Call) => view.confirmations.find(({ event }) => event.tool_use_id === call.id)?.event.result;
const isAllowed = (view: LogView, call: Call): boolean => answerOf(view, call) === "allow";
const isDenied = (view: LogView, call: Call): boolean => answerOf(view, call) === "deny";
