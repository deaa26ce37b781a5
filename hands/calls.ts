// Calls of hands: each tool use id runs at most once, under the newest fence, in its turn.
//
//   M1-M5  as hand.ts says.
//   K1  Calls to one hand start in the order of their arrival, one at a time; read-only ones may overlap each other.
//   K2  A call that waits for its turn is asked about its fence again when the turn comes: nothing starts under a fence that was overtaken.
//   K3  A spent id stays spent: a call that was cancelled before it started has a row too, so that a late request can't start it.
//   K4  Read-only calls do not wait for their row to be durable: run again after a crash, they change nothing. All others do (M3).

import type { z } from "zod";
import type { Fence } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { Holder, Outcome, ToolUse } from "./hand.ts";
import type { HandRow, Ledger } from "./ledger.ts";
import type { Runner, RunnerCall } from "./runner.ts";
import { descriptorOf, TOOL_INPUTS } from "./toolset.ts";

/** Calls of one hand that run or wait; one more comes to `failed`. */
const CALLS_PER_HAND_MAX = 64;

interface Job {
  readonly call: RunnerCall;
  readonly isReadOnly: boolean;
  readonly outcome: Promise<Outcome>;
  /** The newest of those who asked for it. */
  holder: Holder;
  state: "waiting" | "running";
  cancelReason?: string;
  /** Wakes it while it waits. */
  wake: () => void;
}

export class Calls {
  readonly #ledger: Ledger;
  readonly #runnerOf: (hand: HandRow) => Runner;
  /** By hand, in order of arrival; those that run come first. */
  readonly #lines = new Map<string, Job[]>();
  #isClosed = false;

  constructor(ledger: Ledger, runnerOf: (hand: HandRow) => Runner) {
    this.#ledger = ledger;
    this.#runnerOf = runnerOf;
  }

  /** Refuses an older fence and takes note of a newer one, durably. M2 */
  async announce(hand: string, holder: Holder): Promise<void> {
    const row = this.held(hand, holder);
    // Also when nothing changes: the note of another request may be not yet on the disk, and commits keep their order.
    await this.#ledger.setHolder(row.hand, holder);
  }

  async execute(hand: string, holder: Holder, use: ToolUse, mayRerun: boolean): Promise<Outcome> {
    const row = this.held(hand, holder);
    const noted = holder.fence > row.fence ? this.#ledger.setHolder(hand, holder) : undefined;
    const [outcome] = await Promise.all([this.#outcome(row, holder, use, mayRerun), noted]);
    return outcome;
  }

  async cancel(hand: string, holder: Holder, toolUseId: string, reason: string): Promise<Outcome> {
    const row = this.held(hand, holder);
    if (holder.fence > row.fence) await this.#ledger.setHolder(hand, holder);
    const job = this.#find(hand, toolUseId);
    if (job !== undefined) {
      this.#cancel(row, job, reason);
      return await job.outcome;
    }
    const known = this.#known(hand, toolUseId, false);
    if (known !== null) return known;
    const outcome: Outcome = { type: "failed", reason: `${reason}, before it started` };
    await this.#ledger.ended(hand, holder, toolUseId, outcome);
    return outcome;
  }

  /** Ends all calls of a hand, or of every hand; resolves when their outcomes are on the disk. */
  async end(hands: readonly HandRow[], reason: string): Promise<void> {
    const ended = hands.flatMap((row) =>
      [...(this.#lines.get(row.hand) ?? [])].map((job) => {
        this.#cancel(row, job, reason);
        return job.outcome;
      }),
    );
    await Promise.allSettled(ended);
  }

  /** From here on nothing starts. */
  close(): void {
    this.#isClosed = true;
  }

  async #outcome(row: HandRow, holder: Holder, use: ToolUse, mayRerun: boolean): Promise<Outcome> {
    const same = this.#find(row.hand, use.id);
    if (same !== undefined) {
      if (holder.fence > same.holder.fence) same.holder = holder;
      return await same.outcome;
    }
    const tool = traitsOf(row, use.name);
    const known = this.#known(row.hand, use.id, mayRerun && (tool?.mayRerun ?? false));
    if (known !== null) return known;
    if (this.#isClosed) throw new Refusal("shutting_down");
    if (tool === undefined) return wrong(`There is no tool named ${JSON.stringify(use.name.slice(0, 100))}.`);
    const input = tool.schema === null ? { success: true as const, data: use.input } : tool.schema.safeParse(use.input);
    if (!input.success) return wrong(`The input of ${use.name} is not valid: ${input.error.issues.map(worded).join("; ")}.`);
    return await this.#queue(
      row,
      holder,
      { id: use.id, tool: use.name, input: input.data, ...(use.pin === undefined ? {} : { pin: use.pin }) },
      tool.isReadOnly,
    );
  }

  /** What the ledger says of an id; null: it may run. M4 */
  #known(hand: string, toolUseId: string, mayRerun: boolean): Outcome | null {
    const row = this.#ledger.call(hand, toolUseId);
    if (row === undefined) return null;
    switch (row.state) {
      case "over":
        return row.outcome;
      case "settled":
        return { type: "unknown", reason: "it is over, and its result was handed over and dropped" };
      case "running":
        return mayRerun && !row.isThisBoot ? null : { type: "unknown", reason: "the hand host was restarted while it ran" };
    }
  }

