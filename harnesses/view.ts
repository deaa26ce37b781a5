// A session's log as its host holds it in memory: what the entries come to, folded one by one.
//
//   V1  The fold depends on the entries and their order alone: every host that read the log has the same view.
//   V2  Positions are dense: an entry that is known is skipped, one that would leave a gap is refused.

import type { Stored } from "../session-store/entry.ts";
import type { SessionUsage, StopReason } from "../session-store/events/brain.ts";
import type { ClientEvent } from "../session-store/events/client.ts";
import type { ResultBlock } from "../session-store/events/content.ts";
import type { AgentSnapshot, LogReply } from "../session-store/events/log.ts";
import type { EventId, Fence, Position } from "../session-store/ids.ts";
import { position } from "../session-store/ids.ts";
import { Asked } from "./asked.ts";
import { KnownRepositories } from "./known-repositories.ts";
import { KnownServers } from "./known-servers.ts";
import { Outcomes } from "./outcomes.ts";
import { failsTurn } from "./retry.ts";
import { UsageCount } from "./usage-count.ts";
import { weightOf } from "./weight.ts";

/** Stop reasons of a reply that ends in the middle of a call. */
const CUT_OFF: ReadonlySet<string> = new Set(["max_tokens", "model_context_window_exceeded"]);

type Confirmation = Extract<ClientEvent, { type: "user.tool_confirmation" }>;

/** A call without a result. */
export interface Call {
  readonly id: EventId;
  readonly kind: "allow" | "ask" | "deny" | "custom";
  /** The MCP server that it goes to; null: the sandbox, or nobody here. */
  readonly server: string | null;
  /** Of an MCP server's tool: the server's own. */
  readonly name: string;
  readonly input: unknown;
  readonly position: Position;
  /** Of the lease that wrote it, or that a confirmation took effect in: an older one may have asked for it already. */
  readonly fence: Fence;
  /** What a client said to an `ask` call, and whether it took effect. */
  readonly answer: { readonly result: "allow" | "deny"; readonly isApplied: boolean } | null;
}

/** A received event that waits for a brain. */
export interface Waiting {
  readonly position: Position;
  readonly event: ClientEvent;
}

export interface CallResult {
  readonly content: readonly ResultBlock[];
  readonly is_error: boolean;
}

export interface BoundHand {
  readonly hand: string;
  readonly host: string;
  readonly state: "bound" | "lost";
  readonly position: Position;
}

export class LogView {
  readonly outcomes = new Outcomes();
  readonly servers = new KnownServers();
  readonly repositories = new KnownRepositories();
  readonly asked = new Asked();
  readonly #entries: Stored[] = [];
  readonly #calls = new Map<EventId, Call>();
  readonly #waiting = new Map<EventId, Waiting>();
  #results = new Map<string, CallResult>();
  #agent: AgentSnapshot | null = null;
  readonly #usage = new UsageCount();
  #bytes = 0;

  environmentId = "";
  vaultIds: readonly string[] = [];
  workspace = "";
  status: "idle" | "running" | "rescheduled" = "idle";
  lastStop: StopReason | null = null;
  isTerminated = false;
  openSpan: EventId | null = null;
  hand: BoundHand | null = null;
  lastReply: LogReply | null = null;
  /** Something was said or came to a result since the last reply: the model has something to answer. */
  hasQuestion = false;
  /** Failed attempts in a row: `session.error` retrying since a reply, a result or an idle. */
  failures = 0;
  /** Hand-overs that wrote `session.status_rescheduled` since the last progress: takes that are no crash. */
  handOvers = 0;
  /** Replies with calls in this turn. */
  rounds = 0;
  /** Replies in a row that were cut off inside a call. */
  truncatedInRow = 0;

