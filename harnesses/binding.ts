// A session's tie to its hand: which hand host has it, and that this lease's fence is known there.
//
//   B1  No hand is touched before the first call that needs one; a hand that the log names only hears the new fence, beside inference.
//   B2  `log.hand` is durable before the first execute: whoever takes the session next asks the same host.
//   B3  The fence is announced, and answered, before anything is asked again, cancelled or closed there.
//   B4  A lost hand is said so in the log, once; the next call provisions a new one.

import type { HandRef, Holder } from "../hands/hand.ts";
import type { LeaseContext } from "./host-context.ts";
import type { Journal } from "./journal.ts";

export class HandBinding {
  readonly #context: LeaseContext;
  readonly #journal: Journal;
  readonly #holder: Holder;
  #bound: Promise<HandRef> | null = null;

  constructor(context: LeaseContext, journal: Journal) {
    this.#context = context;
    this.#journal = journal;
    this.#holder = { session: context.lease.id, fence: context.lease.fence };
  }

  get holder(): Holder {
    return this.#holder;
  }

  /** Is there a hand that may have been asked for something? One whose announcement failed is there all the same: the next one asks again. */
  get mayBeBound(): boolean {
    return this.#bound !== null || this.#journal.view.hand?.state === "bound";
  }

  /** Announces the fence to the hand that the log names; its answer is awaited by whoever needs the hand. B1 */
  announce(): void {
    const hand = this.#journal.view.hand;
    if (hand?.state !== "bound" || this.#bound) return;
    const ref = { hand: hand.hand, host: hand.host };
    this.#hold(this.#context.hands.announce(this.#holder, ref, this.#context.leaseSignal).then(() => ref));
  }

  /** The hand, provisioned if there is none. Refuses `hand_lost`. B2 B3 */
  ensure(): Promise<HandRef> {
    this.announce();
    return this.#bound ?? this.#hold(this.#provision());
  }

  /** The hand is gone for good, with its files. B4 */
  async lose(): Promise<void> {
    this.#bound = null;
    const hand = this.#journal.view.hand;
    if (hand?.state !== "bound") return;
    await this.#journal.append([{ type: "log.hand", hand: hand.hand, host: hand.host, state: "lost" }]);
  }

  async #provision(): Promise<HandRef> {
    const { hands, leaseSignal } = this.#context;
    const ref = await hands.provision(this.#holder, { environment_id: this.#journal.view.environmentId }, leaseSignal);
    await this.#journal.append([{ type: "log.hand", hand: ref.hand, host: ref.host, state: "bound" }]);
    return ref;
  }

  // A failed attempt is forgotten, so that the next call tries anew.
  #hold(attempt: Promise<HandRef>): Promise<HandRef> {
    this.#bound = attempt;
    attempt.catch(() => {
      if (this.#bound === attempt) this.#bound = null;
    });
    return attempt;
  }
}
