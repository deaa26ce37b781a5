// Which previews one connection may see (contract §7.3).
//
//   Q1  Only those of the model request that is open in what this connection has already sent, of the fence that opened it: what a stale
//       brain still says never shows.
//   Q2  Only a contiguous run 0, 1, 2 …: after a gap nothing more of that request, so that what was shown is a prefix of the text.
//   Q3  Previews overtake the log by a little: those of a request whose start has not been sent yet are held, up to a bound.
//   Q4  Nothing for an event that was sent, and nothing after the request's end.

import type { Preview } from "../session-store/store.ts";

const HELD_MAX = 512;

export type PreviewType = Preview["event"]["type"];

/** What is sent for a preview: never in the log, without an id of its own. */
export type PreviewEvent =
  | { readonly type: "event_start"; readonly event: { readonly type: PreviewType; readonly id: string } }
  | {
      readonly type: "event_delta";
      readonly event_id: string;
      readonly delta: { readonly type: "content_delta"; readonly index: number; readonly content: { readonly type: "text"; readonly text: string } };
    };

interface OpenSpan {
  readonly span: string;
  readonly fence: number;
  /** The number that must come next; -1 after a gap. */
  next: number;
  readonly started: Set<string>;
  readonly finished: Set<string>;
}

export class PreviewGate {
  readonly #wanted: ReadonlySet<PreviewType>;
  #open: OpenSpan | null = null;
  #held: { readonly span: string; readonly fence: number; readonly previews: Preview[] } | null = null;
  #newestFence = 0;

  constructor(wanted: ReadonlySet<PreviewType>) {
    this.#wanted = wanted;
  }

  /** A preview came by the bell; gives what is to be sent now. */
  hear(preview: Preview): PreviewEvent[] {
    if (this.#wanted.size === 0 || preview.fence < this.#newestFence) return [];
    if (this.#open?.span === preview.span) return this.#pass(this.#open, preview);
    this.#hold(preview);
    return [];
  }

  /** A model request's start was sent; gives the previews that waited for it. Q3 */
  opened(span: string, fence: number): PreviewEvent[] {
    this.#newestFence = Math.max(this.#newestFence, fence);
    const open: OpenSpan = { span, fence, next: 0, started: new Set(), finished: new Set() };
    this.#open = open;
    const held = this.#held;
    this.#held = null;
    return held?.span === span ? held.previews.flatMap((preview) => this.#pass(open, preview)) : [];
  }

  /** The event of this id was sent. Q4 */
  finished(id: string): void {
    this.#open?.finished.add(id);
  }

  /** A model request's end was sent, or the turn ended. Q4 */
  closed(): void {
    this.#open = null;
  }

  #pass(open: OpenSpan, preview: Preview): PreviewEvent[] {
    if (preview.fence !== open.fence || open.next < 0 || preview.n < open.next) return [];
    if (preview.n > open.next) {
      open.next = -1;
      return [];
    }
    open.next += 1;
    const { event, delta } = preview;
    if (!this.#wanted.has(event.type) || open.finished.has(event.id)) return [];
    if (!delta) {
      if (open.started.has(event.id)) return [];
      open.started.add(event.id);
      return [{ type: "event_start", event: { type: event.type, id: event.id } }];
    }
    if (!open.started.has(event.id) || event.type !== "agent.message") return [];
    const content = { type: "text" as const, text: delta.text };
    return [{ type: "event_delta", event_id: event.id, delta: { type: "content_delta", index: delta.index, content } }];
  }

  #hold(preview: Preview): void {
    if (this.#held?.span !== preview.span) {
      // Only a run from its beginning is of use, and a newer request makes an older one's previews useless.
      if (preview.n !== 0 || (this.#held && preview.fence < this.#held.fence)) return;
      this.#held = { span: preview.span, fence: preview.fence, previews: [] };
    }
    if (this.#held.previews.length < HELD_MAX) this.#held.previews.push(preview);
  }
}
