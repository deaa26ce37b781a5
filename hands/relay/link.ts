// One server that is reached by a line (a child, or a stream of the older transport), and the clients that it works for.
//
//   L1  Every request that goes to the server has a number of ours, which is its progress token too: two clients' ids never meet.
//   L2  An answer, a progress notice and a notice of a subscription find their request by that number; what belongs to none is given to the owner.
//   L3  The end of the line is an error answer to every request that is open.
//   L4  The server is asked for no more than REQUESTS_MAX things at once, and the line holds no more than WAITING_BYTES_MAX that it did not take.
//   L5  A request that is called off has no answer: one that comes late is dropped.
//   L6  A request that hears nothing for `idleMs`, or has no answer after `totalMs`, is called off. A word of progress starts the idle time anew; while
//       its owner has something to answer it does not run.

import { NOT_STARTED } from "../servers/children.ts";
import { IDLE_MS, TOTAL_MS } from "../servers/limits.ts";
import { masked } from "../servers/mask.ts";
import { type Envelope, errorOf, type Id, keyOf, metaOf, type Params, REFUSED, withMeta } from "./envelope.ts";
import { type Line, Untaken } from "./line.ts";
import type { Reply } from "./reply.ts";

const REQUESTS_MAX = 256;
const WAITING_BYTES_MAX = 40 * 1024 * 1024;
const SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId";
/** Answered when the client wants to hear no more: silence is what it is for. */
const LISTEN = "subscriptions/listen";

/** L6 */
export interface Times {
  readonly idleMs: number;
  readonly totalMs: number;
}
export const TIMES: Times = { idleMs: IDLE_MS, totalMs: TOTAL_MS };

/** Whose a request is. */
export interface Owner {
  /** It has something to answer. */
  readonly isAsked?: boolean;
}

interface Open {
  readonly owner: Owner;
  readonly id: Id;
  readonly token: unknown;
  readonly reply: Pick<Reply, "send" | "end" | "drop">;
  readonly late: NodeJS.Timeout;
  readonly idle: NodeJS.Timeout | undefined;
}

/** What belongs to no request of a client. */
export interface Heard {
  message(message: Envelope): void;
  ended(says: string): void;
}

export class Link {
  readonly #line: Line;
  readonly #secrets: readonly string[];
  readonly #open = new Map<number, Open>();
  #heard: Heard | null = null;
  #next = 1;

  /** `secrets`: what the server was given that is told to nobody. */
  constructor(line: Line, secrets: readonly string[]) {
    this.#line = line;
    this.#secrets = secrets.map((secret) => JSON.stringify(secret).slice(1, -1));
  }

  async start(heard: Heard): Promise<void> {
    this.#heard = heard;
    await this.#line.start({ message: (message) => this.#hear(message), closed: () => this.#ended() });
  }

  /** From here on another one hears. */
  listen(heard: Heard): void {
    this.#heard = heard;
  }

  /** Null while it runs. */
  get end(): string | null {
    return this.#line.end;
  }

  /** The revision that client and server speak. */
  agreed(version: string): void {
    this.#line.agreed(version);
  }

  get isBusy(): boolean {
    return this.#open.size > 0;
  }

