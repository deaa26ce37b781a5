// The session store: logs, who may write them, when to look at them next, and the documents beside them.
//
//   S1  Positions of a log are dense: 1, 2, 3 … Entries are immutable; nothing is rewritten or trimmed.
//   S2  Only the newest fence writes, and only while its lease is held; the check is in the same step as the append.
//   S3  A resend (same fence, same n) gets the answer it missed, its time included.
//   S4  One append in flight a lease: n = last answers again, n = last + 1 appends, anything else is refused.
//   S5  What resolved is durable. What was refused changed nothing. `store_in_doubt`: the answer was lost; the same call again is safe.
//   S6  Times are stamped inside the step and never go back along a log.
//   S7  The projection is kept by the same step as the entries it follows from.
//   S8  A received entry and the wake it causes are one step; an ended turn leaves nothing behind that waits (see due.ts).
//   S9  A client's event id is stored once: known ids answer with what is stored, before the gate is looked at.

import type { Documents } from "./documents.ts";
import type { DueSet, Lease } from "./due.ts";
import type { BrainEntry, OutsideEntry, Stored } from "./entry.ts";
import type { LogCreated } from "./events/log.ts";
import type { Fence, Position, SessionId, Topic } from "./ids.ts";
import type { SessionRecord, SessionStatus } from "./session.ts";

export interface NewSession {
  readonly id: SessionId;
  readonly created: LogCreated;
  /** Initial events, received in the same step. */
  readonly entries: readonly OutsideEntry[];
  /** Digest of the request that an idempotency key stands for: the same id with another digest is refused (`idempotency_conflict`). */
  readonly digest?: string;
}

export interface ReceiveOptions {
  /** The gate that admission was checked against; when it moved, nothing is stored and the answer is "moved". */
  readonly gate?: Position;
  /** Refuse (`session_busy`) unless the session is idle: absent from the due-set. */
  readonly onlyIdle?: boolean;
  /** Digest of the body behind an idempotency key; a known id with another digest is refused (`idempotency_conflict`). */
  readonly digest?: string;
  /** Remember digest → event ids for 60 s, for a retried send whose answer never got out; see `recall`. */
  readonly retryDigest?: string;
}

/** Which entries: positions in (after, before), of these types, oldest first unless `order` says otherwise. */
export interface Slice {
  readonly after?: Position;
  readonly before?: Position;
  readonly types?: readonly string[];
  readonly order?: "asc" | "desc";
  /** At most so many entries; 500 by default. A page also ends at about 4 MiB, never before its first entry. */
  readonly limit?: number;
}

export interface SessionQuery {
  readonly order: "asc" | "desc";
  readonly limit: number;
  /** Strictly beyond this place, in the query's order. */
  readonly beyond?: { readonly createdAt: number; readonly id: SessionId };
  readonly createdAt?: { readonly gt?: number; readonly gte?: number; readonly lt?: number; readonly lte?: number };
  readonly agentId?: string;
  readonly agentVersion?: number;
  readonly statuses?: readonly SessionStatus[];
  readonly includeArchived?: boolean;
}

/** A hint that there is something new; the truth is read from the log. Best effort: it may be lost, doubled or late. */
export type Bell =
  | { readonly type: "head"; readonly head: Position }
  | { readonly type: "preview"; readonly preview: Preview }
  /** The session was deleted, or the connection that carries bells was lost: look for yourself. */
  | { readonly type: "look" };

/** A piece of a model reply that is still being made. `n` counts 0, 1, 2 … within one span of one fence. Never in the log. */
export interface Preview {
  readonly fence: Fence;
  readonly span: string;
  readonly n: number;
  readonly event: { readonly type: "agent.message" | "agent.thinking"; readonly id: string };
  /** Absent: the event starts. */
  readonly delta?: { readonly index: number; readonly text: string };
}

export interface SessionStore extends DueSet, Documents {
  /** Makes a session: position 1 is `created`, then its initial events; due at once if any of them wakes. Known id: answers with what is stored. */
  create(session: NewSession): Promise<SessionRecord>;
  /** Appends what came from outside, makes the session due if an entry wakes it, rings. All or none. S8 S9 */
  receive(id: SessionId, entries: readonly OutsideEntry[], options?: ReceiveOptions): Promise<readonly Stored[] | "moved">;
  /** A brain's entries, all or none, durable when it resolves. `n` counts this lease's appends: 1, 2, 3 … S2–S5 */
  emitEvents(lease: Lease, n: number, entries: readonly BrainEntry[], options?: { readonly isRecovery?: boolean }): Promise<readonly Stored[]>;
  /** Ends a turn: appends and gives the lease back only if head = `seen`; otherwise appends nothing and answers "more".
   *  Afterwards the session is due in `waitMs` if given, now if something waits and no call is open, else not at all. D8 */
  finish(lease: Lease, n: number, seen: Position, entries: readonly BrainEntry[], waitMs?: number): Promise<readonly Stored[] | "more">;
  /** Gives the lease back without the head check, to be due in `waitMs`: for a retry later, or a shutdown. D8 */
  release(lease: Lease, n: number, entries: readonly BrainEntry[], waitMs: number): Promise<readonly Stored[]>;

  /** Entries by position. An unknown or deleted session is refused (`session_not_found`). */
  getEvents(id: SessionId, slice?: Slice): Promise<readonly Stored[]>;
  getSession(id: SessionId): Promise<SessionRecord>;
  listSessions(workspace: string, query: SessionQuery): Promise<readonly SessionRecord[]>;
  /** Event ids that an earlier send with this retry digest stored within 60 s; null when there are none. */
  recall(id: SessionId, retryDigest: string): Promise<readonly Position[] | null>;
  /** The answer of that send got out: a retry of it would be a new send. */
  forget(id: SessionId, retryDigest: string): Promise<void>;
  /** Removes a session that is idle (`session_busy` otherwise); a tombstone stays, so that its id is never used again. */
  remove(id: SessionId): Promise<void>;

  /** Calls `hear` for every bell of a session, or of a topic, until the returned function is called. */
  listen(id: SessionId | Topic, hear: (bell: Bell) => void): Promise<() => void>;
  /** Tells whoever listens to a topic, on any node, to look at what it watches there. A hint like every bell. */
  ring(topic: Topic): void;
  /** Rings with a preview; best effort, never durable. */
  preview(id: SessionId, preview: Preview): void;

  /** Is the store reachable and able to write? Refuses (`store_busy`) when not, within 2 s. */
  ping(): Promise<void>;
  close(): Promise<void>;
}
