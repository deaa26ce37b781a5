// Calls that wait for a client's answer: the hand's stream stays open on this node, and what comes of the call is kept for whatever node the client
// comes back to.
//
//   K1  From the first question on, what the hand says of the call is stored in order: notices, further questions, the answer. Any node follows it.
//   K2  The node that holds the call says every so often that it lives. When that time is over, whoever follows is told that the call is lost, and may
//       have been carried out.
//   K3  A call whose questions nobody answers within ANSWER_MS is called off at the hand. So is one whose client goes away while it runs on.
//   K4  Notices of one call over NOTICES_MAX are dropped; questions and the answer are not.

import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { z } from "zod";
import { mint } from "../../../session-store/ids.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import { LIFE_MS, readMessageText, readStream, StreamLog, streamBell } from "../../mcp/handshake/stream-log.ts";
import { WORKSPACE } from "../../mcp/kept.ts";
import { errorMessage, INTERNAL_ERROR, RpcError } from "../../mcp/rpc.ts";
import { bellOf, reasonOf } from "./crossed.ts";
import type { CallHearer, FarCall } from "./far-call.ts";
import type { FarLine } from "./far-line.ts";
import type { Incoming, Params } from "./incoming.ts";

export const PARKED_KIND = "hand_parked";
const ANSWER_MS = 600_000;
/** Questions that a server asks beside each other go to the client together. */
export const GATHER_MS = 50;
const NOTICES_MAX = 1_000;
const POLL_MS = 2_000;
const FOLLOW_POLL_MS = 1_000;
const TRIES_MAX = 10;

const Body = z.object({ answered: z.number(), isCancelled: z.boolean() });
type Body = z.infer<typeof Body>;

const Message = z.custom<Incoming>((value) => typeof value === "object" && value !== null);
const Entry = z.discriminatedUnion("type", [
  z.object({ type: z.literal("notice"), message: Message }),
  z.object({ type: z.literal("asked"), questions: z.array(Message) }),
  z.object({ type: z.literal("done"), message: Message, lacking: z.custom<Params | null>((value) => typeof value === "object") }),
]);
export type Entry = z.infer<typeof Entry>;

export class ParkedCalls {
  readonly #store: SessionStore;
  readonly #log: Logger;
  readonly #answerMs: number;
  readonly #here = new Set<ParkedCall>();

  constructor(store: SessionStore, log: Logger, answerMs = ANSWER_MS) {
    this.#store = store;
    this.#log = log;
    this.#answerMs = answerMs;
  }

  /** Gives the id by which any node finds the call. What the call says from now on is stored. `rest`: questions that came after those that are told. */
  async park(line: FarLine, call: FarCall, rest: () => readonly Incoming[]): Promise<string> {
    const parked = new ParkedCall({
      store: this.#store,
      log: this.#log,
      line,
      call,
      answerMs: this.#answerMs,
      ended: () => this.#here.delete(parked),
    });
    this.#here.add(parked);
    call.listen(parked);
    await parked.open();
    for (const message of rest()) await parked.ask(message);
    return parked.id;
  }

  answered(id: string): Promise<boolean> {
    return this.#mark(id, ({ answered }) => ({ answered: answered + 1 }));
  }

  async cancel(id: string): Promise<void> {
    await this.#mark(id, () => ({ isCancelled: true }));
  }

