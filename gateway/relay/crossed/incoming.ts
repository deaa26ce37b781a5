// Reading what a hand answers, message by message: a JSON body, or a stream of events.
//
//   I1  Nobody reads faster than the messages are taken: a slow client slows its hand down.
//   I2  What is no message is passed over. An answer that is no answer of the protocol is an error in clear words.

import { isRecord } from "../../mcp/rpc.ts";
import { SseReader } from "../../mcp/sse-reader.ts";
import { failureOf, noMessage, refusedStatus, timedOut, tooLong } from "../failure.ts";
import { COLLECTED_BYTES_MAX } from "../limits.ts";
import type { Times, UpstreamAnswer } from "../upstream.ts";

export type Params = Readonly<Record<string, unknown>>;
/** One message, or what was taken for one: its members are looked at one by one. */
export type Incoming = Params;

export const recordOf = (value: unknown): Params => (isRecord(value) ? value : {});
export const metaOf = (params: unknown): Params => recordOf(recordOf(params)._meta);
export const isRequest = (message: Incoming): boolean => typeof message.method === "string" && isId(message.id);
export const isId = (id: unknown): id is string | number => typeof id === "string" || Number.isSafeInteger(id);

/** Where a stream got to. */
export interface Place {
  id: string | null;
}

/** I1 I2. `clock` hears of every byte. */
export async function* messagesOf(answer: UpstreamAnswer, clock: Clock, place: Place = { id: null }): AsyncGenerator<Incoming> {
  const { status, headers, body } = answer;
  const refused = refusedStatus(status);
  const type = String(headers["content-type"] ?? "").toLowerCase();
  if (refused) {
    body.destroy();
    throw refused;
  }
  const found: Incoming[] = [];
  const hear = (text: string) => {
    for (const message of parsed(text)) found.push(message);
  };
  const reader = new SseReader(hear);
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body) {
      clock.touch();
      const piece = Buffer.from(chunk as Uint8Array);
      if (type.startsWith("text/event-stream")) {
        reader.take(piece);
        place.id = reader.place ?? place.id;
        yield* found.splice(0);
        continue;
      }
      chunks.push(piece);
      bytes += piece.length;
      if (bytes > COLLECTED_BYTES_MAX) throw tooLong(COLLECTED_BYTES_MAX);
    }
  } catch (error) {
    throw clock.reason ?? failureOf(error);
  } finally {
    body.destroy();
  }
  if (!type.startsWith("application/json")) {
    if (type.startsWith("text/event-stream") || status === 202 || status === 204) return;
    throw noMessage(status);
  }
  hear(Buffer.concat(chunks).toString("utf8"));
  if (found.length === 0) throw noMessage(status);
  yield* found;
}

function parsed(text: string): readonly Incoming[] {
  try {
    const value: unknown = JSON.parse(text);
    return (Array.isArray(value) ? value : [value]).filter(isRecord);
  } catch {
    // I2
    return [];
  }
}

/** The time limits of one request to a hand, and whatever else ends it. */
export class Clock {
  readonly signal: AbortSignal;
  /** Why it ended, if a limit did it. */
  reason: Error | null = null;
  readonly #off = new AbortController();
  readonly #times: Times | null;
  #idle: NodeJS.Timeout | null = null;
  readonly #total: NodeJS.Timeout | null;
  #isHeld = false;

  /** `times` null: it may take as long as it likes. */
  constructor(times: Times | null, outer: AbortSignal) {
    this.#times = times;
    this.signal = AbortSignal.any([outer, this.#off.signal]);
    this.#total = times && setTimeout(() => this.#end(timedOut("did not finish", times.totalMs)), times.totalMs).unref();
    this.#arm();
  }

  touch(): void {
    this.#idle?.refresh();
  }

  /** It is our turn: the hand waits. */
  hold(isHeld: boolean): void {
    this.#isHeld = isHeld;
    if (this.#idle) clearTimeout(this.#idle);
    this.#idle = null;
    this.#arm();
  }

  stop(): void {
    for (const timer of [this.#idle, this.#total]) if (timer) clearTimeout(timer);
    this.#idle = null;
    this.#isHeld = true;
  }

  #arm(): void {
    const times = this.#times;
    if (!times || this.#isHeld) return;
    this.#idle = setTimeout(() => this.#end(timedOut("was silent and did not answer", times.idleMs)), times.idleMs).unref();
  }

  #end(reason: Error): void {
    this.reason = reason;
    this.#off.abort(reason);
  }
}
