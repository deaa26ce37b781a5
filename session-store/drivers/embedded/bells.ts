// Bells within one process: who listens to which session, and who listens for due ones.

import type { SessionId, Topic } from "../../ids.ts";
import type { Bell } from "../../store.ts";

export class Bells {
  readonly #listeners = new Map<string, Set<{ hear: (bell: Bell) => void }>>();
  readonly #due = new Set<{ hear: () => void }>();

  listen(id: SessionId | Topic, hear: (bell: Bell) => void): () => void {
    // Each listener is an object of its own: the same function may listen twice.
    const listener = { hear };
    const listeners = this.#listeners.get(id) ?? new Set();
    this.#listeners.set(id, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(id) === listeners) this.#listeners.delete(id);
    };
  }

  ring(id: string, bell: Bell): void {
    for (const { hear } of [...(this.#listeners.get(id) ?? [])]) hear(bell);
  }

  onDue(hear: () => void): () => void {
    const listener = { hear };
    this.#due.add(listener);
    return () => void this.#due.delete(listener);
  }

  ringDue(): void {
    for (const { hear } of [...this.#due]) hear();
  }
}
