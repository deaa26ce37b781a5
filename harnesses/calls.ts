// Runs the calls of a session in its hand, and makes of each exactly one result.
//
//   C1  Calls to one hand start in call order, one at a time; only read-only ones overlap, at most OVERLAP_MAX of them. Hands run beside each other.
//   C2  A result is appended as it comes, by whoever claims the call first: its own run, or an interrupt that closes it.
//   C3  A call of an earlier lease is asked for again under its id: the hand host answers with what it knows and never runs it twice (M1).
//   C4  What may have run and can't be told is said so; only read-only and idempotent tools are run again.
//   C5  A call of an MCP server goes to a server that the agent has now; where it was taken away meanwhile, the call is not run.
//   C6  A tool of a registered hand is called as it was approved, or not at all: the registration is looked at before each call, and the hand host
//       holds the approved definition against the server's.
//   C7  The log as a hand is read here, from what this lease knows of it: no hand host is asked, and reading again is harmless.

import type { HandRef, Outcome } from "../hands/hand.ts";
import type { BrainEntry } from "../session-store/entry.ts";
import type { EventId } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { Bindings } from "./binding.ts";
import { errorResult, INTERRUPTED_TEXT, resultEntry } from "./entries.ts";
import type { LeaseContext } from "./host-context.ts";
import type { Journal } from "./journal.ts";
import { LOG_URL, readerOf, runLogTool } from "./log-tools.ts";
import { admitted, nameOf } from "./registered.ts";
import { Repositories } from "./repositories.ts";
import { serversOf, toolsOf } from "./tools.ts";
import type { Call } from "./view.ts";
import { isWebTool, refuseWeb } from "./web.ts";
import { wellFormed } from "./well-formed.ts";

/** How long an interrupt waits for a hand to end a call. */
const CANCEL_MS = 5_000;
const SETTLED_MS = 5_000;
/** Well below the calls that a hand lets wait. C1 */
const OVERLAP_MAX = 16;

const CALLED_OFF_TEXT = "The call was called off before it came to an end; what it had done by then stays done.";
const LOST: Outcome = { type: "unknown", reason: "its sandbox was lost, with the files in it" };
const lost = ({ server }: Call): Outcome =>
  server === null ? LOST : { type: "unknown", reason: `the connection to MCP server ${JSON.stringify(server)} was lost with its hand host` };
const isWeb = ({ name, server }: Call): boolean => server === null && isWebTool(name);
const LOST_BEFORE = "The sandbox was lost and its files are gone; this ran in a new one.";

export class Calls {
  readonly #context: LeaseContext;
  readonly #journal: Journal;
  readonly #bindings: Bindings;
  readonly #queue: Call[] = [];
  readonly #running = new Map<EventId, { readonly server: string | null; readonly isReadOnly: boolean; readonly done: Promise<void> }>();
  /** Calls that were queued in this lease. */
  readonly #started = new Set<EventId>();
  /** Calls that this lease sent to a hand, and to which. */
  readonly #asked = new Map<EventId, HandRef>();
  /** Calls whose one result is being appended. C2 */
  readonly #claimed = new Set<EventId>();
  readonly #repositories: Repositories;
  #wasLost = false;

  constructor(context: LeaseContext, journal: Journal, bindings: Bindings) {
    this.#context = context;
    this.#journal = journal;
    this.#bindings = bindings;
    this.#repositories = new Repositories(context, journal);
  }

  get isBusy(): boolean {
    return this.#running.size > 0 || this.#queue.length > 0;
  }

  /** Does it run here, or wait to? */
  isUnderWay(id: EventId): boolean {
    return this.#running.has(id) || this.#queue.some((call) => call.id === id);
  }

