// The one writer of a lease: a serial queue in front of the store.
//
//   W1  Appends are numbered 1, 2, 3 … and one is in flight at a time (S4), an end of the lease (finish, release) being one of them; what queues up
//       meanwhile goes out together, in order.
//   W2  A lost or refused answer is asked for again under the same number, as long as the lease may be alive (S3).
//   W3  `fenced` and `out_of_step` mean that another one writes: the lease is lost, and nothing is written any more.
//   W4  What an append resolves with has been taken into the view already.
//   W5  After the lease was given back nothing is written: a tool's result that comes while it is given back is refused, never taken for stored.

import type { Lease } from "../session-store/due.ts";
import type { BrainEntry, Stored } from "../session-store/entry.ts";
import type { Position } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { SessionStore } from "../session-store/store.ts";
import { pause, Stop } from "./stop.ts";

const QUEUE_MAX = 1_000;
const ENTRIES_MAX = 200;
const RETRY_FIRST_MS = 25;
const RETRY_MAX_MS = 1_000;

/** What the writer asks of the lease it writes under. */
export interface Tenure {
  /** Aborts when the lease is lost. */
  readonly signal: AbortSignal;
  /** False once the lease may be someone else's. */
  isAlive(): boolean;
  lose(cause?: unknown): void;
}

interface Batch {
  readonly entries: readonly BrainEntry[];
  readonly isRecovery: boolean;
  readonly resolve: (stored: readonly Stored[]) => void;
  readonly reject: (reason: unknown) => void;
}

export class Writer {
  readonly #store: Pick<SessionStore, "emitEvents" | "finish" | "release">;
  readonly #lease: Lease;
  readonly #tenure: Tenure;
  readonly #absorb: (stored: readonly Stored[]) => Promise<void>;
  readonly #queue: Batch[] = [];
  #n = 0;
  #work: Promise<void> | null = null;
  #isClosed = false;

  constructor(
    store: Pick<SessionStore, "emitEvents" | "finish" | "release">,
    lease: Lease,
    tenure: Tenure,
    absorb: (stored: readonly Stored[]) => Promise<void>,
  ) {
    this.#store = store;
    this.#lease = lease;
    this.#tenure = tenure;
    this.#absorb = absorb;
  }

  /** Is an append on its way? */
  get isBusy(): boolean {
    return this.#work !== null;
  }

  append(entries: readonly BrainEntry[], options: { readonly isRecovery?: boolean } = {}): Promise<readonly Stored[]> {
    if (entries.length === 0) return Promise.resolve([]);
    if (this.#isClosed) return Promise.reject(new Stop("lease_lost"));
    if (this.#queue.length >= QUEUE_MAX) return Promise.reject(new Error("The writer's queue is full."));
    return new Promise((resolve, reject) => {
      this.#queue.push({ entries, isRecovery: options.isRecovery ?? false, resolve, reject });
      this.#work ??= this.#drain();
    });
  }

  /** Resolves when nothing is on its way any more; failures are told to those who appended. */
  async idle(): Promise<void> {
    while (this.#work) await this.#work;
  }

  /** Ends the lease if the head is still `seen`. */
  finish(seen: Position, entries: readonly BrainEntry[], waitMs?: number): Promise<"done" | "more"> {
    return this.#alone(async () => {
      const answer = await this.#persist((n) => this.#store.finish(this.#lease, n, seen, entries, waitMs));
      if (answer === "more") return "more";
      this.#isClosed = true;
      return "done";
    });
  }

  /** Ends the lease, whatever came. */
  release(entries: readonly BrainEntry[], waitMs: number): Promise<void> {
    return this.#alone(async () => {
      await this.#persist((n) => this.#store.release(this.#lease, n, entries, waitMs));
      this.#isClosed = true;
    });
  }

  close(): void {
    this.#isClosed = true;
  }

  /** Does a step with nothing else on its way; what is appended meanwhile waits, and is refused if the lease is gone by then. W1 W5 */
  async #alone<T>(step: () => Promise<T>): Promise<T> {
    await this.idle();
    const done = step();
    const over = () => this.#drain();
    this.#work = done.then(over, over);
    return await done;
  }

  #refuse(reason: unknown, batches: readonly Batch[] = []): void {
    for (const batch of [...batches, ...this.#queue.splice(0)]) batch.reject(reason);
  }

  async #drain(): Promise<void> {
    if (this.#isClosed) this.#refuse(new Stop("lease_lost"));
    while (this.#queue.length > 0) {
      const batches = this.#nextBatches();
      const isRecovery = batches[0]?.isRecovery ?? false;
      const entries = batches.flatMap((batch) => batch.entries);
      try {
        const stored = await this.#persist((n) => this.#store.emitEvents(this.#lease, n, entries, { isRecovery }));
        this.#n += 1;
        await this.#absorb(stored);
        let from = 0;
        for (const batch of batches) {
          batch.resolve(stored.slice(from, from + batch.entries.length));
          from += batch.entries.length;
        }
      } catch (error) {
        // After a failed append the count is in doubt: nothing may follow it under this lease.
        this.#isClosed = true;
        this.#refuse(error, batches);
      }
    }
    this.#work = null;
  }

  #nextBatches(): Batch[] {
    const batches: Batch[] = [];
    let count = 0;
    for (;;) {
      const next = this.#queue[0];
      if (!next || (batches[0] && (next.isRecovery !== batches[0].isRecovery || count + next.entries.length > ENTRIES_MAX))) return batches;
      this.#queue.shift();
      batches.push(next);
      count += next.entries.length;
    }
  }

  async #persist<T>(step: (n: number) => Promise<T>): Promise<T> {
    for (let waitMs = RETRY_FIRST_MS; ; waitMs = Math.min(waitMs * 2, RETRY_MAX_MS)) {
      if (this.#isClosed || !this.#tenure.isAlive()) throw this.#lost();
      try {
        return await step(this.#n + 1);
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        switch (error.code) {
          case "store_busy":
          case "store_in_doubt":
            break;
          case "fenced":
          case "out_of_step":
          case "session_not_found":
            throw this.#lost(error);
          default:
            throw error;
        }
      }
      await pause(waitMs, this.#tenure.signal);
    }
  }

  #lost(cause?: unknown): unknown {
    this.#isClosed = true;
    this.#tenure.lose(cause);
    return this.#tenure.signal.reason ?? new Stop("lease_lost", { cause });
  }
}
