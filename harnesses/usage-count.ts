// What a session has used so far: tokens of its model requests, and the time in which it was active.

import type { ModelUsage, SessionUsage } from "../session-store/events/brain.ts";
import { NO_USAGE } from "../session-store/events/brain.ts";

export class UsageCount {
  #usage: SessionUsage = NO_USAGE;
  #longCacheTokens = 0;
  #activeMs = 0;
  #runningSince: number | null = null;

  /** Cumulative, with the time that has been active until `now`. */
  until(now: number): SessionUsage {
    const running = this.#runningSince === null ? 0 : Math.max(0, now - this.#runningSince);
    return { ...this.#usage, active_seconds: Math.round(this.#activeMs + running) / 1000 };
  }

  run(at: number): void {
    this.#runningSince = at;
  }

  rest(at: number): void {
    if (this.#runningSince !== null) this.#activeMs += Math.max(0, at - this.#runningSince);
    this.#runningSince = null;
  }

  /** Of the tokens that the next request wrote to the cache, so many live for an hour. */
  expectLong(tokens: number): void {
    this.#longCacheTokens = tokens;
  }

  count(used: ModelUsage): void {
    const long = Math.min(this.#longCacheTokens, used.cache_creation_input_tokens);
    this.#longCacheTokens = 0;
    const { cache_creation: cache } = this.#usage;
    this.#usage = {
      ...this.#usage,
      input_tokens: this.#usage.input_tokens + used.input_tokens,
      output_tokens: this.#usage.output_tokens + used.output_tokens,
      cache_read_input_tokens: this.#usage.cache_read_input_tokens + used.cache_read_input_tokens,
      cache_creation: {
        ephemeral_5m_input_tokens: cache.ephemeral_5m_input_tokens + used.cache_creation_input_tokens - long,
        ephemeral_1h_input_tokens: cache.ephemeral_1h_input_tokens + long,
      },
    };
  }
}
