// Keeps a lease: renews it while its session is driven, and says when it is lost.
//
//   L1  The deadline counts from before the take or the last successful renewal, on a clock that never goes back: it is never later than the
//       store's own. Past it, the lease is lost, whatever the store would say.
//   L2  Safety is the fence alone (D6); this is there so that a worker which lost its lease stops early.

import type { DueSet, Lease } from "../session-store/due.ts";
import type { Position } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import { Stop } from "./stop.ts";
import type { Tenure } from "./writer.ts";

export class LeaseKeeper implements Tenure {
  readonly #store: Pick<DueSet, "renew">;
  readonly #lease: Lease;
  readonly #onHead: (head: Position) => void;
  readonly #controller = new AbortController();
  #deadline: number;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  /** `takenAt`: performance.now() from before the take. */
  constructor(store: Pick<DueSet, "renew">, lease: Lease, takenAt: number, onHead: (head: Position) => void) {
    this.#store = store;
    this.#lease = lease;
    this.#onHead = onHead;
    this.#deadline = takenAt + lease.leaseMs;
    this.#schedule(lease.leaseMs / 3);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  isAlive(): boolean {
    return !this.#controller.signal.aborted && performance.now() < this.#deadline;
  }

  lose(cause?: unknown): void {
    if (!this.#isOver && !this.#controller.signal.aborted) this.#controller.abort(new Stop("lease_lost", { cause }));
    this.stop();
  }

  /** The lease was given back, or is lost: no more renewals. */
  stop(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #schedule(waitMs: number): void {
    if (this.#isOver) return;
    // Never later than the deadline, so that a lease which can't be renewed is given up in time.
    const untilDeadline = Math.max(0, this.#deadline - performance.now());
    this.#timer = setTimeout(() => void this.#renew(), Math.min(waitMs, untilDeadline));
  }

  async #renew(): Promise<void> {
    if (!this.isAlive()) return this.lose();
    const askedAt = performance.now();
    try {
      const head = await this.#store.renew(this.#lease);
      if (this.#isOver) return;
      if (head === "lost") return this.lose();
      this.#deadline = askedAt + this.#lease.leaseMs;
      this.#schedule(this.#lease.leaseMs / 3);
      this.#onHead(head);
    } catch (error) {
      if (!(error instanceof Refusal)) return this.lose(error);
      if (error.code === "store_busy" || error.code === "store_in_doubt") return this.#schedule(this.#lease.leaseMs / 15);
      this.lose(error);
    }
  }
}
