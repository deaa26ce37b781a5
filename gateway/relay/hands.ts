// The records of hands as this node knows them.
//
//   D1  A record is believed for FRESH_MS: after that time a change of it, or its removal, is in force on every node.

import { findHand, type RegisteredHand } from "../../hands/registry.ts";
import type { Documents } from "../../session-store/documents.ts";
import { policyOf } from "./policy.ts";
import type { Policy, Times } from "./upstream.ts";

const FRESH_MS = 1_000;
const KNOWN_MAX = 1_000;
/** A hand host says every 15 s that it is there, and holds the limits of what it keeps the connection of: here they are for a host that is gone. */
const HOST_MS = 30_000;

export interface KnownHand {
  readonly hand: RegisteredHand;
  readonly policy: Policy;
  readonly times: Times;
}

export class KnownHands {
  readonly #documents: Documents;
  readonly #times: Times;
  readonly #known = new Map<string, { readonly known: KnownHand; readonly at: number }>();

  constructor(documents: Documents, times: Times) {
    this.#documents = documents;
    this.#times = times;
  }

  /** Null: there is none of this name. D1 */
  async find(workspace: string, name: string): Promise<KnownHand | null> {
    const key = `${workspace}/${name}`;
    const fresh = this.#known.get(key);
    if (fresh && performance.now() - fresh.at < FRESH_MS) return fresh.known;
    this.#known.delete(key);
    const hand = await findHand(this.#documents, workspace, name);
    if (!hand) return null;
    const { connect_ms, idle_ms, total_ms } = hand.timeouts;
    const own = {
      connectMs: connect_ms ?? this.#times.connectMs,
      idleMs: idle_ms ?? this.#times.idleMs,
      totalMs: total_ms ?? this.#times.totalMs,
    };
    const times = hand.transport.type === "http" ? own : { ...own, idleMs: Math.max(own.idleMs, HOST_MS), totalMs: own.totalMs + HOST_MS };
    const known = { hand, policy: policyOf(hand), times };
    if (this.#known.size >= KNOWN_MAX) this.#known.clear();
    this.#known.set(key, { known, at: performance.now() });
    return known;
  }
}
