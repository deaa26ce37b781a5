// The answer to one request of the handshake era, as a stream: messages with places, and resumption from any of them.
//
//   R1  A stream that lived for STORE_AFTER_MS, lost its client or grew over KEPT_BYTES_MAX is stored; from then on each message is stored before
//       it is sent. A shorter one costs the store nothing, and is kept in this process for LINGER_MS after its end.
//   R2  A client that comes back with `Last-Event-ID`, at any node, gets every later message once, in order, and then goes on with the stream.
//   R3  A client that goes away calls nothing off: the call runs to its end, and its answer waits.
//   R4  A stream is resumed by its own session only; to another it is unknown.
//   R5  What could not be stored is kept in this process, up to KEPT_BYTES_MAX, and resumed from there; a stream that lacks what a client did not get is
//       not resumed at all.

import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { mint } from "../../../session-store/ids.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import type { RpcId } from "../rpc.ts";
import { errorMessage, INTERNAL_ERROR, RpcError } from "../rpc.ts";
import { SseResponse } from "../sse.ts";
import { LIFE_MS, readMessageText, readStream, StreamLog, streamBell } from "./stream-log.ts";

const STORE_AFTER_MS = 1_000;
const KEPT_BYTES_MAX = 1024 * 1024;
const LINGER_MS = 30_000;
const LINGERING_MAX = 2_000;
const POLL_MS = 1_000;
/** For the node that runs the call to notice that its client is gone. */
const APPEAR_MS = 3_000;
const UNDER_WAY_MAX = 256;
const PLACE = /^(mcpr_[0-9A-Za-z]{24})\.(\d{1,9})$/;

interface StreamsOptions {
  readonly store: SessionStore;
  readonly log: Logger;
  readonly keepAliveMs: number;
}

export class ReplyStream {
  readonly id = mint("mcpr");
  readonly session: string;
  readonly #options: StreamsOptions;
  readonly #log: StreamLog;
  #timer: NodeJS.Timeout;
  /** The newest messages; the number of the first of them. Those up to `#stored` are in the store. */
  readonly #kept: string[] = [];
  #keptBytes = 0;
  #keptFrom = 1;
  #stored = 0;
  #count = 0;
  #isStored = false;
  #isOver = false;
  /** It could not be stored, and is not stored any further. R5 */
  #isBroken = false;
  #out: SseResponse | null = null;
  #underWay = 0;
  #last: Promise<void> = Promise.resolve();

  constructor(options: StreamsOptions, session: string, request: RpcId) {
    this.#options = options;
    this.session = session;
    this.#log = new StreamLog(options.store, this.id, { session, request });
    this.#timer = setTimeout(() => this.#alive(), STORE_AFTER_MS).unref();
  }

  /** Goes on with this connection, after the message `after`; a connection before it ends. R2 */
  attach(response: ServerResponse, after: number, isPrimed: boolean): Promise<void> {
    const out = new SseResponse(response, this.#options.keepAliveMs);
    return this.#inTurn(async () => {
      this.#out?.end();
      this.#out = null;
      if (isPrimed) out.prime(`${this.id}.${after}`);
      try {
        for (let n = after + 1; n <= this.#count; n += 1) await out.message(await this.#message(n), `${this.id}.${n}`);
      } catch (error) {
        // No hole: the client comes back for the rest.
        out.end();
        throw error;
      }
      this.#out = out;
      if (this.#isOver) out.end();
      else out.onClose(() => void this.#inTurn(() => this.#storeOnce()));
    });
  }

  /** Is everything there that came after a message? R5 */
  holds(after: number): boolean {
    return this.#stored >= this.#keptFrom - 1 || after >= this.#keptFrom - 1;
  }

  /** Is there room for a message that nobody would miss? */
  get isBusy(): boolean {
    return this.#underWay >= UNDER_WAY_MAX;
  }

  send(message: object): Promise<void> {
    return this.#inTurn(() => this.#put(JSON.stringify(message), false));
  }

  /** The last message. */
  end(message: object): Promise<void> {
    return this.#inTurn(async () => {
      clearTimeout(this.#timer);
      await this.#put(JSON.stringify(message), true);
      this.#isOver = true;
      this.#out?.end();
    });
  }

  /** Called off: there is no answer, and nothing to resume for. */
  drop(): Promise<void> {
    return this.#inTurn(async () => {
      clearTimeout(this.#timer);
      this.#isOver = true;
      if (this.#isStored) await this.#store(true);
      this.#out?.end();
    });
  }

  /** Ends the connection, not the stream. R3 */
  hangUp(): void {
    this.#inTurn(async () => this.#out?.end());
  }

  async #put(text: string, isLast: boolean): Promise<void> {
    this.#count += 1;
    this.#kept.push(text);
    this.#keptBytes += text.length;
    if (this.#isStored || this.#keptBytes > KEPT_BYTES_MAX || !this.#out?.isOpen) await this.#store(isLast);
    await this.#out?.message(text, `${this.id}.${this.#count}`);
  }

  /** R1 R5 */
  async #store(isLast = this.#isOver): Promise<void> {
    if (!this.#isBroken) {
      try {
        await this.#log.append(this.#kept, isLast);
        this.#isStored = true;
        this.#stored = this.#count;
        this.#forget(this.#kept.length);
      } catch (error) {
        // Not tried again: what of it is in the store by now is not known.
        this.#isBroken = true;
        this.#options.log.warn({ reason: reasonOf(error) }, "mcp.stream_not_stored");
      }
    }
    while (this.#keptBytes > KEPT_BYTES_MAX && this.#kept.length > 1) this.#forget(1);
  }

  /** A stream that is stored already is as its messages left it. */
  async #storeOnce(): Promise<void> {
    if (!this.#isStored) await this.#store();
  }

  #forget(count: number): void {
    for (const text of this.#kept.splice(0, count)) this.#keptBytes -= text.length;
    this.#keptFrom += count;
  }

  async #message(n: number): Promise<string> {
    const kept = this.#kept[n - this.#keptFrom];
    return kept ?? readMessageText(this.#options.store, this.id, n);
  }

  /** Stores what is young, and says of what is stored that its node lives. */
  #alive(): void {
    void this.#inTurn(async () => {
      if (this.#isOver) return;
      await this.#store();
      this.#timer = setTimeout(() => this.#alive(), LIFE_MS / 3).unref();
    });
  }

  /** One after the other. */
  #inTurn(work: () => Promise<unknown>): Promise<void> {
    this.#underWay += 1;
    const done = () => {
      this.#underWay -= 1;
    };
    this.#last = this.#last.then(work).then(done, (error: unknown) => {
      done();
      this.#options.log.warn({ reason: reasonOf(error) }, "mcp.stream_not_stored");
    });
    return this.#last;
  }
}