  /** Queues what was not queued yet, in the order given, and starts what may start. C1 */
  start(calls: readonly Call[]): void {
    for (const call of calls) {
      if (this.#started.has(call.id)) continue;
      this.#started.add(call.id);
      this.#queue.push(call);
    }
    this.#pump();
  }

  /** Resolves when the next running call has its result in the log; rejects when that failed. */
  async next(): Promise<void> {
    await Promise.race([...this.#running.values()].map(({ done }) => done));
  }

  /** Ends what runs and gives the results that close every open call; a result that exists wins over the placeholder. C2 */
  async interrupt(): Promise<readonly BrainEntry[]> {
    this.#queue.length = 0;
    const open = this.#journal.view.openCalls.filter((call) => !this.#claimed.has(call.id));
    const results = await Promise.all(open.map((call) => this.#cancel(call)));
    // What its own run appended meanwhile needs no other result.
    const claimed = results.filter(({ call }) => this.#claim(call.id));
    await Promise.all([...this.#running].filter(([id]) => !claimed.some(({ call }) => call.id === id)).map(([, { done }]) => done));
    return claimed.map(({ entry }) => entry);
  }

  /** Ends one call that nobody wants any more: what waits is not run, what runs is ended at its hand. A result that exists wins. C2 */
  async callOff(call: Call): Promise<void> {
    this.#started.add(call.id);
    const at = this.#queue.findIndex(({ id }) => id === call.id);
    if (at >= 0) this.#queue.splice(at, 1);
    const { entry } = await this.#cancel(call, CALLED_OFF_TEXT);
    if (this.#claim(call.id)) await this.#journal.append([entry]);
    this.#pump();
  }

  /** Closes every open call without asking anyone: nobody can tell what they came to. */
  giveUp(why: string): readonly BrainEntry[] {
    this.#queue.length = 0;
    return this.#journal.view.openCalls.map((call) =>
      errorResult(call, call.kind === "allow" || call.answer?.result === "allow" ? tellUnknown(why) : INTERRUPTED_TEXT),
    );
  }

  #claim(id: EventId): boolean {
    if (this.#claimed.has(id)) return false;
    this.#claimed.add(id);
    return true;
  }

  /** C1 */
  #pump(): void {
    const held = new Set<string | null>();
    for (const call of [...this.#queue]) {
      if (held.has(call.server)) continue;
      const isReadOnly = this.#isLog(call) || (this.#toolOf(call)?.isReadOnly ?? false);
      const running = [...this.#running.values()].filter(({ server }) => server === call.server);
      const isFree = running.length === 0 || (isReadOnly && running.length < OVERLAP_MAX && running.every((one) => one.isReadOnly));
      if (!isFree) {
        held.add(call.server);
        continue;
      }
      this.#queue.splice(this.#queue.indexOf(call), 1);
      const done = this.#run(call).finally(() => {
        this.#running.delete(call.id);
        this.#pump();
      });
      // A run that failed without a result is asked for again when its session is next looked at.
      done.catch(() => this.#started.delete(call.id));
      this.#running.set(call.id, { server: call.server, isReadOnly, done });
    }
  }

  async #run(call: Call): Promise<void> {
    const outcome = call.kind === "deny" ? null : await this.#outcomeOf(call);
    if (!this.#claim(call.id)) return;
    await this.#journal.append([outcome ? this.#entryOf(call, outcome) : errorResult(call, "This tool is disabled.")]);
    await this.#context.fault("result-stored");
    if (!isWeb(call)) this.#settle(call);
  }

  async #outcomeOf(call: Call): Promise<Outcome> {
    const { view } = this.#journal;
    if (isWeb(call)) return { type: "failed", reason: refuseWeb(view.agent, call) };
    if (this.#isLog(call)) return runLogTool(readerOf(view.entries), call);
    return this.#execute(call);
  }

  /** C7 */
  #isLog({ server }: Call): boolean {
    return server !== null && serversOf(this.#journal.view.agent).some(({ name, url }) => name === server && url === LOG_URL);
  }

  async #execute(call: Call): Promise<Outcome> {
    const { hands, lease, log, leaseSignal } = this.#context;
    const tool = this.#toolOf(call);
    const mayRerun = tool !== undefined && (tool.isReadOnly || tool.isIdempotent);
    const isOld = call.fence !== lease.fence;
    if (call.server !== null && !serversOf(this.#journal.view.agent).some(({ name }) => name === call.server))
      // C5
      return { type: "failed", reason: `the agent has no MCP server ${JSON.stringify(call.server)} any more; it was not run` };
    const binding = this.#bindings.of(call.server);
    const pin = await this.#pinOf(call, isOld);
    if (typeof pin === "object" && pin !== null) return pin;
    for (let isFirst = true; ; isFirst = false) {
      const hand = binding.known;
      if (isOld && hand?.state === "lost" && hand.position > call.position) return lost(call);
      try {
        const ref = await binding.ensure();
        if (call.server === null) await this.#repositories.in(binding.holder, ref);
        if (this.#claimed.has(call.id)) return lost(call);
        this.#asked.set(call.id, ref);
        const grant = call.server === null ? undefined : await binding.grant();
        const wayOut = call.server === null ? await this.#context.wayOut() : undefined;
        const use = { id: call.id, name: call.name, input: call.input, grant, wayOut, ...(pin === null ? {} : { pin }) };
        const answer = hands.execute(binding.holder, ref, use, mayRerun, leaseSignal);
        // Awaited below; it may fail before.
        answer.catch(() => {});
        await this.#context.fault("tool-running");
        return await this.#answered(call, answer);
      } catch (error) {
        if (!(error instanceof Refusal) || error.code !== "hand_lost") throw this.#fenced(error);
        log.warn({ sessionId: lease.id, fence: lease.fence, toolUseId: call.id }, "hand.lost");
        const wasBound = binding.known?.state === "bound";
        this.#wasLost ||= wasBound && call.server === null;
        await binding.lose();
        if (!wasBound || !isFirst)
          return { type: "failed", reason: call.server === null ? "no sandbox can be reached" : "its hand host can't be reached" };
      }
    }
  }

  /** The hash that the tool was approved under; null: it is of no registered hand; or why the call is not run. C6 */
  async #pinOf(call: Call, isOld: boolean): Promise<string | null | Outcome> {
    const ref = serversOf(this.#journal.view.agent).find(({ name }) => name === call.server);
    if (ref === undefined || nameOf(ref.url) === null) return null;
    const judged = await admitted(this.#context.store, this.#journal.view.workspace, ref, call.name);
    // One that an earlier lease may have asked for is asked again where it was, under a pin that lets nothing run that may not.
    this.#bindings.of(call.server).follow(judged.placed, isOld);
    if (isOld) return judged.type === "refused" ? "" : judged.pin;
    return judged.type === "refused" ? { type: "failed", reason: `${judged.says}; it was not run` } : judged.pin;
  }

  /** A hand that is lost while a call is in it: the call is over, and nobody can tell how. */
  async #answered(call: Call, answer: Promise<Outcome>): Promise<Outcome> {
    try {
      return await answer;
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== "hand_lost") throw error;
      await this.#bindings.of(call.server).lose();
      return lost(call);
    }
  }

  async #cancel(call: Call, says = INTERRUPTED_TEXT): Promise<{ readonly call: Call; readonly entry: BrainEntry }> {
    const placeholder = { call, entry: errorResult(call, says) };
    const mayBeRunning = this.#asked.has(call.id) || (call.fence !== this.#context.lease.fence && call.kind !== "custom");
    const binding = this.#bindings.of(call.server);
    if (!mayBeRunning || !binding.mayBeBound) return placeholder;
    const { hands, lease, leaseSignal, log } = this.#context;
    const signal = AbortSignal.any([leaseSignal, AbortSignal.timeout(CANCEL_MS)]);
    try {
      const ref = this.#asked.get(call.id) ?? (await this.#within(binding.ensure(), signal));
      const outcome = await hands.cancel(binding.holder, ref, call.id, signal);
      return outcome.type === "done" ? { call, entry: this.#entryOf(call, outcome) } : placeholder;
    } catch (error) {
      leaseSignal.throwIfAborted();
      log.warn({ sessionId: lease.id, fence: lease.fence, toolUseId: call.id, err: error }, "tool.uncancelled");
      return placeholder;
    }
  }

  async #within(ref: Promise<HandRef>, signal: AbortSignal): Promise<HandRef> {
    const late = new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
    return await Promise.race([ref, late]);
  }

  #entryOf(call: Call, outcome: Outcome): BrainEntry {
    switch (outcome.type) {
      case "done": {
        const content = wellFormed(outcome.content);
        if (!this.#wasLost || call.server !== null) return resultEntry(call, content, outcome.isError);
        this.#wasLost = false;
        return resultEntry(call, [{ type: "text", text: LOST_BEFORE }, ...content], outcome.isError);
      }
      case "failed":
        return errorResult(call, `The tool failed: ${outcome.reason}`);
      case "unknown":
        return errorResult(call, tellUnknown(outcome.reason));
    }
  }

  /** A hand that knows a newer fence says what the store would say: the lease is lost. */
  #fenced(error: unknown): unknown {
    if (error instanceof Refusal && error.code === "fenced") this.#context.loseLease(error);
    return error;
  }

  #toolOf(call: Call) {
    if (call.server !== null) return undefined;
    return toolsOf(this.#journal.view.agent).find((tool) => tool.name === call.name);
  }

  /** Tells the hand host that the result is in the log; best effort, nobody waits for it. */
  #settle({ id, server }: Call): void {
    const { hands, lease, log } = this.#context;
    const binding = this.#bindings.of(server);
    if (!binding.mayBeBound) return;
    const signal = AbortSignal.timeout(SETTLED_MS);
    const asked = this.#asked.get(id);
    (asked === undefined ? binding.ensure() : Promise.resolve(asked))
      .then((ref) => hands.settled(binding.holder, ref, [id], signal))
      .catch((error: unknown) => log.debug({ sessionId: lease.id, toolUseId: id, err: error }, "tool.unsettled"));
  }
}

const tellUnknown = (reason: string): string => `The tool may have run: ${reason}. Check before you do it again.`;
