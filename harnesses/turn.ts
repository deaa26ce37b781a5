// One run of a harness: the session as the harness sees it. What it may ask for, and what the host makes of it.
//
//   U1  Nothing is written before `begin`, and nothing after the turn was stopped.
//   U2  `begin` is the safe point: what waits is applied there, and its append runs beside the model request; `respond` and `fail` await it.
//   U3  The retry budget and the limits of a turn are the host's: `fail` and `respond` decide, the harness returns.

import type { BrainEntry, Stored } from "../session-store/entry.ts";
import type { SessionError } from "../session-store/events/brain.ts";
import type { AgentSnapshot } from "../session-store/events/log.ts";
import type { SessionId } from "../session-store/ids.ts";
import { mintEvent } from "../session-store/ids.ts";
import type { Calls } from "./calls.ts";
import { appliedEntries, errorEntry, runningEntries, spanFailed } from "./entries.ts";
import { type Halt, weigh } from "./halt.ts";
import type { HarnessSession, ModelFailure, PreviewPiece, Reply, Responded, Span, ToolDescriptor, ToolResult } from "./harness.ts";
import type { LeaseContext } from "./host-context.ts";
import type { Journal } from "./journal.ts";
import { withRepositories } from "./known-repositories.ts";
import { Previews } from "./previews.ts";
import { replyEntries } from "./respond.ts";
import type { ServerLists } from "./server-lists.ts";
import { settleCalls } from "./settle.ts";
import { pause, Stop } from "./stop.ts";
import { toolsOf } from "./tools.ts";
import type { LogView } from "./view.ts";

/** Replies with calls in one turn. */
const ROUNDS_MAX = 500;
/** Replies in a row that were cut off inside a call. */
const TRUNCATED_MAX = 3;
const NOTE_BYTES_MAX = 262_144;

interface OpenSpan extends Span {
  readonly previews: Previews;
  readonly opening: Promise<unknown>;
  readonly entries: readonly BrainEntry[];
  isOpened: boolean;
  streaming: Promise<void> | null;
}

export class Turn implements HarnessSession {
  readonly #context: LeaseContext;
  readonly #journal: Journal;
  readonly #calls: Calls;
  readonly #lists: ServerLists;
  readonly #controller: AbortController;
  readonly model: HarnessSession["model"];
  readonly hands: HarnessSession["hands"];
  #span: OpenSpan | null = null;
  #halt: Halt | null = null;

  constructor(
    context: LeaseContext,
    journal: Journal,
    { calls, lists }: { readonly calls: Calls; readonly lists: ServerLists },
    controller: AbortController,
    reach: Pick<HarnessSession, "model" | "hands">,
  ) {
    this.#lists = lists;
    this.#context = context;
    this.#journal = journal;
    this.#calls = calls;
    this.#controller = controller;
    this.model = reach.model;
    this.hands = reach.hands;
  }

