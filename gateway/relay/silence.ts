// How long each hand that somebody waits for may be silent: one timer for all, because one for each call costs more than all the looking.
//
//   W1  Who was silent for too long hears of it once, and is not watched any more. A word in time is only written down; the timer finds it.

export interface Watched {
  /** By `performance.now()`; later and later, while it is not silent. */
  silentUntil: number;
  onSilence(): void;
}

export class Silence {
  readonly #watched = new Set<Watched>();
  #timer: NodeJS.Timeout | null = null;
  #at = Number.POSITIVE_INFINITY;

  watch(watched: Watched): void {
    this.#watched.add(watched);
    if (watched.silentUntil < this.#at) this.#lookAt(watched.silentUntil);
  }

  leave(watched: Watched): void {
    this.#watched.delete(watched);
  }

  #lookAt(at: number): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#at = at;
    this.#timer = setTimeout(() => this.#look(), Math.max(1, Math.ceil(at - performance.now()))).unref();
  }

  #look(): void {
    this.#timer = null;
    this.#at = Number.POSITIVE_INFINITY;
    const now = performance.now();
    let next = Number.POSITIVE_INFINITY;
    for (const watched of this.#watched) {
      if (watched.silentUntil > now) next = Math.min(next, watched.silentUntil);
      else {
        this.#watched.delete(watched);
        watched.onSilence();
      }
    }
    if (next < this.#at) this.#lookAt(next);
  }
}
