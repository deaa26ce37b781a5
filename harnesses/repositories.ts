// The repositories of a session: its hand is asked to have them before the first of its tools runs.
//
//   P1  Nothing waits for them but what needs the sandbox: no model request, no other hand.
//   P2  What the hand could not get is a `session.error` each, and the turn goes on. That the hand was asked is in the log (`log.repositories`), so that
//       whoever takes the session next does not ask again; what failed is tried once more in each turn that uses the hand.

import type { HandRef, Holder, Prepared } from "../hands/hand.ts";
import type { BrainEntry } from "../session-store/entry.ts";
import { errorEntry } from "./entries.ts";
import type { LeaseContext } from "./host-context.ts";
import type { Journal } from "./journal.ts";

export class Repositories {
  readonly #context: LeaseContext;
  readonly #journal: Journal;
  #asking: Promise<void> | null = null;

  constructor(context: LeaseContext, journal: Journal) {
    this.#context = context;
    this.#journal = journal;
  }

  /** Resolves when the hand has what it can have. Rejects as the hand host refuses. P1 */
  async in(holder: Holder, ref: HandRef): Promise<void> {
    if (this.#journal.view.repositories.missingIn(ref.hand).length === 0) return;
    this.#asking ??= this.#ask(holder, ref).finally(() => {
      this.#asking = null;
    });
    await this.#asking;
  }

  async #ask(holder: Holder, ref: HandRef): Promise<void> {
    const { hands, leaseSignal, log, lease } = this.#context;
    const { repositories } = this.#journal.view;
    const missing = repositories.missingIn(ref.hand);
    const wanted = missing.map(({ id, url, mount_path, checkout }) => ({ id, url, mount_path, checkout }));
    const prepared = await hands.prepare(holder, ref, { repositories: wanted, wayOut: await this.#context.wayOut() }, leaseSignal);
    const failed = prepared.filter((each) => each.type === "failed");
    log.info({ sessionId: lease.id, fence: lease.fence, hand: ref.hand, wanted: wanted.length, failed: failed.length }, "repositories.prepared");
    const before = repositories.failedIn(ref.hand).filter((id) => !wanted.some((each) => each.id === id));
    const told: BrainEntry = { type: "log.repositories", hand: ref.hand, failed: [...before, ...failed.map(({ id }) => id)] };
    await this.#journal.append([...failed.flatMap((each) => this.#errorOf(each)), told]); // P2
  }

  #errorOf({ id, error, message }: Extract<Prepared, { type: "failed" }>): readonly BrainEntry[] {
    const { repositories } = this.#journal.view;
    const url = repositories.all.find((each) => each.id === id)?.url ?? null;
    if (!repositories.isNews(id, url, message)) return [];
    return [errorEntry({ type: error, message, repository_url: url }, "retrying")];
  }
}