  get id(): SessionId {
    return this.#context.lease.id;
  }
  get agent(): AgentSnapshot {
    const { agent, repositories } = this.#view;
    return repositories.all.length === 0 ? agent : { ...agent, system: withRepositories(agent.system, repositories.all) };
  }
  get signal(): AbortSignal {
    return this.#controller.signal;
  }
  /** Set when `fail` said "stop" or a limit was reached. */
  get halt(): Halt | null {
    return this.#halt;
  }
  get #view(): LogView {
    return this.#journal.view;
  }

  getEvents(slice: { readonly types?: readonly string[] } = {}): readonly Stored["entry"][] {
    const stored = this.#view.entries.map(({ entry }) => entry);
    const all = this.#span && !this.#span.isOpened ? [...stored, ...this.#span.entries] : stored;
    const { types } = slice;
    return types ? all.filter(({ type }) => types.includes(type)) : all;
  }

  async listTools(): Promise<readonly ToolDescriptor[]> {
    return toolsOf(this.agent, this.#view.servers);
  }

  async begin(): Promise<Span> {
    this.signal.throwIfAborted();
    if (this.#span) throw new Error("A span is open: respond or fail first.");
    if (this.#view.ownCalls.length > 0) throw new Error("Calls are open: the model can't be asked.");
    const isFresh = this.#view.status !== "running";
    // What may take a moment is not to hide that the session runs.
    if (this.#lists.mayWait)
      await this.#journal.append([...runningEntries({ id: this.id, view: this.#view }), ...appliedEntries(this.#view.messages)]);
    const lists = await this.#lists.entries(isFresh, this.signal);
    // They stand in the log before the model is told of them.
    if (lists.length > 0)
      await this.#journal.append([...runningEntries({ id: this.id, view: this.#view }), ...appliedEntries(this.#view.messages), ...lists]);
    this.signal.throwIfAborted();
    const span = { id: mintEvent(), messageId: mintEvent() };
    const entries: BrainEntry[] = [
      ...runningEntries({ id: this.id, view: this.#view }),
      ...appliedEntries(this.#view.messages),
      { id: span.id, type: "span.model_request_start" },
    ];
    const { store, lease } = this.#context;
    const previews = new Previews(span.messageId, (preview) => store.preview(lease.id, { ...preview, fence: lease.fence, span: span.id }));
    const opening = this.#journal.append(entries).then(() => {
      open.isOpened = true;
      previews.open();
    });
    const open: OpenSpan = { ...span, previews, opening, entries, isOpened: false, streaming: null };
    // Whoever needs it open awaits it; until then its failure is nobody's.
    opening.catch(() => {});
    this.#span = open;
    return span;
  }

  preview(span: Span, piece: PreviewPiece): void {
    const open = this.#span;
    if (open?.id !== span.id || this.signal.aborted) return;
    open.streaming ??= this.#context.fault("model-streaming");
    open.previews.add(piece);
  }

  async respond(span: Span, reply: Reply): Promise<Responded> {
    const open = await this.#close(span);
    const { agent } = this;
    const { servers } = this.#view;
    const tools = toolsOf(agent, servers);
    const context = { harness: this.#context.harness.name, agent, tools, servers, span: span.id, messageId: span.messageId };
    await this.#journal.append(replyEntries({ ...context, thinkingId: (index) => open.previews.thinkingId(index) }, reply));
    await this.#context.fault("reply-stored");
    await settleCalls(this.#context, this.#journal, this.#calls, this.signal);
    if (this.#view.ownCalls.length > 0) return { results: [], waiting: true };
    this.#checkLimits();
    return { results: this.#results(), waiting: false };
  }

  async fail(span: Span, failure: ModelFailure): Promise<"again" | "stop"> {
    await this.#close(span);
    const { view } = this.#journal;
    const weighed = weigh(this.#context, view, failure);
    if (weighed.type !== "wait") {
      this.#halt = weighed;
      return "stop";
    }
    await this.#journal.append([...spanFailed(view), errorEntry(weighed.error, "retrying")]);
    await pause(weighed.ms, this.signal);
    return "again";
  }

  async note(data: unknown): Promise<void> {
    this.signal.throwIfAborted();
    const text = JSON.stringify(data) ?? "null";
    if (Buffer.byteLength(text) > NOTE_BYTES_MAX) throw new Error(`A note holds at most ${NOTE_BYTES_MAX} bytes.`);
    await this.#journal.append([{ type: "log.note", harness: this.#context.harness.name, data }]);
  }

  /** The run is over, whatever way: nothing more is sent, and what was on its way is in the log. */
  async end(): Promise<void> {
    this.#span?.previews.end();
    this.#span = null;
    await this.#journal.writer.idle();
  }

  async #close(span: Span): Promise<OpenSpan> {
    const open = this.#span;
    if (open?.id !== span.id) throw new Error("This span is not open.");
    // A reply that was faster than its span's append still has its previews: they wait for that append.
    await open.opening;
    open.previews.end();
    await open.streaming;
    this.signal.throwIfAborted();
    this.#span = null;
    return open;
  }

  #checkLimits(): void {
    const { truncatedInRow, rounds } = this.#view;
    if (truncatedInRow >= TRUNCATED_MAX)
      this.#stopWith({
        type: "model_request_failed_error",
        message: `The model's reply was cut off by the output token limit inside a tool call ${TRUNCATED_MAX} times in a row.`,
      });
    if (rounds >= ROUNDS_MAX)
      this.#stopWith({ type: "tool_use_limit_reached_error", message: `The turn reached its limit of ${ROUNDS_MAX} tool rounds.` });
  }

  #stopWith(error: Omit<SessionError, "retry_status">): never {
    this.#halt = { type: "exhausted", error };
    const stop = new Stop("limit");
    this.#controller.abort(stop);
    throw stop;
  }

  #results(): readonly ToolResult[] {
    return (this.#view.lastReply?.calls ?? []).flatMap(({ tool_use_id, event_id }) => {
      const result = this.#view.result(event_id);
      return result ? [{ tool_use_id, ...result }] : [];
    });
  }
}
