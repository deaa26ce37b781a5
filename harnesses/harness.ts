// The plug-in contract: what a harness is given, and what it gives back. A harness imports this file and nothing above it.
//
//   H1  A harness is stateless: one `run` is one turn (or the rest of one), started from any log; nothing outlives it.
//   H2  The host alone writes `session.*`, `agent.*` and `span.*`. A harness can't append before it may, run a tool twice or forget a result.
//   H3  A throw from `run` is a failed attempt: tried again with back-off, then `session.error` and `retries_exhausted`.
//   H4  When `signal` aborts (interrupt, lost lease, shutdown) whatever `run` awaits rejects with the signal's reason; just let it through.
//   H5  `evaluate` is one attempt and writes nothing: retries, their budget and what comes of a verdict are the host's.

import type { Stored } from "../session-store/entry.ts";
import type { ModelUsage, SessionErrorType } from "../session-store/events/brain.ts";
import type { ResultBlock } from "../session-store/events/content.ts";
import type { AgentSnapshot, ReplyBlock } from "../session-store/events/log.ts";
import type { EventId, SessionId } from "../session-store/ids.ts";

export interface Harness {
  readonly name: string;
  run(session: HarnessSession): Promise<RunEnd>;
  /** Judges the work so far by a rubric: one request to the model, in a context of its own and without tools. Without it outcomes fail. H5 */
  evaluate?(task: Evaluation): Promise<Judged>;
}

/** How a run ended. `waiting`: calls are open that a client must answer. `stopped`: `fail` said "stop". */
export type RunEnd =
  | { readonly type: "end_turn" }
  | { readonly type: "waiting" }
  | { readonly type: "stopped" }
  | { readonly type: "refusal"; readonly category: string | null; readonly explanation: string | null };

export interface HarnessSession {
  readonly id: SessionId;
  readonly agent: AgentSnapshot;
  readonly signal: AbortSignal;
  /** Where the model is: the vault proxy's model route and a grant for this session. No key: the vault proxy has it. */
  model(): Promise<{ readonly baseURL: string; readonly grant: string }>;
  /**
   * The session's hands as an MCP server, for a process of the harness's own: its address, and a key that is good for this session, under this lease,
   * for some minutes; asked again it gives a fresh one. What is called there is judged, run and logged by the host like a call of the model.
   */
  hands(): Promise<{ readonly url: string; readonly key: string }>;
  /** The log as far as this host knows it, oldest first, what `begin` and `respond` just wrote included. */
  getEvents(slice?: { readonly types?: readonly string[] }): readonly Stored["entry"][];
  /** Fixed order, additions at the end: the serialised list is the same at every call until the configuration changes. */
  listTools(): Promise<readonly ToolDescriptor[]>;
  /** Safe point: what waits is applied, the span opens, the message id is minted. Its append runs beside the model request. */
  begin(): Promise<Span>;
  /** A piece of text (or the start of a thinking block) as it comes; may be dropped. */
  preview(span: Span, piece: PreviewPiece): void;
  /** Hands over the finished reply. The host appends it, judges each call, runs what is allowed and appends each result as it comes. */
  respond(span: Span, reply: Reply): Promise<Responded>;
  /** The model request failed. "again": back-off is over, begin anew. "stop": return `stopped`. The budget is the host's. */
  fail(span: Span, failure: ModelFailure): Promise<"again" | "stop">;
  /** Remembers `data` in the log (`log.note`) under this harness's name. */
  note(data: unknown): Promise<void>;
}

/** What is to be judged: the work that the log holds, by this rubric. */
export interface Evaluation {
  readonly agent: AgentSnapshot;
  readonly signal: AbortSignal;
  readonly description: string;
  readonly rubric: string;
  model: HarnessSession["model"];
  getEvents(): readonly Stored["entry"][];
}

/** `failed` as a result: the rubric does not fit the work. As a type: there is no verdict, and `usage` is what that took. */
export type Judged =
  | {
      readonly type: "verdict";
      readonly result: "satisfied" | "needs_revision" | "failed";
      readonly explanation: string;
      readonly usage: ModelUsage | null;
    }
  | { readonly type: "failed"; readonly failure: ModelFailure; readonly usage: ModelUsage | null };

export interface Span {
  readonly id: EventId;
  readonly messageId: EventId;
}

export type PreviewPiece =
  | { readonly type: "text"; readonly index: number; readonly text: string }
  | { readonly type: "thinking"; readonly index: number };

/** A tool as the model is told of it. */
export interface ToolDescriptor {
  readonly name: string;
  readonly description: string;
  readonly input_schema: Readonly<Record<string, unknown>>;
  /** May run beside others and again: it changes nothing. */
  readonly isReadOnly: boolean;
  /** Run twice is the same as run once. */
  readonly isIdempotent: boolean;
  readonly source: "hand" | "web" | "custom" | "mcp";
  /** With source `mcp`: the server, and the tool as the server calls it. */
  readonly mcp?: { readonly server: string; readonly name: string };
}

export interface Reply {
  readonly model: string;
  readonly stop_reason: string | null;
  readonly content: readonly ReplyBlock[];
  /** Tool use ids of calls that were cut off by the token limit: never run, answered with the cause. */
  readonly truncated: readonly string[];
  readonly usage: ModelUsage & { readonly cache_creation_1h_input_tokens?: number };
}

export interface Responded {
  readonly results: readonly ToolResult[];
  /** A client must answer something: return `waiting`. */
  readonly waiting: boolean;
}

export interface ToolResult {
  readonly tool_use_id: string;
  readonly content: readonly ResultBlock[];
  readonly is_error: boolean;
}

export interface ModelFailure {
  readonly type: Extract<SessionErrorType, "model_overloaded_error" | "model_rate_limited_error" | "model_request_failed_error" | "unknown_error">;
  /** For people; no secret, no address. */
  readonly message: string;
  /** A later request may succeed (408, 409, 429, 5xx, cut or silent stream, connection trouble). */
  readonly isTransient: boolean;
  /** The shortest wait that the server asked for. */
  readonly retryAfterMs?: number;
}
