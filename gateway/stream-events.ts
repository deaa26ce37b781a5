// What a stream shows for each entry that it passes, in order (contract §7.2).

import type { Stored } from "../session-store/entry.ts";
import type { SessionId } from "../session-store/ids.ts";
import type { SessionStore } from "../session-store/store.ts";
import type { Received, WireEvent } from "./http/wire.ts";
import { isWireEntry, readReceived, receivedOf, wireOfClient, wireOfEntry } from "./http/wire.ts";

/** Received events that are kept until they are applied; others are read again. */
const KEPT_MAX = 64;

export class StreamEvents {
  readonly #store: SessionStore;
  readonly #id: SessionId;
  readonly #kept = new Map<number, Received>();
  #isBusy: boolean;
  /** The last received entry, and whether it came upon a busy session: entries of one request are judged alike. */
  #last: { readonly position: number; readonly at: number; readonly wasBusy: boolean } | null = null;

  constructor(store: SessionStore, id: SessionId, isBusy: boolean) {
    this.#store = store;
    this.#id = id;
    this.#isBusy = isBusy;
  }

  async of(stored: Stored): Promise<WireEvent[]> {
    const { entry, at } = stored;
    if (isWireEntry(entry)) {
      if (entry.type === "session.status_running") this.#isBusy = true;
      if (entry.type === "session.status_idle" || entry.type === "session.status_terminated") this.#isBusy = false;
      return [wireOfEntry(entry, at)];
    }
    const received = receivedOf(stored);
    if (received) return this.#received(received);
    if (entry.type !== "log.applied") return [];
    const source = this.#kept.get(entry.ref) ?? (await readReceived(this.#store, this.#id, [entry.ref])).get(entry.ref);
    this.#kept.delete(entry.ref);
    return source ? [wireOfClient(source.event, at)] : [];
  }

  #received(received: Received): WireEvent[] {
    const processed = received.waits ? [] : [wireOfClient(received.event, received.at)];
    const isWork = received.waits || received.event.type === "user.define_outcome";
    if (!isWork) return processed;
    const last = this.#last;
    const isSameRequest = last !== null && last.position + 1 === received.position && last.at === received.at;
    const wasBusy = isSameRequest ? last.wasBusy : this.#isBusy;
    this.#last = { position: received.position, at: received.at, wasBusy };
    this.#isBusy = true;
    if (!received.waits) return processed;
    if (this.#kept.size < KEPT_MAX) this.#kept.set(received.position, received);
    return wasBusy ? [wireOfClient(received.event, null)] : [];
  }
}
