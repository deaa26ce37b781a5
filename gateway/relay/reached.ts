// One hand, as one caller reaches it.

import { addressOf } from "./address.ts";
import type { KnownHand } from "./hands.ts";
import type { Pool } from "./pool.ts";
import type { Address, Upstream, UpstreamAnswer, UpstreamRequest } from "./upstream.ts";

export class ReachedHand implements Upstream {
  readonly hand: Upstream["hand"];
  readonly policy: Upstream["policy"];
  readonly times: Upstream["times"];
  readonly workspace: string;
  readonly address: Address;
  readonly #pool: Pool;

  constructor(pool: Pool, { hand, policy, times }: KnownHand, workspace: string, address: Address) {
    this.hand = hand;
    this.policy = policy;
    this.times = times;
    this.workspace = workspace;
    this.address = address;
    this.#pool = pool;
  }

  send(request: UpstreamRequest): Promise<UpstreamAnswer> {
    return this.#pool.send(this.address, this.times, request);
  }

  at(place: string): Upstream | null {
    const there = addressOf({ url: place }, this.address);
    return there && new ReachedHand(this.#pool, this, this.workspace, there);
  }
}
