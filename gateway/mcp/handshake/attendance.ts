// Looking after the sessions that something is under way for on this node: a call, or a stream of server messages.
//
//   A1  Whatever changes a session on any node is seen here by its bell, and within POLL_MS without it.
//   A2  A session that ended ends what is under way for it.

import type { Logger } from "pino";
import type { SessionStore } from "../../../session-store/store.ts";
import type { HandshakeSession, HandshakeSessions } from "./sessions.ts";
import { bellOf } from "./sessions.ts";

const POLL_MS = 2_000;

/** Told of a session as it is now; null: it ended. */
export type Attendant = (session: HandshakeSession | null) => void;

interface Attended {
  readonly attendants: Set<{ tell: Attendant }>;
  readonly look: () => void;
  leave: () => void;
}

export class Attendance {
  readonly #store: SessionStore;
  readonly #sessions: HandshakeSessions;
  readonly #log: Logger;
  readonly #attended = new Map<string, Attended>();

  constructor(store: SessionStore, sessions: HandshakeSessions, log: Logger) {
    this.#store = store;
    this.#sessions = sessions;
    this.#log = log;
  }

  /** Tells at once how the session is, and then of every change, until `signal` aborts. A1 */
  join(id: string, tell: Attendant, signal: AbortSignal): void {
    if (signal.aborted) return;
    const attended = this.#attended.get(id) ?? this.#attend(id);
    const attendant = { tell };
    attended.attendants.add(attendant);
    const leave = () => {
      attended.attendants.delete(attendant);
      if (attended.attendants.size === 0) attended.leave();
    };
    signal.addEventListener("abort", leave, { once: true });
    attended.look();
  }

  #attend(id: string): Attended {
    let isLooking = false;
    let isStale = false;
    const look = async (): Promise<void> => {
      isStale = true;
      if (isLooking) return;
      isLooking = true;
      try {
        while (isStale) {
          isStale = false;
          const session = await this.#sessions.peek(id);
          for (const { tell } of [...attended.attendants]) tell(session);
        }
      } catch (error) {
        this.#log.warn({ reason: error instanceof Error ? error.message.slice(0, 200) : "unknown" }, "mcp.not_looked");
      } finally {
        isLooking = false;
      }
    };
    const attended: Attended = { attendants: new Set(), look: () => void look(), leave: () => {} };
    this.#attended.set(id, attended);
    const timer = setInterval(attended.look, POLL_MS);
    const heard = this.#store.listen(bellOf(id), attended.look);
    // Without a bell there is the poll.
    heard.catch((error: unknown) => this.#log.warn({ reason: String(error).slice(0, 200) }, "mcp.bell_missed"));
    attended.leave = () => {
      clearInterval(timer);
      if (this.#attended.get(id) === attended) this.#attended.delete(id);
      heard.then(
        (hush) => hush(),
        () => {},
      );
    };
    return attended;
  }
}
