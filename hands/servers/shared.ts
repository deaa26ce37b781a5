// Connections that several sessions use: one for all who ask for the same server under the same word, and each session's own view of it.
//
//   V1  A session sees its own calls alone: it cancels those, and its end ends those.
//   V2  The connection is opened by the first who needs it and closed when nobody of its users is left; whoever comes then opens a new one.

import type { ListAsk, Outcome, ServerTools } from "../hand.ts";
import type { Runner, RunnerCall } from "../runner.ts";
import type { Keep, ServerHand } from "./hand.ts";

interface Core {
  readonly hand: ServerHand;
  readonly users: Set<SharedHand>;
}

export class SharedHands {
  readonly #cores = new Map<string, Core>();

  open(key: string, keep: Keep, make: () => ServerHand): SharedHand {
    return new SharedHand(keep, {
      enter: (user) => {
        const core = this.#cores.get(key) ?? { hand: make(), users: new Set() };
        this.#cores.set(key, core);
        core.users.add(user);
        return core.hand;
      },
      leave: (user) => {
        const core = this.#cores.get(key);
        if (core?.users.delete(user) !== true || core.users.size > 0) return null;
        this.#cores.delete(key);
        return core.hand;
      },
    });
  }
}

interface Ties {
  /** The connection, which this user keeps open from now on. */
  enter(user: SharedHand): ServerHand;
  /** Gives the connection to whoever was the last, to close it. */
  leave(user: SharedHand): ServerHand | null;
}

class SharedHand implements Runner {
  readonly #keep: Keep;
  readonly #ties: Ties;
  readonly #running = new Set<string>();
  #hand: ServerHand | null = null;
  #idleSince = Date.now();

  constructor(keep: Keep, ties: Ties) {
    this.#keep = keep;
    this.#ties = ties;
  }

  async listTools(ask: ListAsk): Promise<ServerTools> {
    this.#idleSince = Date.now();
    return await this.#enter().listTools(ask);
  }

  async run(call: RunnerCall): Promise<Outcome> {
    this.#running.add(call.id);
    try {
      return await this.#enter().run(call, this.#keep);
    } finally {
      this.#running.delete(call.id);
      this.#idleSince = Date.now();
    }
  }

  cancel(toolUseId: string, reason: string): void {
    if (this.#running.has(toolUseId)) this.#hand?.cancel(toolUseId, reason); // V1
  }

  /** V1 V2 */
  async stop(reason: string): Promise<void> {
    for (const id of this.#running) this.#hand?.cancel(id, reason);
    this.#hand = null;
    await this.#ties.leave(this)?.stop(reason);
  }

  idleSince(): number | null {
    return this.#hand === null || this.#running.size > 0 ? null : this.#idleSince;
  }

  #enter(): ServerHand {
    this.#hand ??= this.#ties.enter(this);
    return this.#hand;
  }
}
