// The worker: takes due sessions while it has room, and drives each under its lease. A program of its own, or a part of the node.
//
//   Y1  Takes are serial; each has a fresh nonce, and a take whose answer was lost is asked again under the same one (D3).
//   Y2  A worker drives at most `sessionsMax` sessions; the rest stay due for others.
//   Y3  `drain` takes nothing new, hands over what runs, and is done within its grace time.

import { hostname } from "node:os";
import type { Logger } from "pino";
import type { Hands } from "../hands/hand.ts";
import type { Lease } from "../session-store/due.ts";
import type { FaultPoint } from "../session-store/fault-point.ts";
import { noFault } from "../session-store/fault-point.ts";
import { mint } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { SessionStore } from "../session-store/store.ts";
import type { MintGrant } from "./grant.ts";
import type { Harness } from "./harness.ts";
import { drive } from "./host.ts";
import type { HandsDoor, HostContext } from "./host-context.ts";
import { pause, Stop } from "./stop.ts";
import { WarmViews } from "./warm-views.ts";

const POLL_MS = 1_000;
const TAKE_RETRY_FIRST_MS = 50;
const TAKE_RETRY_MAX_MS = 2_000;
const SESSIONS_MAX = 64;

export interface WorkerOptions {
  readonly store: SessionStore;
  readonly hands: Hands;
  readonly mintGrant: MintGrant;
  readonly vaultUrl: string;
  /** Absent: harnesses of this worker can't hand their session's hands to another process. */
  readonly handsDoor?: HandsDoor;
  readonly harness: Harness;
  readonly log: Logger;
  readonly sessionsMax?: number;
  readonly fault?: FaultPoint;
  /** Bounds of what it keeps of sessions that it drove; for tests and measurements. */
  readonly views?: WarmViews;
}

export interface Worker {
  /** Sessions that it drives right now. */
  readonly driven: number;
  /** Stops taking, hands over what runs; resolves when all are given back, or after `graceMs`. Y3 */
  drain(graceMs: number): Promise<void>;
}

export async function startWorker(options: WorkerOptions): Promise<Worker> {
  const taker = new Taker(options);
  await taker.start();
  return taker;
}

class Taker implements Worker {
  readonly #context: HostContext;
  readonly #sessionsMax: number;
  readonly #address = `${hostname()}:${process.pid}`;
  readonly #shutdown = new AbortController();
  readonly #driven = new Set<Promise<void>>();
  #loop: Promise<void> = Promise.resolve();
  #hush = () => {};
  #isRung = false;
  #ring = () => {};

  constructor({ sessionsMax, fault, views, handsDoor, ...context }: WorkerOptions) {
    this.#context = { ...context, handsDoor: handsDoor ?? null, fault: fault ?? noFault, views: views ?? new WarmViews() };
    this.#sessionsMax = sessionsMax ?? SESSIONS_MAX;
  }

  get driven(): number {
    return this.#driven.size;
  }

  async start(): Promise<void> {
    this.#hush = await this.#context.store.onDue(() => this.#wake());
    this.#loop = this.#take();
  }

  async drain(graceMs: number): Promise<void> {
    if (!this.#shutdown.signal.aborted) this.#shutdown.abort(new Stop("shutdown"));
    this.#hush();
    this.#wake();
    const over = new AbortController();
    const late = pause(graceMs, over.signal).catch(() => {});
    await Promise.race([this.#loop.then(() => Promise.all(this.#driven)), late]);
    over.abort();
    this.#context.views.clear();
  }

  async #take(): Promise<void> {
    const { signal } = this.#shutdown;
    while (!signal.aborted) {
      if (this.#driven.size >= this.#sessionsMax) {
        this.#isRung = false;
        await this.#rung();
        continue;
      }
      this.#isRung = false;
      const takenAt = performance.now();
      const lease = await this.#takeOne();
      if (!lease) {
        await this.#rung();
        continue;
      }
      const driving = drive(this.#context, lease, takenAt, signal).finally(() => {
        this.#driven.delete(driving);
        this.#wake();
      });
      this.#driven.add(driving);
    }
  }

  /** The next lease, or null: nothing is due, or the store could not say in time. Y1 */
  async #takeOne(): Promise<Lease | null> {
    const { store, log } = this.#context;
    const { signal } = this.#shutdown;
    const nonce = mint("take");
    for (let waitMs = TAKE_RETRY_FIRST_MS; ; waitMs = Math.min(waitMs * 2, TAKE_RETRY_MAX_MS)) {
      try {
        return await store.take(this.#address, nonce);
      } catch (error) {
        const isPassing = error instanceof Refusal && (error.code === "store_busy" || error.code === "store_in_doubt");
        if (!isPassing) throw error;
        log.warn({ code: error.code }, "take.failed");
      }
      try {
        await pause(waitMs, signal);
      } catch {
        return null;
      }
    }
  }

  #wake(): void {
    this.#isRung = true;
    this.#ring();
  }

  /** Until a bell, a freed place or the poll. */
  async #rung(): Promise<void> {
    if (this.#isRung || this.#shutdown.signal.aborted) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, POLL_MS);
      this.#ring = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#ring = () => {};
  }
}
