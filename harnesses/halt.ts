// What becomes of a model request that failed: the budget is read off the log (retry.ts), and the end of the turn is the host's.

import type { BrainEntry } from "../session-store/entry.ts";
import type { SessionError } from "../session-store/events/brain.ts";
import { errorEntry, type Named, rescheduledEntries, spanFailed } from "./entries.ts";
import type { ModelFailure } from "./harness.ts";
import type { LeaseContext } from "./host-context.ts";
import { IN_PROCESS_WAIT_MAX_MS, retryAfter } from "./retry.ts";
import type { LogView } from "./view.ts";

type Trouble = Omit<SessionError, "retry_status">;

/** How the host ends a turn that may not go on. */
export type Halt =
  | { readonly type: "exhausted"; readonly error: Trouble }
  | { readonly type: "reschedule"; readonly error: Trouble; readonly waitMs: number };

/** A short wait in this process, or the end of the turn here. */
export type Weighed = Halt | { readonly type: "wait"; readonly error: Trouble; readonly ms: number };

export function weigh({ log, lease }: LeaseContext, view: LogView, failure: ModelFailure): Weighed {
  const error = { type: failure.type, message: failure.message };
  const retry = retryAfter(failure, view.failures, Math.random);
  log.warn({ sessionId: lease.id, fence: lease.fence, type: failure.type, failures: view.failures + 1, retry: retry.type }, "model.failed");
  if (retry.type === "exhausted") return { type: "exhausted", error };
  return retry.ms > IN_PROCESS_WAIT_MAX_MS ? { type: "reschedule", error, waitMs: retry.ms } : { type: "wait", error, ms: retry.ms };
}

/** The entries that take a failed session out of the worker's hands for a while. */
export function rescheduleEntries(session: Named, error: Trouble): readonly BrainEntry[] {
  return [...spanFailed(session.view), errorEntry(error, "retrying"), ...rescheduledEntries(session)];
}