  /** Where the owner's only open request is answered; null: it has none, or several. */
  only(owner: Owner): Open["reply"] | null {
    const own = [...this.#open.values()].filter((each) => each.owner === owner);
    return own.length === 1 ? (own[0]?.reply ?? null) : null;
  }

  oldest(owner: Owner): Open["reply"] | null {
    return [...this.#open.values()].find((each) => each.owner === owner)?.reply ?? null;
  }

  /** L1 L3 L4 L6 */
  request(owner: Owner, message: Envelope & { readonly id: Id }, reply: Open["reply"], times: Times = TIMES): void {
    const { id } = message;
    if ([...this.#open.values()].some((each) => each.owner === owner && keyOf(each.id) === keyOf(id)))
      return void reply.end(errorOf(id, REFUSED, "A request of this id is under way."), 400);
    if (this.#open.size >= REQUESTS_MAX) return void reply.end(errorOf(id, REFUSED, "The server has too many requests under way."), 503);
    const refused = this.#refused();
    if (refused !== null) return void reply.end(errorOf(id, REFUSED, refused), 503);
    const number = this.#next;
    this.#next += 1;
    const token = metaOf(message.params).progressToken;
    const params = token === undefined ? message.params : withMeta(message.params, "progressToken", number);
    const late = setTimeout(() => this.#late(number, "did not answer in time"), times.totalMs).unref();
    const idle = message.method === LISTEN ? undefined : setTimeout(() => this.#silent(number), times.idleMs).unref();
    this.#open.set(number, { owner, id, token, reply, late, idle });
    this.#line.send({ ...message, id: number, ...(params && { params }) }).catch((error: unknown) => {
      // What is not told here is told by the end of the line.
      if (!(error instanceof Untaken)) return;
      const then = error.mayHaveRun ? "It may have had its effect." : "It was not carried out.";
      this.#take(number)?.reply.end(errorOf(id, REFUSED, `The server did not take the request: ${error.message}. ${then}`));
    });
  }

  /** L5. Calls off the owner's request of this id; false: there is none. */
  cancel(owner: Owner, id: Id, params: Params = {}): boolean {
    const found = [...this.#open].find(([, each]) => each.owner === owner && keyOf(each.id) === keyOf(id));
    if (!found) return false;
    const [number] = found;
    const open = this.#take(number);
    this.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { ...params, requestId: number } });
    open?.reply.drop();
    return true;
  }

  /** Everything of an owner that went away. */
  forget(owner: Owner): void {
    for (const { id } of [...this.#open.values()].filter((each) => each.owner === owner)) this.cancel(owner, id, { reason: "the session ended" });
  }

  /** Sends what is no request of a client. Why it could not, or null. L4 */
  send(message: Envelope): string | null {
    const refused = this.#refused();
    // A server that is gone is told of by its end; what it did not take, by its line.
    if (refused === null) this.#line.send(message).catch(() => {});
    return refused;
  }

  close(): Promise<void> {
    return this.#line.close();
  }

  /** L2 */
  #hear(given: Envelope): void {
    const message = this.#secrets.length === 0 ? given : (JSON.parse(masked(JSON.stringify(given), this.#secrets)) as Envelope);
    if (message.method === undefined) {
      const open = typeof message.id === "number" ? this.#take(message.id) : undefined;
      if (open) open.reply.end({ ...message, id: open.id });
      return;
    }
    const { params } = message;
    if (message.id === undefined && message.method === "notifications/progress") {
      const open = typeof params?.progressToken === "number" ? this.#open.get(params.progressToken) : undefined;
      open?.idle?.refresh();
      open?.reply.send({ ...message, params: { ...params, progressToken: open.token } });
      return;
    }
    const subscription = metaOf(params)[SUBSCRIPTION];
    if (typeof subscription === "number") {
      const open = this.#open.get(subscription);
      open?.reply.send({ ...message, params: withMeta(params, SUBSCRIPTION, open.id) });
      return;
    }
    this.#heard?.message(message);
  }

  #take(number: number): Open | undefined {
    const open = this.#open.get(number);
    clearTimeout(open?.late);
    clearTimeout(open?.idle);
    this.#open.delete(number);
    return open;
  }

  /** L4 */
  #refused(): string | null {
    if (this.end !== null) return `The server ended: ${this.end}.`;
    return this.#line.waitingBytes > WAITING_BYTES_MAX ? "The server does not read what it is sent." : null;
  }

  /** L6 */
  #silent(number: number): void {
    const open = this.#open.get(number);
    if (open?.owner.isAsked === true) open.idle?.refresh();
    else this.#late(number, "was silent for too long");
  }

  #late(number: number, says: string): void {
    const open = this.#take(number);
    this.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: number, reason: "it took too long" } });
    open?.reply.end(errorOf(open.id, REFUSED, `The server ${says}. The request may have had its effect.`));
  }

  /** L3 */
  #ended(): void {
    const says = this.end ?? "it was ended";
    for (const number of [...this.#open.keys()]) {
      const open = this.#take(number);
      const effect = says.startsWith(NOT_STARTED) ? "" : " The request may have had its effect.";
      open?.reply.end(errorOf(open.id, REFUSED, `The server ended before it answered: ${says}.${effect}`));
    }
    this.#heard?.ended(says);
  }
}
