// A client of the stateless era at a hand of the stateless era: every request by itself.
//
//   T1  Closing a request's stream closes the hand's: that calls it off.
//   T2  State, cursors and handles are the hand's: they pass byte for byte, both ways, and are never read.
//   T3  Headers that repeat a tool's arguments are held against them before the hand hears of the call (param-check.ts).

import { answerOf } from "./crossed/stateless-hand.ts";
import type { Eras } from "./eras.ts";
import { CLIENT_CAPABILITIES, UNSUPPORTED_VERSION } from "./inbound.ts";
import { MessageLooker } from "./looks.ts";
import { type Listing, ParamCheck } from "./param-check.ts";
import { pass } from "./passing.ts";
import type { Pool } from "./pool.ts";
import type { Upstream } from "./upstream.ts";
import { passedHeaders, type Visit } from "./visit.ts";

const LISTEN = "subscriptions/listen";

export interface StatelessOptions {
  readonly pool: Pool;
  readonly eras: Eras;
  readonly keepAliveMs: number;
  readonly stopped: AbortSignal;
  /** Anonymous calls are taken: what a list shows depends on nobody. */
  readonly isOpen: boolean;
}

export class StatelessRelay {
  readonly #options: StatelessOptions;
  readonly #marks = new ParamCheck();

  constructor(options: StatelessOptions) {
    this.#options = options;
  }

  async post(visit: Visit): Promise<void> {
    const { request, response, upstream, inbound } = visit;
    if (!inbound || inbound.message.kind === "response") throw new Error("a response came as far as the hand");
    const { message, body } = inbound;
    const { method, params } = message;
    const id = message.kind === "request" ? message.id : null;
    const checking =
      method === "tools/call" ? this.#marks.refuseMismatch(upstream, request.headers, params, (asked) => listTools(upstream, asked)) : null;
    if (checking) await checking;
    const looker = new MessageLooker({
      era: "stateless",
      id,
      method,
      policy: upstream.policy,
      caching: this.#cachingOf(visit),
      capabilities: () =>
        typeof params._meta === "object" && params._meta !== null
          ? Object.entries(params._meta).find(([key]) => key === CLIENT_CAPABILITIES)?.[1]
          : {},
      refuse: () => {},
    });
    visit.seen = looker;
    const { pool, eras, keepAliveMs, stopped } = this.#options;
    await pass(
      pool,
      upstream.address,
      { method: "POST", headers: passedHeaders(request.headers, true), body },
      {
        response,
        id,
        times: method === LISTEN ? null : upstream.times,
        keepAliveMs,
        looker,
        isCollected: looker.isCollected,
        statusOf: (status) => looker.statusOf(status),
        hasSession: false,
        stopped,
      },
    );
    if (looker.errorCode === String(UNSUPPORTED_VERSION)) eras.forget(upstream);
  }

  #cachingOf({ upstream }: Visit): "as-is" | "private" | "none" {
    if (upstream.hand.vault_ids.length > 0 || !upstream.policy.isOpen) return "none";
    return this.#options.isOpen ? "as-is" : "private";
  }
}

/** T3 */
function listTools(upstream: Upstream, { params, signal }: Listing): Promise<unknown> {
  const client = { info: { name: "manyhands", version: "1" }, capabilities: {} };
  return answerOf({ upstream, method: "tools/list", params, client, level: null, signal }).then(({ result }) => result);
}