  /** What came after `after` of these, and what comes. K1 K2 */
  async *follow(id: string, after: number, signal: AbortSignal): AsyncGenerator<{ readonly entry: Entry; readonly at: number }> {
    let ring = () => {};
    const hush = await this.#store.listen(streamBell(id), () => ring());
    try {
      for (let at = after; ; ) {
        signal.throwIfAborted();
        const rung = new AbortController();
        ring = () => rung.abort();
        const stored = await readStream(this.#store, id);
        if (!stored) throw gone();
        for (; at < stored.count; ) {
          at += 1;
          yield { entry: Entry.parse(JSON.parse(await readMessageText(this.#store, id, at))), at };
        }
        if (stored.isDone || stored.until < Date.now()) throw gone();
        await sleep(FOLLOW_POLL_MS, undefined, { signal: AbortSignal.any([signal, rung.signal]) }).catch(() => {});
      }
    } finally {
      hush();
    }
  }

  /** This node stops: what is parked here is told so to whoever follows. */
  async close(): Promise<void> {
    await Promise.all([...this.#here].map((parked) => parked.stop()));
  }

  /** False: there is no such call any more. */
  async #mark(id: string, change: (body: Body) => Partial<Body>): Promise<boolean> {
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const document = await this.#store.get(WORKSPACE, PARKED_KIND, id);
      if (!document) return false;
      const body = Body.parse(document.body);
      try {
        await this.#store.put(WORKSPACE, [{ kind: PARKED_KIND, id, body: { ...body, ...change(body) }, replaces: document.revision }]);
        this.#store.ring(bellOf(id));
        return true;
      } catch (error) {
        if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
      }
    }
    throw new Refusal("store_busy");
  }
}

const gone = () => new RpcError(INTERNAL_ERROR, "The node that ran this request is gone; the request may have had its effect.", { status: 200 });

interface ParkedParts {
  readonly store: SessionStore;
  readonly log: Logger;
  readonly line: FarLine;
  readonly call: FarCall;
  readonly answerMs: number;
  ended(): void;
}

class ParkedCall implements CallHearer {
  readonly id = mint("hpark");
  readonly #parts: ParkedParts;
  readonly #stored: StreamLog;
  readonly #off = new AbortController();
  readonly #alive: NodeJS.Timeout;
  #abandoned: NodeJS.Timeout | undefined;
  #gathered: Incoming[] = [];
  #gathering: NodeJS.Timeout | undefined;
  #notices = 0;
  #answered = 0;
  #last: Promise<void> = Promise.resolve();

  constructor(parts: ParkedParts) {
    this.#parts = parts;
    this.#stored = new StreamLog(parts.store, this.id, { session: parts.line.far.id, request: parts.call.id });
    this.#alive = setInterval(() => void this.#append([], false), LIFE_MS / 3).unref();
    this.#wait();
  }

  async open(): Promise<void> {
    const { store, log } = this.#parts;
    const { signal } = this.#off;
    const body: Body = { answered: 0, isCancelled: false };
    await store.put(WORKSPACE, [{ kind: PARKED_KIND, id: this.id, body, replaces: 0 }]);
    await this.#append([], false);
    const looked = () => void this.#look().catch((error: unknown) => log.warn({ reason: reasonOf(error) }, "mcp.not_looked"));
    const timer = setInterval(looked, POLL_MS).unref();
    const hush = await store.listen(bellOf(this.id), looked);
    const stop = () => {
      clearInterval(timer);
      hush();
    };
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  }

  async tell(message: Incoming): Promise<void> {
    this.#notices += 1;
    if (this.#notices <= NOTICES_MAX) await this.#append([{ type: "notice", message }], false);
  }

  async ask(message: Incoming): Promise<void> {
    this.#wait();
    this.#gathered.push(message);
    if (this.#gathered.length > 1) return;
    this.#gathering = setTimeout(() => void this.#append([{ type: "asked", questions: this.#gathered.splice(0) }], false), GATHER_MS);
  }

  async done(message: Incoming): Promise<void> {
    await this.#append([{ type: "done", message, lacking: this.#parts.call.lacking }], true);
    this.#end();
  }

  async stop(): Promise<void> {
    const { call } = this.#parts;
    call.cancel();
    const error = { code: INTERNAL_ERROR, message: "The node that ran this request was shut down; the request may have had its effect." };
    await this.done(errorMessage(call.id, error) as Incoming);
  }

  /** K3 */
  #wait(): void {
    const { line, call, answerMs } = this.#parts;
    line.wait(call, true);
    clearTimeout(this.#abandoned);
    this.#abandoned = setTimeout(() => void this.#giveUp("nobody answered the hand's question in time"), answerMs).unref();
  }

  async #look(): Promise<void> {
    const { store, line, call } = this.#parts;
    const document = await store.get(WORKSPACE, PARKED_KIND, this.id);
    const body = document ? Body.parse(document.body) : null;
    if (!body || body.isCancelled) return this.#giveUp("its client called it off");
    if (body.answered <= this.#answered) return;
    this.#answered = body.answered;
    clearTimeout(this.#abandoned);
    line.wait(call, false);
  }

  async #giveUp(reason: string): Promise<void> {
    const { call, log } = this.#parts;
    if (this.#off.signal.aborted) return;
    call.cancel();
    log.info({ reason }, "hand.call_given_up");
    await this.done(errorMessage(call.id, { code: INTERNAL_ERROR, message: `The call was given up: ${reason}.` }) as Incoming);
  }

  #end(): void {
    clearInterval(this.#alive);
    clearTimeout(this.#abandoned);
    clearTimeout(this.#gathering);
    this.#off.abort();
    this.#parts.ended();
  }

  /** One after the other. A store that can't take it loses the call for its client, who is told by K2. */
  #append(entries: readonly Entry[], isDone: boolean): Promise<void> {
    this.#last = this.#last
      .then(() =>
        this.#off.signal.aborted
          ? undefined
          : this.#stored.append(
              entries.map((entry) => JSON.stringify(entry)),
              isDone,
            ),
      )
      .catch((error: unknown) => this.#parts.log.warn({ reason: reasonOf(error) }, "hand.call_not_stored"));
    return this.#last;
  }
}
