// Event streams: one follower each; what is there, then what comes, as server-sent events (contract §7).
//
//   B1  The place to follow from is read before the headers leave: nothing that comes after them is missed.
//   B2  Frames carry `id: <session>.<position>`, by which `Last-Event-ID` resumes without a hole; a preview has none.
//   B3  A slow reader is waited for only at its own place in the log. When its buffer stays over BUFFER_BYTES_MAX for `slowMs` it is cut off, so
//       that it reconnects; nobody else notices.
//   B4  A client's event shows when it is processed; its queued form, too, but only if it waits behind other work.
//   B5  A store that can't be read for a while is waited for up to STORE_LOST_MS; the stream then goes on where it was.

import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import type { Stored } from "../session-store/entry.ts";
import { follow } from "../session-store/follow.ts";
import type { Position, SessionId } from "../session-store/ids.ts";
import { mintEvent } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { SessionRecord } from "../session-store/session.ts";
import { statusOf } from "../session-store/session.ts";
import type { Bell, SessionStore } from "../session-store/store.ts";
import { answerOf } from "./answer.ts";
import type { WireEvent } from "./http/wire.ts";
import { rfc3339 } from "./http/wire.ts";
import { STREAM_HEADERS } from "./mcp/sse.ts";
import type { PreviewEvent, PreviewType } from "./preview-gate.ts";
import { PreviewGate } from "./preview-gate.ts";
import { StreamEvents } from "./stream-events.ts";

const BUFFER_BYTES_MAX = 4 * 1024 * 1024;
const STORE_LOST_MS = 60_000;
const STORE_RETRY_MS = 500;
const STREAMS_MAX = 10_000;

export interface StreamOptions {
  readonly record: SessionRecord;
  /** Resume after this place; null: only what comes from now on. */
  readonly resumeAt: Position | null;
  readonly previews: ReadonlySet<PreviewType>;
  readonly requestId: string;
}

export const placeOf = (id: SessionId, position: number): string => `${id.slice("sesn_".length)}.${position}`;

/** Reads a place back; null when it is none of this session. B2 */
export function readPlace(id: SessionId, text: string): number | null {
  const [suffix, digits, ...rest] = text.split(".");
  if (rest.length > 0 || suffix !== id.slice("sesn_".length) || !digits || !/^\d{1,15}$/.test(digits)) return null;
  return Number(digits);
}

export interface StreamTiming {
  /** A comment goes out so often on a silent stream. */
  readonly keepAliveMs: number;
  /** How long a reader's buffer may stay over its bound. B3 */
  readonly slowMs: number;
}

/** All open streams of this process. */
export class Streams {
  readonly #store: SessionStore;
  readonly #log: Logger;
  readonly #timing: StreamTiming;
  readonly #open = new Set<AbortController>();
  #isClosing = false;

  constructor(store: SessionStore, log: Logger, timing: StreamTiming) {
    this.#store = store;
    this.#log = log;
    this.#timing = timing;
  }

