// Sessions that nobody used for long go away, here and at their hands.
//
//   V1  Each round takes at most PAGE sessions, oldest first; the next one goes on. Two nodes that sweep at once do no harm.

import type { Logger } from "pino";
import type { RelaySessions } from "./sessions.ts";
import type { RelaySession } from "./upstream.ts";

const EVERY_MS = 60_000;
const PAGE = 100;

export function sweepEvery(sessions: RelaySessions, forget: (session: RelaySession) => Promise<void>, log: Logger): () => void {
  let place: Parameters<RelaySessions["sweep"]>[0] = null;
  let isSweeping = false;
  const round = async (): Promise<void> => {
    if (isSweeping) return;
    isSweeping = true;
    try {
      const { next, ended } = await sessions.sweep(place, PAGE);
      place = next;
      for (const session of ended) await forget(session);
    } catch (error) {
      log.warn({ reason: error instanceof Error ? error.message.slice(0, 200) : "unknown" }, "hand_sessions.not_swept");
    } finally {
      isSweeping = false;
    }
  };
  const timer = setInterval(() => void round(), EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}
