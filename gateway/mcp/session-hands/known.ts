// What the logs of sessions say of the tools of their MCP servers, kept for the sessions that somebody asks for: only what is new is read.

import { KnownServers } from "../../../harnesses/known-servers.ts";
import { type Position, position, type SessionId } from "../../../session-store/ids.ts";
import type { SessionRecord } from "../../../session-store/session.ts";
import type { SessionStore } from "../../../session-store/store.ts";

const SESSIONS_MAX = 256;
const TYPES = ["log.tools", "session.error", "session.status_running"];
const PAGE = 500;

interface Known {
  readonly servers: KnownServers;
  readonly at: Position;
}

export class KnownTools {
  readonly #store: Pick<SessionStore, "getEvents">;
  readonly #known = new Map<SessionId, Promise<Known>>();

  constructor(store: Pick<SessionStore, "getEvents">) {
    this.#store = store;
  }

  /** As of the record's head, or later. */
  async of({ id, head }: SessionRecord): Promise<KnownServers> {
    const before = this.#known.get(id) ?? Promise.resolve({ servers: new KnownServers(), at: position(0) });
    const now = before.then((known) => (known.at >= head ? known : this.#read(id, known, head)));
    this.#known.delete(id);
    this.#known.set(id, now);
    // A read that failed is forgotten with what it began with.
    now.catch(() => {
      if (this.#known.get(id) === now) this.#known.delete(id);
    });
    for (const oldest of [...this.#known.keys()].slice(0, -SESSIONS_MAX)) this.#known.delete(oldest);
    return (await now).servers;
  }

  async #read(id: SessionId, { servers, at }: Known, head: Position): Promise<Known> {
    let after = at;
    for (;;) {
      const page = await this.#store.getEvents(id, { after, before: position(head + 1), types: TYPES, limit: PAGE });
      for (const stored of page) servers.take(stored);
      const last = page.at(-1);
      if (!last) return { servers, at: head };
      after = last.position;
    }
  }
}
