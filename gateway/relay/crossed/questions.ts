// Questions of a hand that came to a node on which no call of that session runs: another node may have the call that they belong to.
//
//   Q1  Such a question is a document for a moment; the node that takes it away has it.
//   Q2  Nobody takes it within TAKEN_MS: the hand is told that nobody can be asked.

import type { Logger } from "pino";
import { mint } from "../../../session-store/ids.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import { WORKSPACE } from "../../mcp/kept.ts";
import { REFUSED } from "../../mcp/rpc.ts";
import type { Upstream } from "../upstream.ts";
import { bellOf, reasonOf } from "./crossed.ts";
import { type FarSession, post } from "./far-session.ts";
import { type Incoming, recordOf } from "./incoming.ts";

const TAKEN_MS = 5_000;
const POLL_MS = 1_000;
const PAGE = 32;
const kindOf = (far: string) => `hand_question:${far}`;

export class Questions {
  readonly #store: SessionStore;
  readonly #log: Logger;

  constructor(store: SessionStore, log: Logger) {
    this.#store = store;
    this.#log = log;
  }

  /** Q1 Q2 */
  offer(far: FarSession, upstream: Upstream, message: Incoming): void {
    const id = mint("hques");
    const work = async () => {
      await this.#store.put(WORKSPACE, [{ kind: kindOf(far.id), id, body: { message }, replaces: 0 }]);
      this.#store.ring(bellOf(far.id));
      await new Promise((resolve) => setTimeout(resolve, TAKEN_MS).unref());
      if (await this.#take(far.id, id))
        await post(upstream, far, { id: message.id, error: { code: REFUSED, message: "Nobody is there to be asked." } });
    };
    work().catch((error: unknown) => this.#log.warn({ reason: reasonOf(error) }, "hand.question_lost"));
  }

  /** `has`: could this node have the call of a question? `hear` gets each one that this node took. Gives how to stop. */
  watch(far: string, has: () => boolean, hear: (message: Incoming) => boolean): () => void {
    let isLooking = false;
    const look = async () => {
      if (isLooking || !has()) return;
      isLooking = true;
      try {
        for (const { id, body } of await this.#store.list(WORKSPACE, kindOf(far), { order: "asc", limit: PAGE }))
          if (await this.#take(far, id)) hear(recordOf(recordOf(body).message));
      } finally {
        isLooking = false;
      }
    };
    const looked = () => void look().catch((error: unknown) => this.#log.warn({ reason: reasonOf(error) }, "hand.question_missed"));
    const timer = setInterval(looked, POLL_MS).unref();
    const heard = this.#store.listen(bellOf(far), looked);
    heard.catch((error: unknown) => this.#log.warn({ reason: reasonOf(error) }, "mcp.bell_missed"));
    return () => {
      clearInterval(timer);
      heard.then(
        (hush) => hush(),
        () => {},
      );
    };
  }

  async #take(far: string, id: string): Promise<boolean> {
    try {
      await this.#store.discard(WORKSPACE, kindOf(far), id);
      return true;
    } catch (error) {
      if (error instanceof Refusal && error.code === "document_not_found") return false;
      throw error;
    }
  }
}
