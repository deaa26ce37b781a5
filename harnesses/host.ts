// The host drives one leased session: reads its log, brings it to rest, lets the harness think, and gives the lease back when nothing is left to do.
//
//   G1  Every step is read off the log (steps.ts): a host that took over goes on where the log ends.
//   G2  A turn ends in one step with the lease, and only if nothing came meanwhile (`finish`); otherwise it goes on.
//   G3  A throw of a harness is a failed attempt of its session; other sessions do not notice.
//   G4  After the lease is lost nothing is written; after a shutdown the session is due again at once, its tools left running.

import type { Lease } from "../session-store/due.ts";
import type { BrainEntry } from "../session-store/entry.ts";
import type { StopDetails, StopReason } from "../session-store/events/brain.ts";
import { Asks } from "./asks.ts";
import { Bindings } from "./binding.ts";
import { Calls } from "./calls.ts";
import { appliedEntries, errorEntry, idleEntries, rescheduledEntries, runningEntries, spanFailed } from "./entries.ts";
import { evaluate } from "./evaluate.ts";
import { type Halt, rescheduleEntries } from "./halt.ts";
import type { RunEnd } from "./harness.ts";
import type { HostContext, LeaseContext } from "./host-context.ts";
import { Journal } from "./journal.ts";
import { LeaseKeeper } from "./lease-keeper.ts";
import { evaluationEnd, interrupted } from "./outcomes.ts";
import { Reach } from "./reach.ts";
import { retryAfter } from "./retry.ts";
import { ServerLists } from "./server-lists.ts";
import { awaitCalls, settleCalls } from "./settle.ts";
import type { Step } from "./steps.ts";
import { isSaid, nextStep } from "./steps.ts";
import { aborted, passOn, Stop } from "./stop.ts";
import { Turn } from "./turn.ts";
import type { LogView } from "./view.ts";

/** How a lease is given back. `insists`: also when more came, unless that is an interrupt which the entries don't apply. */
interface Ending {
  entries(): readonly BrainEntry[];
  readonly waitMs?: number;
  readonly insists?: "always" | "unless_interrupted";
}

/** Drives a session until its lease is given back or lost. Never rejects: what fails is logged, and another host goes on. */
export async function drive(context: HostContext, lease: Lease, takenAt: number, shutdown: AbortSignal): Promise<void> {
  const { log } = context;
  const facts = { sessionId: lease.id, fence: lease.fence };
  const host = new Host(context, lease, takenAt, shutdown);
  let isGivenBack = false;
  try {
    await host.drive();
    isGivenBack = true;
  } catch (error) {
    if (error instanceof Stop && error.kind === "lease_lost") log.warn({ ...facts, err: error.cause }, "lease.lost");
    else log.error({ ...facts, err: error }, "session.failed");
  } finally {
    host.close();
    if (isGivenBack) context.views.keep(lease.id, host.view);
  }
}

class Host {
  readonly #context: LeaseContext;
  readonly #shutdown: AbortSignal;
  readonly #keeper: LeaseKeeper;
  readonly #journal: Journal;
  readonly #bindings: Bindings;
  readonly #lists: ServerLists;
  readonly #calls: Calls;
  readonly #asks: Asks;
  readonly #reach: Reach;
  /** Ends what still waits for a hand when the lease is given back; the tools themselves go on. */
  readonly #over = new AbortController();
  #controller: AbortController | null = null;
  #recovered: Promise<void> | null = null;