const reasonOf = (error: unknown): string => (error instanceof Error ? error.message.slice(0, 200) : "unknown");

const noStream = () => new RpcError(-32_001, "There is no such stream to resume.", { status: 404 });

/** The streams of this process, and those of others by the store. */
export class ReplyStreams {
  readonly #options: StreamsOptions;
  readonly #here = new Map<string, ReplyStream>();
  readonly #lingering: string[] = [];

  constructor(options: StreamsOptions) {
    this.#options = options;
  }

  open(session: string, request: RpcId): ReplyStream {
    const stream = new ReplyStream(this.#options, session, request);
    this.#here.set(stream.id, stream);
    return stream;
  }

  /** The stream had its last message. R1 */
  done({ id }: ReplyStream): void {
    this.#lingering.push(id);
    setTimeout(() => this.#here.delete(id), LINGER_MS).unref();
    if (this.#lingering.length > LINGERING_MAX) this.#here.delete(this.#lingering.shift() ?? "");
  }

  static isPlace(text: string): boolean {
    return PLACE.test(text);
  }

  /** R2 R4 */
  async resume(session: string, place: string, response: ServerResponse): Promise<void> {
    const [, id = "", digits = ""] = PLACE.exec(place) ?? [];
    const here = this.#here.get(id);
    if (here?.session === session) {
      if (!here.holds(Number(digits))) throw noStream();
      return here.attach(response, Number(digits), false);
    }
    const stored = await this.#appears(id);
    if (stored?.session !== session) throw noStream();
    await this.#follow(id, Number(digits), new SseResponse(response, this.#options.keepAliveMs));
  }

  async #appears(id: string) {
    const deadline = performance.now() + APPEAR_MS;
    for (;;) {
      const stored = await readStream(this.#options.store, id);
      if (stored || performance.now() > deadline) return stored;
      await sleep(POLL_MS / 4);
    }
  }

  async #follow(id: string, after: number, out: SseResponse): Promise<void> {
    const { store } = this.#options;
    const gone = new AbortController();
    out.onClose(() => gone.abort());
    let ring = () => {};
    const hush = await store.listen(streamBell(id), () => ring());
    let at = after;
    try {
      while (out.isOpen) {
        const rung = new AbortController();
        ring = () => rung.abort();
        const stored = await readStream(store, id);
        if (!stored) return;
        for (; at < stored.count && out.isOpen; at += 1) await out.message(await readMessageText(store, id, at + 1), `${id}.${at + 1}`);
        if (stored.isDone) return;
        if (stored.until < Date.now()) {
          const lost = { code: INTERNAL_ERROR, message: "The node that ran this request is gone; the request may have had its effect." };
          return await out.message(JSON.stringify(errorMessage(stored.request, lost)), null);
        }
        await sleep(POLL_MS, undefined, { signal: AbortSignal.any([gone.signal, rung.signal]) }).catch(() => {});
      }
    } finally {
      hush();
      out.end();
    }
  }
}
