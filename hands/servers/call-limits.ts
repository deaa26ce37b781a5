// How long a call of a server's tool may take: in all, and without a word of progress.

import { IDLE_MS, TOTAL_MS } from "./limits.ts";

export interface Times {
  readonly connectMs: number;
  readonly idleMs: number;
  readonly totalMs: number;
}

export const TIMES: Omit<Times, "connectMs"> = { idleMs: IDLE_MS, totalMs: TOTAL_MS };

/** Why a call was ended from here. */
export class Ended extends Error {
  override readonly name = "Ended";
}

/** The two limits of one call. What they end, ends with an `Ended` that says which. */
export class Limits {
  readonly #times: Times;
  readonly #controller: AbortController;
  #idle: NodeJS.Timeout | undefined;
  #total: NodeJS.Timeout | undefined;

  constructor(times: Times, controller: AbortController) {
    this.#times = times;
    this.#controller = controller;
  }

  start(): void {
    this.stop();
    const { idleMs, totalMs } = this.#times;
    const end = (says: string) => () => this.#controller.abort(new Ended(says));
    this.#idle = setTimeout(end(`it was ended after ${idleMs} ms without a word of progress, the idle limit of a call`), idleMs);
    this.#total = setTimeout(end(`it was ended after ${totalMs} ms, the limit of a call in all`), totalMs);
  }

  heard(): void {
    this.#idle?.refresh();
  }

  stop(): void {
    clearTimeout(this.#idle);
    clearTimeout(this.#total);
  }
}