  get head(): Position {
    return position(this.#entries.length);
  }
  get entries(): readonly Stored[] {
    return this.#entries;
  }
  /** About what the entries take up in memory. */
  get bytes(): number {
    return this.#bytes;
  }
  get agent(): AgentSnapshot {
    if (!this.#agent) throw new Error("The log has no log.created.");
    return this.#agent;
  }
  /** Calls without a result, in call order. */
  get openCalls(): readonly Call[] {
    return [...this.#calls.values()];
  }
  /** Those that the model made. */
  get ownCalls(): readonly Call[] {
    return this.openCalls.filter(({ id }) => !this.asked.has(id));
  }
  /** Results of the last reply's calls. */
  result(id: EventId): CallResult | undefined {
    return this.#results.get(id);
  }
  /** What waits for a brain, in arrival order; an outcome waits until it is taken up. */
  get waiting(): readonly Waiting[] {
    return [...this.#waiting.values()];
  }
  /** What of it the next model request takes along. */
  get messages(): readonly Waiting[] {
    return this.waiting.filter(({ event }) => isSaid(event));
  }
  get confirmations(): readonly (Waiting & { readonly event: Confirmation })[] {
    return this.waiting.filter((one): one is Waiting & { event: Confirmation } => one.event.type === "user.tool_confirmation");
  }
  get hasInterrupt(): boolean {
    return this.waiting.some(({ event }) => event.type === "user.interrupt");
  }
  /** Cumulative usage, with the time that has been active until `now`. */
  usage(now: number): SessionUsage {
    return this.#usage.until(now);
  }

  /** Takes entries in order; false at the first one that would leave a gap. V2 */
  fold(entries: readonly Stored[]): boolean {
    for (const stored of entries) {
      if (stored.position <= this.head) continue;
      if (stored.position > this.head + 1) return false;
      this.#entries.push(stored);
      this.#bytes += weightOf(stored);
      this.#take(stored);
    }
    return true;
  }

  #take(stored: Stored): void {
    const { entry, at } = stored;
    this.outcomes.take(entry);
    this.servers.take(stored);
    this.repositories.take(stored);
    this.asked.take(stored);
    switch (entry.type) {
      case "log.created":
        this.#agent = entry.agent;
        this.environmentId = entry.environment_id;
        this.vaultIds = entry.vault_ids;
        this.workspace = entry.workspace;
        break;
      case "session.updated":
        if (entry.agent) this.#agent = entry.agent;
        break;
      case "log.received":
        this.#receive(stored, entry.event, entry.waits);
        break;
      case "log.applied":
      case "log.outcome":
        this.#apply(entry.id, stored.fence);
        break;
      case "log.reply":
        this.#reply(entry);
        break;
      case "log.hand":
        if (entry.server === undefined) this.hand = { hand: entry.hand, host: entry.host, state: entry.state, position: stored.position };
        break;
      case "agent.tool_use":
        this.#open(stored, entry.id, entry.evaluated_permission, null, entry.name, entry.input);
        break;
      case "agent.mcp_tool_use":
        this.#open(stored, entry.id, entry.evaluated_permission, entry.mcp_server_name, entry.name, entry.input);
        break;
      case "agent.mcp_tool_result":
        this.#progress();
        this.#close(entry.mcp_tool_use_id, entry);
        break;
      case "agent.custom_tool_use":
        this.#open(stored, entry.id, "custom", null, entry.name, entry.input);
        break;
      case "agent.tool_result":
        this.#progress();
        this.#close(entry.tool_use_id, entry);
        break;
      case "user.custom_tool_result":
        this.#close(entry.custom_tool_use_id, entry);
        break;
      case "span.model_request_start":
        this.openSpan = entry.id;
        break;
      case "span.model_request_end":
        this.openSpan = null;
        this.#usage.count(entry.model_usage);
        break;
      case "span.outcome_evaluation_end":
        this.#evaluated(entry);
        break;
      case "session.error":
        if (failsTurn(entry.error)) this.failures += 1;
        break;
      case "session.status_running":
        this.status = "running";
        this.#usage.run(at);
        break;
      case "session.status_rescheduled":
        this.status = "rescheduled";
        this.handOvers += 1;
        this.#usage.rest(at);
        break;
      case "session.status_idle":
        this.status = "idle";
        this.lastStop = entry.stop_reason;
        this.failures = 0;
        this.rounds = 0;
        this.truncatedInRow = 0;
        this.#usage.rest(at);
        break;
      case "session.status_terminated":
        this.isTerminated = true;
        this.#usage.rest(at);
        break;
    }
  }

  #receive(stored: Stored, event: ClientEvent, waits: boolean): void {
    if (event.type !== "user.interrupt" || waits) this.handOvers = 0;
    if (event.type === "user.define_outcome") this.outcomes.define(event, stored.position);
    if (waits || event.type === "user.define_outcome") this.#waiting.set(event.id, { position: stored.position, event });
    if (event.type === "user.tool_confirmation") this.#answer(event, null);
    if (event.type === "user.custom_tool_result") this.#close(event.custom_tool_use_id, resultOf(event));
    if (event.type === "user.tool_result") this.#close(event.tool_use_id, resultOf(event));
  }

  #apply(id: EventId, fence: Fence): void {
    const event = this.#waiting.get(id)?.event;
    this.#waiting.delete(id);
    if (event?.type === "user.tool_confirmation") this.#answer(event, fence);
    if (event && isSaid(event)) this.hasQuestion = true;
  }

  /** What is to be revised, and what was not reached, is the agent's to answer; each iteration has the limits of a turn. */
  #evaluated({ result, usage }: Extract<Stored["entry"], { type: "span.outcome_evaluation_end" }>): void {
    this.#progress();
    this.#usage.count(usage);
    this.rounds = 0;
    this.truncatedInRow = 0;
    if (result === "needs_revision" || result === "max_iterations_reached") this.hasQuestion = true;
  }

  /** `applied`: the fence under which it took effect; null: it only came. */
  #answer(event: Confirmation, applied: Fence | null): void {
    const call = this.#calls.get(event.tool_use_id as EventId);
    if (call) this.#calls.set(call.id, { ...call, fence: applied ?? call.fence, answer: { result: event.result, isApplied: applied !== null } });
  }

  #reply(reply: LogReply): void {
    this.#progress();
    this.lastReply = reply;
    this.#results = new Map();
    this.hasQuestion = false;
    this.#usage.expectLong(reply.usage.cache_creation_1h_input_tokens ?? 0);
    if (reply.calls.length > 0) this.rounds += 1;
    const isCut = CUT_OFF.has(reply.stop_reason ?? "") && reply.content.at(-1)?.type === "tool_use";
    this.truncatedInRow = isCut ? this.truncatedInRow + 1 : 0;
  }

  #open(stored: Stored, id: EventId, kind: Call["kind"], server: string | null, name: string, input: unknown): void {
    this.#calls.set(id, { id, kind, server, name, input, position: stored.position, fence: stored.fence, answer: null });
  }

  #close(id: string, result: CallResult): void {
    this.#calls.delete(id as EventId);
    if (this.asked.has(id as EventId)) return;
    this.#results.set(id, { content: result.content, is_error: result.is_error });
    this.hasQuestion = true;
  }

  #progress(): void {
    this.failures = 0;
    this.handOvers = 0;
  }
}

const isSaid = ({ type }: ClientEvent): boolean => type === "user.message" || type === "system.message" || type === "user.define_outcome";

function resultOf(event: { content?: readonly ResultBlock[] | null | undefined; is_error?: boolean | null | undefined }): CallResult {
  return { content: event.content ?? [], is_error: event.is_error ?? false };
}