  #queue(row: HandRow, holder: Holder, call: RunnerCall, isReadOnly: boolean): Promise<Outcome> {
    const line = this.#lines.get(row.hand) ?? [];
    if (line.length >= CALLS_PER_HAND_MAX)
      return Promise.resolve({ type: "failed", reason: `the hand has ${CALLS_PER_HAND_MAX} calls that wait; it was not run` });
    this.#lines.set(row.hand, line);
    let wake = (): void => {};
    const turn = new Promise<void>((resolve) => {
      wake = resolve;
    });
    const outcome = turn.then(() => this.#run(row.hand, job)).finally(() => this.#leave(row.hand, job));
    const job: Job = { call, isReadOnly, holder, state: "waiting", wake, outcome };
    line.push(job);
    this.#advance(row.hand);
    return job.outcome;
  }

  async #run(hand: string, job: Job): Promise<Outcome> {
    const { call } = job;
    const row = this.#ledger.hand(hand);
    if (row === undefined || row.state !== "live") throw new Refusal("hand_lost", "The hand is gone.");
    if (job.cancelReason === undefined && isOlder(job.holder, row)) throw new Refusal("fenced"); // K2
    let outcome: Outcome;
    if (job.cancelReason === undefined) {
      const started = this.#ledger.started(hand, job.holder, call.id);
      if (!job.isReadOnly) await started; // M3 K4
    }
    if (job.cancelReason === undefined) outcome = await this.#runnerOf(row).run(call);
    else outcome = { type: "failed", reason: `${job.cancelReason}, before it started` }; // K3
    await this.#ledger.ended(hand, job.holder, call.id, outcome);
    return outcome;
  }

  #cancel(row: HandRow, job: Job, reason: string): void {
    job.cancelReason ??= reason;
    if (job.state === "running") this.#runnerOf(row).cancel(job.call.id, `${reason} while it ran`);
    job.wake();
  }

  /** K1 */
  #advance(hand: string): void {
    const line = this.#lines.get(hand) ?? [];
    for (const [index, job] of line.entries()) {
      const isFree = line.slice(0, index).every((other) => other.isReadOnly && job.isReadOnly);
      if (!isFree) return;
      if (job.state === "running") continue;
      job.state = "running";
      job.wake();
    }
  }

  #leave(hand: string, job: Job): void {
    const line = this.#lines.get(hand) ?? [];
    line.splice(line.indexOf(job), 1);
    if (line.length === 0) this.#lines.delete(hand);
    else this.#advance(hand);
  }

  #find(hand: string, toolUseId: string): Job | undefined {
    return this.#lines.get(hand)?.find((job) => job.call.id === toolUseId);
  }

  /** The hand, if this holder may use it. M2 */
  held(hand: string, holder: Holder): HandRow {
    const row = this.#ledger.hand(hand);
    if (row === undefined || row.state !== "live") throw new Refusal("hand_lost", "The hand is gone.");
    if (isOlder(holder, row)) throw new Refusal("fenced");
    return row;
  }
}

interface Traits {
  readonly isReadOnly: boolean;
  readonly mayRerun: boolean;
  /** Null: whoever runs it judges its input. */
  readonly schema: z.ZodType | null;
}

/** What is known of a tool before it runs. Of a server's tools that is nothing: what it says about them are claims. */
function traitsOf(row: HandRow, name: string): Traits | undefined {
  if (row.server !== null) return { isReadOnly: false, mayRerun: false, schema: null };
  const tool = descriptorOf(name);
  return tool && { isReadOnly: tool.isReadOnly, mayRerun: tool.isReadOnly || tool.isIdempotent, schema: TOOL_INPUTS[tool.name] };
}

function isOlder(holder: Holder, row: { readonly holder: string; readonly fence: Fence }): boolean {
  return holder.session !== row.holder || holder.fence < row.fence;
}

function wrong(text: string): Outcome {
  return { type: "done", content: [{ type: "text", text: text.toWellFormed() }], isError: true };
}

function worded(issue: { readonly path: readonly PropertyKey[]; readonly message: string }): string {
  return issue.path.length === 0 ? issue.message : `${issue.path.join(".")}: ${issue.message}`;
}