  /** Streams until the session ends, the client leaves, or this process stops. */
  async run(response: ServerResponse, options: StreamOptions): Promise<void> {
    if (this.#isClosing) throw new Refusal("shutting_down");
    if (this.#open.size >= STREAMS_MAX) throw new Refusal("store_busy", "This node has no more room for streams.");
    const controller = new AbortController();
    this.#open.add(controller);
    const onClose = () => controller.abort();
    response.once("close", onClose);
    const cutOff = () => {
      this.#log.warn({ sessionId: options.record.id, requestId: options.requestId }, "stream.cut");
      controller.abort();
      response.destroy();
    };
    const out = new Frames(response, this.#timing.slowMs, cutOff);
    const keepAlive = setInterval(() => out.comment("ping"), this.#timing.keepAliveMs);
    try {
      response.writeHead(200, STREAM_HEADERS);
      out.comment("open");
      await this.#follow(out, options, controller.signal);
    } catch (error) {
      if (!(error instanceof Refusal)) this.#log.error({ err: error, sessionId: options.record.id, requestId: options.requestId }, "stream.broke");
      out.error(error, options.requestId);
    } finally {
      clearInterval(keepAlive);
      this.#open.delete(controller);
      response.off("close", onClose);
      response.end();
    }
  }

  /** Ends every stream; none opens afterwards. */
  close(): void {
    this.#isClosing = true;
    for (const controller of this.#open) controller.abort();
  }

  async #follow(out: Frames, { record, resumeAt, previews }: StreamOptions, signal: AbortSignal): Promise<void> {
    const { id } = record;
    let at = resumeAt ?? record.head;
    if (statusOf(record) === "terminated" && at >= record.head) return;
    const gate = new PreviewGate(previews);
    // On a resumed stream nobody knows what went on before its place: there the queued form is always shown. B4
    const events = new StreamEvents(this.#store, id, resumeAt !== null || statusOf(record) !== "idle");
    const show = (pieces: readonly PreviewEvent[]) => {
      for (const piece of pieces) if (!out.preview(piece)) return gate.closed();
    };
    const onBell = (bell: Bell) => {
      if (bell.type === "preview") show(gate.hear(bell.preview));
    };
    let lostAt: number | null = null;
    while (!signal.aborted) {
      try {
        for await (const stored of follow(this.#store, id, at, signal, { onBell })) {
          lostAt = null;
          const shown = await events.of(stored);
          narrow(gate, stored);
          for (const event of shown) await out.event(event, placeOf(id, stored.position), signal);
          at = stored.position;
          if (stored.entry.type === "span.model_request_start") show(gate.opened(stored.entry.id, stored.fence));
          if (stored.entry.type === "session.status_terminated") return;
        }
        return;
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        if (error.code === "session_not_found") {
          await out.event({ id: mintEvent(), type: "session.deleted", processed_at: rfc3339(Date.now()) }, null, signal);
          return;
        }
        if (error.code !== "store_busy" && error.code !== "store_in_doubt") throw error;
        lostAt ??= Date.now();
        if (Date.now() - lostAt > STORE_LOST_MS) throw error;
        gate.closed();
        // Called off while it waits: the loop ends by its own condition.
        await sleep(STORE_RETRY_MS, undefined, { signal }).catch(() => {});
      }
    }
  }
}

/** What an entry that is about to be sent ends for previews; what it opens comes after it. */
function narrow(gate: PreviewGate, { entry }: Stored): void {
  if (entry.type === "agent.message" || entry.type === "agent.thinking") gate.finished(entry.id);
  else if (entry.type === "span.model_request_end" || entry.type === "session.status_idle") gate.closed();
}

/** Frames on one response, and the bound of what may wait there. B3 */
class Frames {
  readonly #response: ServerResponse;
  readonly #slowMs: number;
  readonly #cutOff: () => void;

  constructor(response: ServerResponse, slowMs: number, cutOff: () => void) {
    this.#response = response;
    this.#slowMs = slowMs;
    this.#cutOff = cutOff;
  }

  comment(text: string): void {
    this.#tryWrite(`: ${text}\n\n`);
  }

  /** False when there is no room: the run is broken, and the reader has the whole event soon. */
  preview(event: PreviewEvent): boolean {
    return this.#tryWrite(frame(event.type, JSON.stringify(event), null));
  }

  error(error: unknown, requestId: string): void {
    this.#tryWrite(frame("error", JSON.stringify(answerOf(error, requestId).body), null));
  }

  async event(event: WireEvent, place: string | null, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    this.#response.write(frame(event.type, JSON.stringify(event), place));
    if (this.#response.writableLength > BUFFER_BYTES_MAX) await this.#drained();
  }

  #tryWrite(text: string): boolean {
    const response = this.#response;
    if (!response.writable || response.destroyed || response.writableLength > BUFFER_BYTES_MAX) return false;
    response.write(text);
    return true;
  }

  #drained(): Promise<void> {
    const response = this.#response;
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        response.off("drain", done).off("close", done);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#cutOff();
        done();
      }, this.#slowMs);
      response.once("drain", done).once("close", done);
    });
  }
}

function frame(type: string, data: string, place: string | null): string {
  return `${place === null ? "" : `id: ${place}\n`}event: ${type}\ndata: ${data}\n\n`;
}
