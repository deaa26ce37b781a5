// One child that speaks MCP over its standard input and output, and the clients that it works for.
//
//   L1  Every request that goes to the child has a number of ours, which is its progress token too: two clients' ids never meet.
//   L2  An answer, a progress notice and a notice of a subscription find their request by that number; what belongs to none is given to the owner.
//   L3  The end of the child is an error answer to every request that is open.
//   L4  The child is asked for no more than REQUESTS_MAX things at once, and its input holds no more than INPUT_BYTES_MAX that it did not read.
//   L5  A request that is called off has no answer: one that comes late is dropped.

import type { Child } from "../servers/children.ts";
import { TOTAL_MS } from "../servers/limits.ts";
import { masked } from "../servers/mask.ts";
import { StdioTransport } from "../servers/stdio.ts";
import { type Envelope, errorOf, type Id, keyOf, metaOf, type Params, REFUSED, readEnvelope, withMeta } from "./envelope.ts";
import type { Reply } from "./reply.ts";

const REQUESTS_MAX = 256;
const INPUT_BYTES_MAX = 40 * 1024 * 1024;
const SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId";

interface Open {
  readonly owner: object;
  readonly id: Id;
  readonly token: unknown;
  readonly reply: Pick<Reply, "send" | "end" | "drop">;
  readonly late: NodeJS.Timeout;
}

/** What belongs to no request of a client. */
export interface Heard {
  message(message: Envelope): void;
  ended(says: string): void;
}

export class Link {
  readonly #child: Child;
  readonly #transport: StdioTransport;
  readonly #secrets: readonly string[];
  readonly #open = new Map<number, Open>();
  #heard: Heard | null = null;
  #next = 1;

  /** `secrets`: what the child was given that is told to nobody. */
  constructor(child: Child, secrets: readonly string[], stray: (line: string) => void) {
    this.#child = child;
    this.#secrets = secrets.map((secret) => JSON.stringify(secret).slice(1, -1));
    this.#transport = new StdioTransport(child, (line) => stray(masked(line, secrets)), readEnvelope as never);
  }

  async start(heard: Heard): Promise<void> {
    this.#heard = heard;
    this.#transport.onmessage = (message) => this.#hear(message as Envelope);
    this.#transport.onclose = () => this.#ended();
    await this.#transport.start();
  }

  /** From here on another one hears. */
  listen(heard: Heard): void {
    this.#heard = heard;
  }

  /** Null while it runs. */
  get end(): string | null {
    return this.#transport.end;
  }

  get isBusy(): boolean {
    return this.#open.size > 0;
  }

  /** Where the owner's only open request is answered; null: it has none, or several. */
  only(owner: object): Open["reply"] | null {
    const own = [...this.#open.values()].filter((each) => each.owner === owner);
    return own.length === 1 ? (own[0]?.reply ?? null) : null;
  }

  oldest(owner: object): Open["reply"] | null {
    return [...this.#open.values()].find((each) => each.owner === owner)?.reply ?? null;
  }

  /** L1 L3 L4 */
  request(owner: object, message: Envelope & { readonly id: Id }, reply: Open["reply"]): void {
    const { id } = message;
    if ([...this.#open.values()].some((each) => each.owner === owner && keyOf(each.id) === keyOf(id)))
      return void reply.end(errorOf(id, REFUSED, "A request of this id is under way."), 400);
    if (this.#open.size >= REQUESTS_MAX) return void reply.end(errorOf(id, REFUSED, "The server has too many requests under way."), 503);
    const number = this.#next;
    this.#next += 1;
    const token = metaOf(message.params).progressToken;
    const params = token === undefined ? message.params : withMeta(message.params, "progressToken", number);
    const late = setTimeout(() => this.#late(number), TOTAL_MS).unref();
    this.#open.set(number, { owner, id, token, reply, late });
    const says = this.send({ ...message, id: number, ...(params && { params }) });
    if (says !== null) this.#take(number)?.reply.end(errorOf(id, REFUSED, says), 503);
  }

  /** L5. Calls off the owner's request of this id; false: there is none. */
  cancel(owner: object, id: Id, params: Params = {}): boolean {
    const found = [...this.#open].find(([, each]) => each.owner === owner && keyOf(each.id) === keyOf(id));
    if (!found) return false;
    const [number] = found;
    const open = this.#take(number);
    this.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { ...params, requestId: number } });
    open?.reply.drop();
    return true;
  }

  /** Everything of an owner that went away. */
  forget(owner: object): void {
    for (const { id } of [...this.#open.values()].filter((each) => each.owner === owner)) this.cancel(owner, id, { reason: "the session ended" });
  }

  /** Sends what is no request of a client. Why it could not, or null. L4 */
  send(message: Envelope): string | null {
    if (this.end !== null) return `The server ended: ${this.end}.`;
    if (this.#child.stdin.writableLength > INPUT_BYTES_MAX) return "The server does not read what it is sent.";
    // A child that is gone is told of by its end.
    this.#transport.send(message as never).catch(() => {});
    return null;
  }

  close(): Promise<void> {
    return this.#transport.close();
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
    this.#open.delete(number);
    return open;
  }

  #late(number: number): void {
    const open = this.#take(number);
    this.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: number, reason: "it took too long" } });
    open?.reply.end(errorOf(open.id, REFUSED, "The server did not answer in time."));
  }

  /** L3 */
  #ended(): void {
    const says = this.end ?? "it was ended";
    for (const number of [...this.#open.keys()]) {
      const open = this.#take(number);
      // Pid 0: there never was a child.
      const effect = this.#child.pid === 0 ? "" : " The request may have had its effect.";
      open?.reply.end(errorOf(open.id, REFUSED, `The server ended before it answered: ${says}.${effect}`));
    }
    this.#heard?.ended(says);
  }
}
