// Views of sessions that this worker drove a while ago, so that the next take reads only what came since. A cache, never a state.
//
//   K1  A view has one user: taking it takes it out; it is kept again when its lease was given back, and not when that was lost or failed.
//   K2  What is kept is believed only as far as the log confirms it: whoever takes it up proves it first (J3).
//   K3  Bounded in bytes and in age: the one that was used the longest ago goes first; a view above its own bound is not kept at all.

import type { SessionId } from "../session-store/ids.ts";
import type { LogView } from "./view.ts";

/** Of all views that a worker keeps. */
const BYTES_MAX = 64 * 1024 * 1024;
/** Of one: a session above it is read anew at each take. */
const VIEW_BYTES_MAX = 32 * 1024 * 1024;
/** How long a view is kept that nobody asks for: what was deleted meanwhile is out of memory by then, too. */
const AGE_MAX_MS = 300_000;

interface WarmBounds {
  readonly bytesMax: number;
  readonly viewBytesMax: number;
  readonly ageMaxMs: number;
}

interface Kept {
  readonly view: LogView;
  readonly until: number;
}

export class WarmViews {
  readonly #bounds: WarmBounds;
  readonly #now: () => number;
  /** The one that was kept the longest ago comes first. */
  readonly #kept = new Map<SessionId, Kept>();
  #bytes = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(bounds: Partial<WarmBounds> = {}, now: () => number = () => performance.now()) {
    this.#bounds = { bytesMax: BYTES_MAX, viewBytesMax: VIEW_BYTES_MAX, ageMaxMs: AGE_MAX_MS, ...bounds };
    this.#now = now;
  }

  /** Bytes of all that is kept. */
  get bytes(): number {
    return this.#bytes;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** The view of a session, if there is one; it is the caller's from now on. K1 */
  take(id: SessionId): LogView | null {
    this.#expire();
    const kept = this.#kept.get(id);
    this.#drop(id);
    return kept?.view ?? null;
  }

  /** Keeps a view that nobody else uses any more. K3 */
  keep(id: SessionId, view: LogView): void {
    this.#drop(id);
    const { bytesMax, viewBytesMax, ageMaxMs } = this.#bounds;
    if (view.bytes > Math.min(viewBytesMax, bytesMax)) return;
    this.#kept.set(id, { view, until: this.#now() + ageMaxMs });
    this.#bytes += view.bytes;
    for (const oldest of this.#kept.keys()) {
      if (this.#bytes <= bytesMax) break;
      this.#drop(oldest);
    }
    this.#schedule();
  }

  clear(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#kept.clear();
    this.#bytes = 0;
  }

  #drop(id: SessionId): void {
    const kept = this.#kept.get(id);
    if (!kept) return;
    this.#kept.delete(id);
    this.#bytes -= kept.view.bytes;
  }

  #expire(): void {
    const now = this.#now();
    for (const [id, { until }] of this.#kept) {
      if (until > now) break;
      this.#drop(id);
    }
  }

  // One timer for all, while there is anything: it keeps no process alive.
  #schedule(): void {
    if (this.#timer || this.#kept.size === 0) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#expire();
      this.#schedule();
    }, this.#bounds.ageMaxMs).unref();
  }
}
