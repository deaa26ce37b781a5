// Following resources for those who subscribed to them: one follower a resource and node, however many listen.
//
//   W1  A follower starts with the first listener and ends with the last.
//   W2  One that breaks is started again after a while, and its listeners are told once: something may have been missed.

import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import type { Resources } from "./surface.ts";

const AGAIN_MS = 1_000;
/** Updates come together: a client that is told reads all there is. */
const GATHER_MS = 100;

interface Hearer {
  readonly hear: () => void;
  count: number;
}
interface Followed {
  readonly hearers: Map<object, Hearer>;
  readonly ended: AbortController;
}

export class Watchers {
  readonly #resources: Resources | undefined;
  readonly #log: Logger;
  readonly #followed = new Map<string, Followed>();

  constructor(resources: Resources | undefined, log: Logger) {
    this.#resources = resources;
    this.#log = log;
  }

  /** Calls `hear` at each change until `signal` aborts. Those who name the same `by` are told by one call, since what it does reaches them all. */
  watch(uri: string, hear: () => void, signal: AbortSignal, by: object = {}): void {
    if (signal.aborted) return;
    const followed = this.#followed.get(uri) ?? this.#follow(uri);
    const hearer = followed.hearers.get(by) ?? { hear, count: 0 };
    hearer.count += 1;
    followed.hearers.set(by, hearer);
    const leave = () => {
      hearer.count -= 1;
      if (hearer.count === 0) followed.hearers.delete(by);
      if (followed.hearers.size === 0) this.#leave(uri, followed);
    };
    signal.addEventListener("abort", leave, { once: true });
  }

  close(): void {
    for (const [uri, followed] of [...this.#followed]) this.#leave(uri, followed);
  }

  #leave(uri: string, followed: Followed): void {
    followed.ended.abort();
    if (this.#followed.get(uri) === followed) this.#followed.delete(uri);
  }

  #follow(uri: string): Followed {
    const followed: Followed = { hearers: new Map(), ended: new AbortController() };
    this.#followed.set(uri, followed);
    void this.#run(uri, followed);
    return followed;
  }

  /** W2 */
  async #run(uri: string, { hearers, ended: { signal } }: Followed): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const tell = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        for (const { hear } of [...hearers.values()]) hear();
      }, GATHER_MS);
    };
    while (!signal.aborted) {
      try {
        await this.#resources?.watch(uri, tell, signal);
      } catch (error) {
        this.#log.warn({ reason: error instanceof Error ? error.message.slice(0, 200) : "unknown" }, "mcp.watch_broke");
      }
      if (signal.aborted) break;
      await sleep(AGAIN_MS, undefined, { signal }).catch(() => {});
      tell();
    }
    clearTimeout(timer);
  }
}
