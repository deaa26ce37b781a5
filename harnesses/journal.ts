// The log of one leased session: read to its head, kept up to date by bells, renewals and our own appends, and written by the one writer.
//
//   J1  The view has every entry up to its head; an append of ours that skips entries of others is followed by a read of the gap.
//   J2  News (what others wrote) is told after it is in the view. A lost bell is healed by the next renewal.
//   J3  A view that was kept from an earlier lease is proved before it is used: the log still has its last entry, the same to the letter, in its
//       place. Entries are immutable and only a log's end can be lost (S1, S5), so all before it is the same too; if not, the log is read anew.
//   J4  Once closed the view is left alone, whatever is still on its way.

import type { Lease } from "../session-store/due.ts";
import type { BrainEntry, Stored } from "../session-store/entry.ts";
import type { Position } from "../session-store/ids.ts";
import { position } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { Bell, SessionStore } from "../session-store/store.ts";
import { pause } from "./stop.ts";
import { LogView } from "./view.ts";
import type { Tenure } from "./writer.ts";
import { Writer } from "./writer.ts";

const PAGE = 500;
const READ_RETRY_MS = 100;

export class Journal {
  readonly writer: Writer;
  readonly #store: SessionStore;
  readonly #lease: Lease;
  readonly #tenure: Tenure;
  readonly #onNews: () => void;
  #view: LogView;
  /** The last entry of a kept view, as long as it is not proved. J3 */
  #unproved: Stored | null;
  #reading: Promise<void> | null = null;
  #isStale = false;
  #rung = 0;
  #waiters = new Set<() => void>();
  #hush = () => {};
  #isClosed = false;

  /** `kept`: a view of this session from an earlier lease, which nobody else uses. */
  constructor(store: SessionStore, lease: Lease, tenure: Tenure, { onNews, kept }: { onNews: () => void; kept?: LogView | null }) {
    this.#store = store;
    this.#view = kept ?? new LogView();
    this.#unproved = kept?.entries.at(-1) ?? null;
    this.#lease = lease;
    this.#tenure = tenure;
    this.#onNews = onNews;
    this.writer = new Writer(store, lease, tenure, (stored) => this.#absorb(stored));
  }

  get view(): LogView {
    return this.#view;
  }

  /** Listens, then reads to the head. */
  async open(): Promise<void> {
    const listening = this.#store
      .listen(this.#lease.id, (bell) => this.#hear(bell))
      .then((hush) => {
        // A lease that was lost meanwhile listens to nothing.
        if (this.#isClosed) hush();
        else this.#hush = hush;
      });
    await Promise.all([listening, this.read()]);
  }

  close(): void {
    this.#isClosed = true;
    this.writer.close();
    this.#hush();
  }

  append(entries: readonly BrainEntry[], options?: { readonly isRecovery?: boolean }): Promise<readonly Stored[]> {
    return this.writer.append(entries, options);
  }

  /** The log's head as someone told it: reads on if it is news. */
  noteHead(head: Position): void {
    this.#rung = Math.max(this.#rung, head);
    this.#readIfRung();
  }

  /** Reads everything that is there by now. */
  async read(): Promise<void> {
    this.#isStale = true;
    this.#reading ??= this.#readOn().finally(() => {
      this.#reading = null;
    });
    await this.#reading;
  }

  /** Resolves at the next entry that someone else wrote. */
  news(): { readonly promise: Promise<void>; readonly off: () => void } {
    let waiter = () => {};
    const promise = new Promise<void>((resolve) => {
      waiter = () => resolve();
      this.#waiters.add(waiter);
    });
    return { promise, off: () => this.#waiters.delete(waiter) };
  }

  get #wanted(): number {
    return Math.max(this.#rung, this.#lease.head);
  }

  #hear(bell: Bell): void {
    if (bell.type === "head") this.noteHead(bell.head);
    else if (bell.type === "look") this.#look();
  }

  // While an append of ours is on its way the bell is most likely its own: the append's answer settles it.
  #readIfRung(): void {
    if (this.#rung > this.view.head && !this.writer.isBusy && this.#reading === null) this.#look();
  }

  #look(): void {
    this.read().catch((cause: unknown) => this.#tenure.lose(cause));
  }

  async #absorb(stored: readonly Stored[]): Promise<void> {
    if (this.#reading) await this.#reading;
    if (this.#isClosed) return;
    const last = stored.at(-1)?.position ?? 0;
    this.#rung = Math.max(this.#rung, last);
    if (!this.view.fold(stored)) await this.read();
    if (this.view.head < last) throw new Error("The store does not show what it said it stored.");
    if (this.#rung > this.view.head) this.#look();
  }

  async #readOn(): Promise<void> {
    while (this.#isStale) {
      this.#isStale = false;
      const { page, count } = await this.#readNext();
      if (this.#isClosed) return;
      this.view.fold(page);
      // The last page needs no second look: what came after it rings.
      if (count === PAGE || (count > 0 && this.view.head < this.#wanted)) this.#isStale = true;
      if (page.some((one) => one.fence !== this.#lease.fence)) this.#tell();
    }
  }

  /** What follows the view, a page of it, and how many entries were read for it. J3 */
  async #readNext(): Promise<{ readonly page: readonly Stored[]; readonly count: number }> {
    const last = this.#unproved;
    if (last) {
      const read = await this.#readPage(position(last.position - 1));
      const [first, ...page] = read;
      this.#unproved = null;
      if (first && isSame(first, last)) return { page, count: read.length };
      if (!this.#isClosed) this.#view = new LogView();
    }
    const page = await this.#readPage(this.#view.head);
    return { page, count: page.length };
  }

  async #readPage(after: Position): Promise<readonly Stored[]> {
    for (;;) {
      try {
        return await this.#store.getEvents(this.#lease.id, { after, limit: PAGE });
      } catch (error) {
        const isPassing = error instanceof Refusal && (error.code === "store_busy" || error.code === "store_in_doubt");
        if (!isPassing || !this.#tenure.isAlive()) throw error;
      }
      await pause(READ_RETRY_MS, this.#tenure.signal);
    }
  }

  #tell(): void {
    this.#onNews();
    for (const waiter of this.#waiters) waiter();
    this.#waiters.clear();
  }
}

function isSame(one: Stored, other: Stored): boolean {
  return (
    one.position === other.position && one.at === other.at && one.fence === other.fence && JSON.stringify(one.entry) === JSON.stringify(other.entry)
  );
}
