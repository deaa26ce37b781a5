// The first stretch of a call: from the client's request to the hand's answer, or to its first questions.

import { failureOf } from "../failure.ts";
import type { CallHearer, FarCall } from "./far-call.ts";
import { SessionLost } from "./far-session.ts";
import type { Incoming, Params } from "./incoming.ts";
import { GATHER_MS } from "./parked.ts";
import type { StatelessOut } from "./stateless-out.ts";

export type Outcome =
  | { readonly type: "done"; readonly message: Incoming; readonly lacking: Params | null }
  | { readonly type: "asked"; readonly call: FarCall; readonly questions: readonly Incoming[] }
  /** The client went away. */
  | { readonly type: "left" };

export class Leg implements CallHearer {
  readonly outcome: Promise<Outcome>;
  readonly #out: StatelessOut;
  readonly #questions: Incoming[] = [];
  #resolve: (outcome: Outcome) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #call: FarCall | null = null;
  #isLeft = false;

  constructor(out: StatelessOut) {
    this.#out = out;
    this.outcome = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  begin(call: FarCall): void {
    this.#call = call;
    if (this.#isLeft) this.cancel();
  }

  tell(message: Incoming): Promise<void> {
    return this.#out.notice(message);
  }

  async ask(message: Incoming): Promise<void> {
    this.#questions.push(message);
    const call = this.#call;
    if (this.#questions.length > 1 || !call) return;
    call.wait(true);
    setTimeout(() => this.#resolve({ type: "asked", call, questions: this.#questions.splice(0) }), GATHER_MS);
  }

  async done(message: Incoming): Promise<void> {
    this.#resolve({ type: "done", message, lacking: this.#call?.lacking ?? null });
  }

  fail(error: unknown): void {
    this.#reject(error instanceof SessionLost ? error : failureOf(error));
  }

  cancel(): void {
    this.#isLeft = true;
    this.#call?.cancel();
    this.#resolve({ type: "left" });
  }

  /** What came between the questions and the parking of the call. */
  taken(): readonly Incoming[] {
    return this.#questions.splice(0);
  }
}
