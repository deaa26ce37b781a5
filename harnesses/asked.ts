// What a log says of calls that came by the session's own door: which wait to be taken up, which were called off.

import type { Stored } from "../session-store/entry.ts";
import type { LogAsked } from "../session-store/events/log.ts";
import type { EventId, Position } from "../session-store/ids.ts";
import { position } from "../session-store/ids.ts";

export class Asked {
  readonly #waiting = new Map<EventId, LogAsked>();
  readonly #all = new Set<EventId>();
  readonly #calledOff = new Set<EventId>();
  #turnAt = position(0);

  take({ entry, position: at }: Stored): void {
    switch (entry.type) {
      case "log.asked":
        this.#waiting.set(entry.id, entry);
        this.#all.add(entry.id);
        break;
      case "log.taken":
        this.#waiting.delete(entry.id);
        break;
      case "log.called_off":
        this.#calledOff.add(entry.call);
        break;
      case "session.status_running":
        this.#turnAt = at;
        break;
      default:
        break;
    }
  }

  /** In arrival order. */
  get waiting(): readonly LogAsked[] {
    return [...this.#waiting.values()];
  }
  /** Where the session last began to run. */
  get turnAt(): Position {
    return this.#turnAt;
  }
  /** Did this call come by the door? */
  has(id: EventId): boolean {
    return this.#all.has(id);
  }
  isCalledOff(id: EventId): boolean {
    return this.#calledOff.has(id);
  }
}
