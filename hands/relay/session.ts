// A client's session of the handshake era with a child, and what the child says to it.
//
//   N1  `session`: the server is this client's alone and ends with the session. `shared`: one child for all; it is told of no client that could be
//       asked something, since nobody could say which one is meant, and what it asks all the same is refused.
//   N2  What the child says goes out on the answer that it belongs to, where there is no doubt; otherwise on the listening stream, which keeps it
//       for a client that is not there yet. A question that nobody would hear there goes to the oldest open request.
//   N3  A question is answered once, by the session that it was put to.

import { randomBytes } from "node:crypto";
import { type Envelope, errorOf, type Id, keyOf, METHOD_NOT_FOUND, REFUSED } from "./envelope.ts";
import type { Heard, Link, Owner } from "./link.ts";
import { EventStream } from "./stream.ts";

const QUESTIONS_MAX = 256;
const STREAMS_KEPT = 64;
const PRIMED_FROM = "2025-11-25";
const TO_ALL = /^notifications\/(tools\/list_changed|prompts\/list_changed|resources\/(list_changed|updated))$/;

export interface Brought {
  grant: string | null;
}

interface Sink {
  send(message: object): void;
}

export class RelaySession implements Heard, Owner {
  readonly id = randomBytes(24).toString("base64url");
  readonly server: string;
  readonly link: Link;
  readonly isShared: boolean;
  readonly listening = new EventStream(randomBytes(9).toString("base64url"));
  readonly subscriptions = new Set<string>();
  /** The newest leave to use a credential that its requests brought; null: its server is a child, which needs none. */
  readonly brought: Brought | null;
  /** As agreed on; empty until then. */
  version = "";
  usedAt = Date.now();
  /** Its client listens as long as it lives; a gateway that translates for one does not. */
  hasListener = false;
  readonly #streams: EventStream[] = [];
  readonly #asked = new Map<string, Sink>();
  readonly #onEnd: (says: string) => void;

  constructor(options: {
    readonly server: string;
    readonly link: Link;
    readonly isShared: boolean;
    readonly brought?: Brought | null;
    onEnd(says: string): void;
  }) {
    this.server = options.server;
    this.link = options.link;
    this.brought = options.brought ?? null;
    this.isShared = options.isShared;
    this.#onEnd = (says) => options.onEnd(says);
  }

  get isPrimed(): boolean {
    return this.version >= PRIMED_FROM;
  }

  /** Something is under way, or somebody listens. */
  get isUsed(): boolean {
    return this.listening.isHeard || this.link.oldest(this) !== null;
  }

  /** Since when its client is away: it listened, and does not any more. Null: there is no telling. */
  get awaySince(): number | null {
    const { leftAt } = this.listening;
    return this.hasListener && leftAt !== null ? Math.max(leftAt, this.usedAt) : null;
  }

  /** A question was put to its client that is not answered. */
  get isAsked(): boolean {
    return this.#asked.size > 0;
  }

  openStream(): EventStream {
    const stream = new EventStream(randomBytes(9).toString("base64url"));
    this.#streams.push(stream);
    const over = this.#streams.length > STREAMS_KEPT ? this.#streams.findIndex((each) => each.isOver) : -1;
    if (over >= 0) this.#streams.splice(over, 1);
    return stream;
  }

  /** The stream that an event's id is of, and the event's number in it. */
  place(text: string): { readonly stream: EventStream; readonly after: number } | null {
    const [, id, digits] = /^([\w-]{1,64})\.(\d{1,9})$/.exec(text) ?? [];
    const stream = [this.listening, ...this.#streams].find((each) => each.id === id);
    return stream ? { stream, after: Number(digits) } : null;
  }

  /** N2 */
  message(message: Envelope): void {
    const { id, method = "" } = message;
    if (id !== undefined) return void this.#question(message, id);
    if (TO_ALL.test(method)) return void this.tell(message);
    const question = message.params?.requestId;
    const asked = method === "notifications/cancelled" && (typeof question === "string" || typeof question === "number") ? keyOf(question) : null;
    const sink = (asked === null ? null : this.#asked.get(asked)) ?? this.link.only(this);
    if (asked !== null) this.#asked.delete(asked);
    if (sink) sink.send(message);
    else this.tell(message);
  }

  /** By the listening stream. */
  tell(message: Envelope): void {
    this.listening.send(JSON.stringify(message));
  }

  /** N3 */
  answer(message: Envelope & { readonly id: Id }): void {
    if (this.#asked.delete(keyOf(message.id))) this.link.send(message);
  }

  ended(says: string): void {
    this.close();
    this.#onEnd(says);
  }

  close(): void {
    this.link.forget(this);
    this.listening.end();
    for (const stream of this.#streams) stream.end();
  }

  #question(message: Envelope, id: Id): void {
    if (message.method === "ping") return void this.link.send({ jsonrpc: "2.0", id, result: {} });
    if (this.#asked.size >= QUESTIONS_MAX) return void this.link.send({ ...errorOf(id, REFUSED, "Too many questions are open."), id });
    const listening: Sink = { send: (said) => this.tell(said as Envelope) };
    const sink = this.link.only(this) ?? (this.listening.isHeard ? listening : (this.link.oldest(this) ?? listening));
    this.#asked.set(keyOf(id), sink);
    sink.send(message);
  }
}

/** What a shared child says to nobody in particular. N1 */
export function sharedHeard(link: Link, sessions: () => readonly RelaySession[], onEnd: (says: string) => void): Heard {
  return {
    message(message) {
      const { id, method, params } = message;
      if (id !== undefined) {
        if (method === "ping") link.send({ jsonrpc: "2.0", id, result: {} });
        else link.send({ ...errorOf(id, METHOD_NOT_FOUND, "A shared server can't ask its clients."), id });
        return;
      }
      const uri = method === "notifications/resources/updated" ? params?.uri : undefined;
      for (const session of sessions()) if (uri === undefined || (typeof uri === "string" && session.subscriptions.has(uri))) session.tell(message);
    },
    ended(says) {
      for (const session of sessions()) session.ended(says);
      onEnd(says);
    },
  };
}
