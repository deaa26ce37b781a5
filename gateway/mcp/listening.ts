// How many streams a caller may listen on at this node, and how often it may open one: each costs a place here, and looks at the store.
//
//   L1  A caller has at most `open` at once, and opens at most `burst` in a row and `perS` a second after that. One more is 429, to be tried again later.
//   L2  What a caller does is counted against that caller alone.

import type { ServerResponse } from "node:http";
import type { Caller } from "./caller.ts";
import { REFUSED, RpcError } from "./rpc.ts";

export interface ListeningLimits {
  readonly open: number;
  readonly burst: number;
  readonly perS: number;
}

/** All the sessions that a caller can have come back at once when a node was started again, and once more. */
const LIMITS: ListeningLimits = { open: 1_024, burst: 512, perS: 16 };

interface Counted {
  open: number;
  /** Streams that may be opened now, as of `at`. */
  left: number;
  at: number;
}

export class Listening {
  readonly #limits: ListeningLimits;
  readonly #callers = new Map<string, Counted>();

  constructor(limits: ListeningLimits = LIMITS) {
    this.#limits = limits;
  }

  /** Counts a stream until its response is closed. L1 */
  enter({ name }: Caller, response: ServerResponse, now = performance.now()): void {
    const { open, burst, perS } = this.#limits;
    const counted = this.#callers.get(name) ?? { open: 0, left: burst, at: now };
    this.#callers.set(name, counted);
    counted.left = this.#leftAt(counted, now);
    counted.at = now;
    if (counted.open >= open || counted.left < 1) throw new RpcError(REFUSED, "Too many streams are opened by this caller.", { status: 429 });
    counted.left -= 1;
    counted.open += 1;
    response.once("close", () => {
      counted.open -= 1;
      // Who has not been here for a while is as one who never was.
      if (counted.open === 0) setTimeout(() => this.#forget(name, counted), (burst / perS) * 1_000).unref();
    });
  }

  #leftAt({ left, at }: Counted, now: number): number {
    return Math.min(this.#limits.burst, left + ((now - at) / 1_000) * this.#limits.perS);
  }

  #forget(name: string, counted: Counted): void {
    const isFresh = this.#leftAt(counted, performance.now()) >= this.#limits.burst;
    if (counted.open === 0 && isFresh && this.#callers.get(name) === counted) this.#callers.delete(name);
  }
}
