// The previews of one span: pieces of a reply as it comes, coalesced, numbered 0, 1, 2 … Best effort; never in the log.
//
//   Q1  An event's start comes before its pieces; all pieces of one (event, index) are a prefix of the final text.
//   Q2  The first piece goes out at once, later ones at most every FLUSH_MS; the last with the end of the reply.
//   Q3  Nothing goes out before `open`, when the span's start is in the log: readers drop previews of a span that they have not seen.

import type { EventId } from "../session-store/ids.ts";
import { mintEvent } from "../session-store/ids.ts";
import type { Preview } from "../session-store/store.ts";
import type { PreviewPiece } from "./harness.ts";

const FLUSH_MS = 30;
const FLUSH_CHARS = 4_096;
/** Pieces held before the span's start is stored; more are dropped, and with them the rest of the run. */
const HELD_MAX = 1_000;

export class Previews {
  readonly #messageId: EventId;
  readonly #send: (preview: Omit<Preview, "fence" | "span">) => void;
  readonly #thinking = new Map<number, EventId>();
  /** Content block index → its place among the texts of the message: empty blocks have none. */
  readonly #places = new Map<number, number>();
  readonly #held: Omit<Preview, "fence" | "span">[] = [];
  #n = 0;
  #hasStarted = false;
  #isOpen = false;
  #buffer: { readonly place: number; text: string } | null = null;
  #timer: NodeJS.Timeout | null = null;
  #isOver = false;

  constructor(messageId: EventId, send: (preview: Omit<Preview, "fence" | "span">) => void) {
    this.#messageId = messageId;
    this.#send = send;
  }

  /** The span's start is in the log. Q3 */
  open(): void {
    this.#isOpen = true;
    for (const preview of this.#held.splice(0)) this.#send(preview);
  }

  add(piece: PreviewPiece): void {
    if (this.#isOver) return;
    if (piece.type === "thinking") {
      if (this.#thinking.has(piece.index)) return;
      this.#flush();
      this.#emit({ event: { type: "agent.thinking", id: this.thinkingId(piece.index) } });
      return;
    }
    if (piece.text === "") return;
    const place = this.#placeOf(piece.index);
    if (this.#buffer && this.#buffer.place !== place) this.#flush();
    this.#buffer ??= { place, text: "" };
    this.#buffer.text += piece.text;
    if (this.#timer === null || this.#buffer.text.length > FLUSH_CHARS) {
      this.#flush();
      this.#timer ??= setTimeout(() => this.#tick(), FLUSH_MS);
    }
  }

  /** The event id of a thinking block, minted when first asked for. */
  thinkingId(index: number): EventId {
    const id = this.#thinking.get(index) ?? mintEvent();
    this.#thinking.set(index, id);
    return id;
  }

  /** The reply is complete, or will never be: what is left is sent, and nothing more. */
  end(): void {
    if (this.#isOpen) this.#flush();
    this.#isOver = true;
    this.#held.length = 0;
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #placeOf(index: number): number {
    const place = this.#places.get(index) ?? this.#places.size;
    this.#places.set(index, place);
    return place;
  }

  #tick(): void {
    this.#timer = null;
    if (!this.#buffer) return;
    this.#flush();
    this.#timer = setTimeout(() => this.#tick(), FLUSH_MS);
  }

  #flush(): void {
    const buffer = this.#buffer;
    if (!buffer) return;
    // A pair that is cut between two pieces waits for its second half.
    const isCut = /[\uD800-\uDBFF]$/.test(buffer.text);
    const text = isCut ? buffer.text.slice(0, -1) : buffer.text;
    this.#buffer = isCut ? { place: buffer.place, text: buffer.text.slice(-1) } : null;
    if (text === "") return;
    const event = { type: "agent.message", id: this.#messageId } as const;
    if (!this.#hasStarted) this.#emit({ event });
    this.#hasStarted = true;
    this.#emit({ event, delta: { index: buffer.place, text: text.toWellFormed() } });
  }

  #emit(preview: Omit<Preview, "fence" | "span" | "n">): void {
    const numbered = { ...preview, n: this.#n };
    this.#n += 1;
    if (this.#isOpen) this.#send(numbered);
    else if (this.#held.length < HELD_MAX) this.#held.push(numbered);
  }
}