  constructor(context: HostContext, lease: Lease, takenAt: number, shutdown: AbortSignal) {
    this.#shutdown = shutdown;
    this.#keeper = new LeaseKeeper(context.store, lease, takenAt, (head) => this.#journal.noteHead(head));
    this.#context = {
      ...context,
      lease,
      leaseSignal: AbortSignal.any([this.#keeper.signal, this.#over.signal]),
      loseLease: (cause) => this.#keeper.lose(cause),
      handGrant: (vaults) => this.#reach.grants.forHands(vaults),
      wayOut: () => this.#reach.wayOut.current(),
    };
    this.#journal = new Journal(context.store, lease, this.#keeper, { onNews: () => this.#hearNews(), kept: context.views.take(lease.id) });
    this.#bindings = new Bindings(this.#context, this.#journal);
    this.#lists = new ServerLists(this.#context, this.#journal, this.#bindings);
    this.#calls = new Calls(this.#context, this.#journal, this.#bindings);
    this.#asks = new Asks(this.#context, this.#journal, this.#calls);
    this.#reach = new Reach(context, lease, () => this.view);
  }

  get view(): LogView {
    return this.#journal.view;
  }
  get #session() {
    return { id: this.#context.lease.id, view: this.view };
  }

  async drive(): Promise<void> {
    await this.#context.fault("taken");
    await this.#journal.open();
    this.#bindings.announce();
    this.#asks.open();
    for (;;) {
      this.#keeper.signal.throwIfAborted();
      if (this.#shutdown.aborted) return this.#handOver();
      const ending = await this.#take(nextStep(this.view, this.#context.lease.attempt));
      if (ending && (await this.#finish(ending))) return;
    }
  }

  close(): void {
    this.#keeper.stop();
    this.#journal.close();
    this.#over.abort(new Stop("lease_lost"));
  }

  // An interrupt stops whatever the turn awaits; the rest of the news is read off the log at the next step.
  #hearNews(): void {
    if (this.view.hasInterrupt) this.#controller?.abort(new Stop("interrupted"));
    else if (!this.#shutdown.aborted) this.#asks.look();
  }

  async #take(step: Step): Promise<Ending | null> {
    switch (step.type) {
      case "nothing":
        return { entries: () => [] };
      case "give_up":
        return this.#giveUp();
      case "close_span":
        await this.#recover();
        await this.#journal.append(spanFailed(this.view), { isRecovery: true });
        return null;
      case "interrupt":
        return this.#interrupt();
      case "calls":
        return this.#settle((signal) => settleCalls(this.#context, this.#journal, this.#calls, signal));
      case "asked":
        return this.#settle((signal) => awaitCalls(this.#journal, this.#calls, signal));
      case "wait":
        return { entries: () => (isSaid(this.view, step.ids) ? [] : this.#idle({ type: "requires_action", event_ids: step.ids })) };
      case "run":
        return this.#stoppable((controller) => this.#run(controller));
      case "evaluate":
        return this.#stoppable(async ({ signal }) => {
          const halt = await evaluate(this.#context, this.#journal, this.#reach.model, signal);
          return halt && this.#halted(halt);
        });
      case "end":
        return { entries: () => (step.stop.type === "refusal" ? this.#refused(null, null) : this.#idle(step.stop)) };
    }
  }

  async #finish(ending: Ending): Promise<boolean> {
    await this.#context.fault("before-finish");
    for (;;) {
      const answer = await this.#journal.writer.finish(this.view.head, ending.entries(), ending.waitMs);
      if (answer === "done") return true;
      await this.#journal.read();
      const insists = ending.insists === "always" || (ending.insists === "unless_interrupted" && !this.view.hasInterrupt);
      if (!insists) return false;
    }
  }

  /** Lets the harness think until it ends, throws, or is stopped. */
  async #run(controller: AbortController): Promise<Ending | null> {
    const { harness } = this.#context;
    const from = this.view.head;
    const turn = new Turn(this.#context, this.#journal, { calls: this.#calls, lists: this.#lists }, controller, this.#reach);
    const stop = aborted(controller.signal);
    try {
      const running = harness.run(turn);
      // A harness that was stopped may still fail: its turn is over by then.
      running.catch(() => {});
      const end = await Promise.race([running, stop.promise]);
      await turn.end();
      if (end.type === "stopped" && turn.halt) return this.#halted(turn.halt);
      if (this.view.head === from) throw new Error("The harness ended its run without doing anything.");
      return this.#ended(end);
    } catch (error) {
      await turn.end();
      if (turn.halt) return this.#halted(turn.halt);
      throw error;
    } finally {
      stop.off();
    }
  }

  #ended(end: RunEnd): Ending | null {
    if (end.type === "stopped") throw new Error("The harness stopped without being told to.");
    const { messages, hasInterrupt, openCalls, outcomes } = this.view;
    if (end.type === "waiting" || hasInterrupt || openCalls.length > 0) return null;
    if (end.type === "refusal") return { entries: () => this.#refused(end.category, end.explanation) };
    return messages.length > 0 || outcomes.current ? null : { entries: () => this.#idle({ type: "end_turn" }) };
  }

  /** Null: what was lost with a worker between a refusal and its idle is the provider's wording, not the fact. */
  #refused(category: string | null, explanation: string | null): readonly BrainEntry[] {
    const given = this.view.outcomes.all.filter(({ isTakenUp }) => isTakenUp);
    const ended = given.map((outcome) => evaluationEnd(outcome, "failed", "The model refused to go on."));
    return [...ended, ...this.#idle({ type: "refusal" }, { type: "refusal", category, explanation })];
  }

  #halted(halt: Halt): Ending {
    // A call that fails its turn each time would fail the next ones too: none stays open.
    if (halt.type === "exhausted") return this.#exhausted(halt.error, "it failed again and again");
    return { entries: () => rescheduleEntries(this.#session, halt.error), waitMs: halt.waitMs, insists: "unless_interrupted" };
  }

  /** Ends a turn for good: what waits is flushed, the next message starts afresh. */
  #exhausted(error: Halt["error"], whyUnknown: string): Ending {
    return {
      entries: () => [
        ...(this.view.status === "idle" ? runningEntries(this.#session) : []),
        ...spanFailed(this.view),
        ...this.#calls.giveUp(whyUnknown),
        errorEntry(error, "exhausted"),
        ...appliedEntries(this.view.waiting),
        ...this.#asks.refuseAll(error.message),
        ...this.view.outcomes.all.map((outcome) => evaluationEnd(outcome, "failed", error.message)),
        ...this.#idle({ type: "retries_exhausted" }),
      ],
      insists: "always",
    };
  }

  #giveUp(): Ending {
    const { lease, log } = this.#context;
    log.error({ sessionId: lease.id, fence: lease.fence, attempt: lease.attempt }, "session.given_up");
    const error = { type: "unknown_error", message: `The session's worker failed ${lease.attempt} times in a row; the turn was ended.` } as const;
    return this.#exhausted(error, "its worker was lost");
  }

  /** Closes what is open and applies what waits, in arrival order, up to the last interrupt; what came after it starts the next turn. */
  async #interrupt(): Promise<Ending> {
    await this.#journal.append(await this.#calls.interrupt());
    const isFresh = this.view.status === "idle" && this.view.lastStop?.type !== "requires_action";
    return {
      entries: () => {
        const { waiting } = this.view;
        const last = waiting.findLastIndex(({ event }) => event.type === "user.interrupt");
        const ended = this.view.outcomes.all.filter(({ position }) => position < (waiting[last]?.position ?? 0)).map(interrupted);
        const opening = isFresh ? runningEntries(this.#session) : [];
        return [...opening, ...appliedEntries(waiting.slice(0, last + 1)), ...ended, ...this.#idle({ type: "end_turn" })];
      },
    };
  }

  async #handOver(): Promise<void> {
    await this.#journal.writer.idle();
    const entries = this.view.status === "running" ? [...spanFailed(this.view), ...rescheduledEntries(this.#session)] : spanFailed(this.view);
    await this.#journal.writer.release(entries, 0);
  }

  /** Runs a step that an interrupt, a lost lease or a shutdown may stop; a failure of its own is a failed attempt. G3 */
  async #stoppable(step: (controller: AbortController) => Promise<Ending | null>): Promise<Ending | null> {
    const controller = new AbortController();
    const offs = [this.#keeper.signal, this.#shutdown].map((source) => passOn(source, controller));
    this.#controller = controller;
    this.#hearNews();
    try {
      return await step(controller);
    } catch (error) {
      this.#keeper.signal.throwIfAborted();
      if (controller.signal.aborted) return null;
      return this.#failed(error);
    } finally {
      this.#controller = null;
      for (const off of offs) off();
    }
  }

  #failed(error: unknown): Ending {
    const { lease, log, harness } = this.#context;
    log.error({ sessionId: lease.id, fence: lease.fence, harness: harness.name, err: error }, "harness.failed");
    const failure = { type: "unknown_error", message: "The turn failed inside the harness.", isTransient: true } as const;
    const retry = retryAfter(failure, this.view.failures, Math.random);
    const told = { type: failure.type, message: failure.message };
    return this.#halted(retry.type === "wait" ? { type: "reschedule", error: told, waitMs: retry.ms } : { type: "exhausted", error: told });
  }

  #idle(stop: StopReason, details: StopDetails = null): readonly BrainEntry[] {
    return idleEntries(this.#session, stop, details, Date.now());
  }

  async #settle(work: (signal: AbortSignal) => Promise<void>): Promise<null | Ending> {
    await this.#recover();
    return this.#stoppable(async ({ signal }) => {
      await this.#asks.take();
      await work(signal);
      return null;
    });
  }

  #recover(): Promise<void> {
    this.#recovered ??= this.#context.fault("recovering");
    return this.#recovered;
  }
}
