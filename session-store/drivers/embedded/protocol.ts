// What the main thread asks of the store's thread, and what it gets. Entries and bodies cross as JSON text, so that the queue can be
// measured and nothing is copied twice.

import type { DocumentQuery } from "../../documents.ts";
import type { AppendEffects } from "../../effects.ts";
import type { RefusalCode } from "../../refusal.ts";
import type { SessionQuery } from "../../store.ts";

export interface WorkerOptions {
  readonly dir: string;
  readonly leaseMs: number;
  readonly lockWaitMs: number;
  readonly synchronous: "FULL" | "NORMAL";
  readonly pagesMax: number | null;
}

interface EntryText {
  readonly type: string;
  /** The client's event id, for entries from outside. */
  readonly id: string | null;
  readonly json: string;
}

/** Entries and what they come to. */
export interface Append {
  readonly entries: readonly EntryText[];
  readonly effects: AppendEffects;
}

export interface StoredText {
  readonly position: number;
  readonly at: number;
  readonly fence: number;
  readonly json: string;
}

/** A fresh append tells its place; one that is answered again tells all that is stored. */
export type Appended = { readonly from: number; readonly at: number } | { readonly again: readonly StoredText[] };

export interface RecordText {
  readonly id: string;
  readonly workspace: string;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly head: number;
  readonly gate: number;
  readonly fence: number;
  readonly isHeld: boolean;
  readonly dueAt: number | null;
  readonly projection: readonly { readonly name: string; readonly value: string }[];
}

export interface LeaseText {
  readonly id: string;
  readonly fence: number;
  readonly head: number;
  readonly attempt: number;
}

export interface DocumentText {
  readonly kind: string;
  readonly id: string;
  readonly revision: number;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly isArchived: boolean;
  readonly body: string;
}

export interface WriteText {
  readonly kind: string;
  readonly id: string;
  readonly body: string;
  readonly replaces: number;
  readonly isArchived: boolean;
  readonly name: string | null;
}

interface Turn {
  readonly id: string;
  readonly fence: number;
  readonly n: number;
  readonly append: Append;
}

interface ReceiveAsk {
  readonly id: string;
  readonly append: Append;
  readonly gate: number | null;
  readonly onlyIdle: boolean;
  readonly digest: string;
  readonly retryDigest: string | null;
}

interface EventsAsk {
  readonly id: string;
  readonly after: number;
  readonly before: number;
  readonly types: readonly string[] | null;
  readonly order: "asc" | "desc";
  readonly limit: number;
}

export interface Calls {
  create: { ask: { id: string; workspace: string; digest: string; append: Append }; answer: RecordText };
  receive: { ask: ReceiveAsk; answer: Appended | "moved" };
  emitEvents: { ask: Turn & { readonly isRecovery: boolean }; answer: Appended };
  finish: { ask: Turn & { readonly seen: number; readonly waitMs: number | null }; answer: Appended | "more" };
  release: { ask: Turn & { readonly waitMs: number }; answer: Appended };
  getEvents: { ask: EventsAsk; answer: readonly StoredText[] };
  getSession: { ask: { id: string }; answer: RecordText };
  listSessions: { ask: { workspace: string; query: SessionQuery }; answer: readonly RecordText[] };
  recall: { ask: { id: string; retryDigest: string }; answer: readonly number[] | null };
  forget: { ask: { id: string; retryDigest: string }; answer: null };
  remove: { ask: { id: string }; answer: null };
  take: { ask: { host: string; nonce: string }; answer: LeaseText | null };
  renew: { ask: { id: string; fence: number }; answer: number | "lost" };
  wake: { ask: { id: string }; answer: null };
  put: {
    ask: { workspace: string; writes: readonly WriteText[]; requires: readonly { readonly kind: string; readonly id: string }[] };
    answer: readonly DocumentText[];
  };
  get: { ask: { workspace: string; kind: string; id: string }; answer: DocumentText | null };
  list: { ask: { workspace: string; kind: string; query: DocumentQuery }; answer: readonly DocumentText[] };
  discard: { ask: { workspace: string; kind: string; id: string; unlessAny: string | null }; answer: null };
  ping: { ask: null; answer: null };
}
export type CallName = keyof Calls;

/** Calls that change nothing: they need no savepoint, and one that got no answer is safe to make again. */
export const READS: ReadonlySet<CallName> = new Set(["getEvents", "getSession", "listSessions", "recall", "get", "list"]);

export type Request = { [Name in CallName]: { readonly number: number; readonly name: Name; readonly ask: Calls[Name]["ask"] } }[CallName];
export type ToWorker = Request | { readonly name: "close" };

export type Answer =
  | { readonly number: number; readonly value: Calls[CallName]["answer"] }
  | { readonly number: number; readonly refused: RefusalCode; readonly says: string; readonly detail: string };

/** What rings once a batch is durable: the new head of a log, or -1 when it was removed. */
export interface Ring {
  readonly id: string;
  readonly head: number;
}

export type FromWorker =
  | { readonly type: "ready" }
  | { readonly type: "unfit"; readonly says: string }
  | { readonly type: "answers"; readonly answers: readonly Answer[]; readonly rings: readonly Ring[]; readonly isDue: boolean }
  | { readonly type: "fatal"; readonly says: string };
