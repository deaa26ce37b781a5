// When a failed model request is tried again: pure, but for the dice that are passed in.
//
//   R1  The budget counts failed attempts in a row from the log: it survives a hand-over.
//   R2  A wait is never shorter than the server asked for, and is spread out, so that sessions which failed together don't return together.

import { WAIT_MAX_MS } from "../session-store/due.ts";
import type { SessionError } from "../session-store/events/brain.ts";
import type { ModelFailure } from "./harness.ts";

/** So many attempts in a row without progress, then the turn is dead. */
const ATTEMPTS_MAX = 5;
/** Longer waits give the lease back: the session is rescheduled. */
export const IN_PROCESS_WAIT_MAX_MS = 5_000;
const BACKOFF_FIRST_MS = 500;
const BACKOFF_MAX_MS = 60_000;
/** A server that asks for longer is not waited for. */
const ASKED_MAX_MS = 3_000_000;
const SPREAD = 0.25;

export type Retry = { readonly type: "exhausted" } | { readonly type: "wait"; readonly ms: number };

/** `failures`: attempts in a row that failed before this one. `dice` gives numbers in [0, 1). R1 R2 */
export function retryAfter(failure: ModelFailure, failures: number, dice: () => number): Retry {
  const asked = failure.retryAfterMs ?? 0;
  if (!failure.isTransient || failures + 1 >= ATTEMPTS_MAX || asked > ASKED_MAX_MS) return { type: "exhausted" };
  const backoff = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** failures);
  const jittered = backoff * (0.5 + 0.5 * dice());
  // A longer wait than the due-set knows would be due at once (D4).
  return { type: "wait", ms: Math.min(WAIT_MAX_MS, Math.ceil(Math.max(asked * (1 + SPREAD * dice()), jittered))) };
}

/** A server that can't be reached, or a repository that can't be had, fails no turn. */
export const failsTurn = ({ retry_status, mcp_server_name: server, repository_url: url }: SessionError): boolean =>
  retry_status.type === "retrying" && server === undefined && url === undefined;
