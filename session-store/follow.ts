// Following a log: what is there, then what comes, in order, each once.
//
//   O1  Catches up by position and then reads on whenever the bell rings; no gap, no double, whatever bells are lost.
//   O2  A missed bell is healed by polling every POLL_MS.
//   O3  Ends when `signal` aborts; a deleted session ends it with the refusal `session_not_found`.

import type { Stored } from "./entry.ts";
import type { Position, SessionId } from "./ids.ts";
import type { Bell, SessionStore } from "./store.ts";

const POLL_MS = 2_000;
const PAGE = 500;

export interface FollowOptions {
  /** Hears each bell as it rings, previews too. */
  readonly onBell?: (bell: Bell) => void;
  readonly pollMs?: number;
}

/** Entries after `after`, for ever. The bell is heard from before the first read on. O1–O3 */
export async function* follow(
  store: Pick<SessionStore, "listen" | "getEvents">,
  id: SessionId,
  after: Position,
  signal: AbortSignal,
  options: FollowOptions = {},
): AsyncGenerator<Stored> {
  let at = after;
  let isStale = true;
  let ring = () => {};
  const hush = await store.listen(id, (bell) => {
    options.onBell?.(bell);
    if (bell.type === "preview" || (bell.type === "head" && bell.head <= at)) return;
    isStale = true;
    ring();
  });
  try {
    while (!signal.aborted) {
      isStale = false;
      const page = await store.getEvents(id, { after: at, limit: PAGE });
      for (const stored of page) {
        if (signal.aborted) return;
        at = stored.position;
        yield stored;
      }
      if (page.length > 0 || isStale) continue;
      await rung((wake) => (ring = wake), options.pollMs ?? POLL_MS, signal);
    }
  } finally {
    hush();
  }
}

function rung(arm: (wake: () => void) => void, pollMs: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, pollMs);
    signal.addEventListener("abort", done, { once: true });
    arm(done);
  });
}
