// The due-set: which sessions are to be looked at, and when. Wake queue, lease, retry timer and re-offer of lost work are one thing.
//
//   D1  A session is in the set or not; its score is when to look next (ms): now when woken, the lease's end while held, the retry time
//       when rescheduled; absent when idle.
//   D2  `take` = the earliest due one, fence + 1, a new lease end: one step. A fence is granted once and only grows.
//   D3  The same nonce gets the same lease: a lost answer costs nothing.
//   D4  What is scored further ahead than the longest legal wait (WAIT_MAX_MS) is due too: a clock set back hides nothing.
//   D5  `receive` never changes the score of a held session. Absent: added at now, if an entry wakes. Rescheduled (not held, score ahead):
//       only an urgent entry (interrupt, answer) brings it forward.
//   D6  A lease is safe through S2 and the hand host's fence alone; its time limit is there for progress.
//   D7  `attempt` counts takes since the last progress: a reply, a result, or a received entry. What recovery itself appends is none.
//   D8  Scores are times of the store's own clock: a wait is told as a duration, and the step adds it. No caller's clock decides when a session is due.

import type { Fence, Position, SessionId } from "./ids.ts";

/** The longest wait that a score may stand for: one hour. Leases and retry times are shorter. */
export const WAIT_MAX_MS = 3_600_000;

/** The right to write for a session, for a while. */
export interface Lease {
  readonly id: SessionId;
  readonly fence: Fence;
  /** The log's head at the take. */
  readonly head: Position;
  /** Takes since the last progress, this one included: 1 on a healthy session. D7 */
  readonly attempt: number;
  /** How long it holds from the take or the last renewal. */
  readonly leaseMs: number;
}

export interface DueSet {
  /** The earliest due session, or null. `host` is an address at which the taker is reached; `nonce` is fresh for every new take. */
  take(host: string, nonce: string): Promise<Lease | null>;
  /** Prolongs the lease; gives the log's head, or "lost". */
  renew(lease: Lease): Promise<Position | "lost">;
  /** Makes a session due now, whatever it waits for; for operators and tests. Held sessions are left alone. */
  wake(id: SessionId): Promise<void>;
  /** Calls `hear` when a session may have become due; a hint, may be lost: poll as well. */
  onDue(hear: () => void): Promise<() => void>;
}
