// One request that runs at a hand of the handshake era, on this node, for a client without a session: what the hand says until its answer.
//
//   C1  The request's id is ours and its progress token, too: callers' own ids meet in one session.
//   C2  What the hand says goes to whoever listens: the client's open request at first, the log of the parked call afterwards (parked.ts).
//   C3  A stream that broke off is taken up again at its last place, a few times. Without a place the answer is lost, and the client is told so.
//   C4  Called off: the hand is told by a notice, and nobody waits for it.

import { mint } from "../../../session-store/ids.ts";
import { errorMessage, INTERNAL_ERROR, RpcError } from "../../mcp/rpc.ts";
import { failureOf } from "../failure.ts";
import type { Upstream } from "../upstream.ts";
import { type FarSession, farHeaders, post, SessionLost } from "./far-session.ts";
import { Clock, type Incoming, isRequest, messagesOf, metaOf, type Params, type Place, recordOf } from "./incoming.ts";

const RESUMES_MAX = 5;
const RESUME_MS = 300;

/** Who listens to a call. Each is waited for. */
export interface CallHearer {
  /** A notice of this call. */
  tell(message: Incoming): Promise<void>;
  /** A question that the client is to answer. */
  ask(message: Incoming): Promise<void>;
  /** The answer, a result or an error. */
  done(message: Incoming): Promise<void>;
}

export interface CallParts {
  readonly upstream: Upstream;
  readonly far: FarSession;
  readonly method: string;
  readonly params: Params;
  readonly capabilities: Params;
  /** What is of the session and of no call. */
  aside(message: Incoming): void;
  /** Whether the question may be put to the client; if not, it is answered already. */
  mayAsk(message: Incoming, call: FarCall): boolean;
}

export class FarCall {
  readonly id = mint("hcall");
  readonly parts: CallParts;
  /** What the hand wanted and this client could not give. */
  lacking: Params | null = null;
  isOver = false;
  readonly #off = new AbortController();
  readonly #clock: Clock;
  #hearer: CallHearer;

  constructor(parts: CallParts, hearer: CallHearer) {
    this.parts = parts;
    this.#hearer = hearer;
    this.#clock = new Clock(parts.upstream.times, this.#off.signal);
  }

  /** C2 */
  listen(hearer: CallHearer): void {
    this.#hearer = hearer;
  }

  /** While questions are open it is not the hand that is slow. */
  wait(isWaiting: boolean): void {
    this.#clock.hold(isWaiting);
  }

  /** A message that is this call's, on whatever stream it came. */
  async hear(message: Incoming): Promise<void> {
    if (this.isOver) return;
    if (message.method === undefined) {
      if (message.id !== this.id) return;
      this.isOver = true;
      return this.#hearer.done(message);
    }
    if (isRequest(message)) {
      if (this.parts.mayAsk(message, this)) await this.#hearer.ask(message);
    } else await this.#hearer.tell(message);
  }

  /** Runs it to its answer. Throws `SessionLost` when it did not run; everything else is heard. C1 C3 */
  async run(): Promise<void> {
    const { upstream, far, method, params } = this.parts;
    const { _meta, ...given } = params;
    const { progressToken, ...meta } = metaOf(params);
    const passed = Object.fromEntries(Object.entries(meta).filter(([name]) => !name.startsWith("io.modelcontextprotocol/")));
    const own = { ...passed, ...(progressToken !== undefined && { progressToken: this.id }) };
    const sent = { ...given, ...(Object.keys(own).length > 0 && { _meta: own }) };
    const body = JSON.stringify({ jsonrpc: "2.0", id: this.id, method, params: sent });
    const place: Place = { id: null };
    try {
      const answer = await upstream.send({ method: "POST", headers: farHeaders(far), body, signal: this.#clock.signal });
      if (isLost(answer.status, far)) {
        answer.body.resume().on("error", () => {});
        throw new SessionLost("the hand does not know the session");
      }
      await this.#read(answer, place);
      for (let tries = 0; !this.isOver && place.id !== null && tries < RESUMES_MAX; tries += 1) await this.#resume(place);
      if (!this.isOver) throw failureOf(new Error("the stream ended without an answer"));
    } catch (error) {
      if (error instanceof SessionLost) throw error;
      if (this.isOver) return;
      this.isOver = true;
      const known = error instanceof RpcError ? error : (this.#clock.reason ?? failureOf(error));
      const told = known instanceof RpcError ? known : new RpcError(INTERNAL_ERROR, known.message);
      if (this.#clock.reason) this.#tellOff();
      await this.#hearer.done(errorMessage(this.id, told) as Incoming);
    } finally {
      this.#clock.stop();
    }
  }

  /** C4 */
  cancel(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#tellOff();
    this.#clock.stop();
    this.#off.abort(new Error("called off"));
  }

  /** Called off by us: whoever listens is told why. */
  async giveUp(error: RpcError): Promise<void> {
    if (this.isOver) return;
    this.cancel();
    await this.#hearer.done(errorMessage(this.id, error) as Incoming);
  }

  #tellOff(): void {
    const { upstream, far } = this.parts;
    const notice = { method: "notifications/cancelled", params: { requestId: this.id, reason: "The client called it off." } };
    // A hand that can't be told has nothing that it could stop.
    post(upstream, far, notice).catch(() => {});
  }

  async #read(answer: Parameters<typeof messagesOf>[0], place: Place): Promise<void> {
    for await (const message of messagesOf(answer, this.#clock, place)) {
      if (isOfCall(message, this.id)) await this.hear(message);
      else this.parts.aside(message);
      if (this.isOver) return;
    }
  }

  async #resume(place: Place): Promise<void> {
    const { upstream, far } = this.parts;
    await new Promise((resolve) => setTimeout(resolve, RESUME_MS));
    const { "content-type": _, ...headers } = farHeaders(far);
    const asked = { ...headers, accept: "text/event-stream", "last-event-id": place.id ?? "" };
    const answer = await upstream.send({ method: "GET", headers: asked, body: null, signal: this.#clock.signal });
    if (answer.status === 200) return this.#read(answer, place);
    answer.body.resume().on("error", () => {});
    throw failureOf(new Error("the stream can't be taken up again"));
  }
}

export const isLost = (status: number, { session }: Pick<FarSession, "session">): boolean => status === 404 && session !== null;

/** On a call's own stream everything is of that call, but for what tells of the whole session. */
function isOfCall(message: Incoming, call: string): boolean {
  const { method, params, id } = message;
  if (method === undefined || id !== undefined) return true;
  if (method === "notifications/progress") return recordOf(params).progressToken === call;
  return !/^notifications\/((tools|prompts|resources)\/list_changed|resources\/updated)$/.test(String(method));
}
