// The sessions of the handshake era (2024-11-05 to 2025-11-25): their state, as documents, the same on every node.
//
//   N1  A session is known on every node from the answer to `initialize` on, survives any restart, and ends everywhere at once.
//   N2  Its id is random (over 128 bits) and no credential: it is looked up first, and then belongs to one caller only; to any other it is unknown.
//   N3  A session that was not used for IDLE_MS is over. A caller has at most SESSIONS_MAX: the one unused for longest makes room.
//   N4  What changes goes by the revision that it was read at; whoever comes second reads again.

import type { ClientCapabilities, LoggingLevel } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Document } from "../../../session-store/documents.ts";
import { mint, type Topic, topic } from "../../../session-store/ids.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import type { Caller } from "../caller.ts";
import { WORKSPACE } from "../kept.ts";
import { NO_SESSION, RpcError } from "../rpc.ts";

export const SESSION_KIND = "mcp_session";
const ownedKind = (caller: string) => `mcp_sessions_of:${caller}`;
export const IDLE_MS = 24 * 3_600_000;
const SESSIONS_MAX = 256;
const LOOKED_AT_MAX = 64;
/** How exact the time of the last use is. */
const TOUCH_MS = 60_000;
const TRIES_MAX = 20;
const CANCELLED_KEPT = 64;
const SUBSCRIPTIONS_MAX = 256;
const ID = /^mcps_[0-9A-Za-z]{24}$/;

export const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] as const;

const Body = z.object({
  caller: z.string(),
  version: z.string(),
  client: z.custom<ClientCapabilities>((value) => typeof value === "object" && value !== null),
  level: z.enum(LEVELS).nullable(),
  subscriptions: z.array(z.string()),
  /** Keys of requests that were called off, and the revision that says so: calls that began later are others. */
  cancelled: z.array(z.object({ request: z.string(), revision: z.number() })),
  /** The newest stream of server messages; an older one ends. */
  listener: z.string().nullable(),
  usedAt: z.number(),
});
type Body = z.infer<typeof Body>;

export interface HandshakeSession extends Readonly<Body> {
  readonly id: string;
  readonly revision: number;
}

/** Rung when a session changed or ended. */
export const bellOf = (id: string): Topic => topic(id);

export class HandshakeSessions {
  readonly #store: SessionStore;

  constructor(store: SessionStore) {
    this.#store = store;
  }

  async open(caller: Caller, hello: { readonly version: string; readonly client: ClientCapabilities }): Promise<string> {
    await this.#makeRoom(caller.name);
    const id = mint("mcps");
    const body: Body = { caller: caller.name, ...hello, level: null, subscriptions: [], cancelled: [], listener: null, usedAt: Date.now() };
    await this.#store.put(WORKSPACE, [
      { kind: SESSION_KIND, id, body, replaces: 0 },
      { kind: ownedKind(caller.name), id, body: {}, replaces: 0 },
    ]);
    return id;
  }

  /** Refuses an unknown or ended one; whose it is, is the next question. N2 */
  async find(id: string): Promise<HandshakeSession> {
    const session = await this.peek(id);
    if (!session) throw new RpcError(NO_SESSION, "Session not found", { status: 404 });
    return session;
  }

  /** Null when there is none. */
  async peek(id: string): Promise<HandshakeSession | null> {
    const document = ID.test(id) ? await this.#store.get(WORKSPACE, SESSION_KIND, id) : null;
    const session = document && sessionOf(document);
    return session && session.usedAt + IDLE_MS > Date.now() ? session : null;
  }

  async touch(session: HandshakeSession): Promise<void> {
    if (session.usedAt + TOUCH_MS > Date.now()) return;
    await this.update(session.id, () => ({}), { isSilent: true });
  }

  cancel(id: string, request: string): Promise<void> {
    return this.update(id, ({ cancelled, revision }) => ({
      cancelled: [...cancelled.slice(1 - CANCELLED_KEPT), { request, revision: revision + 1 }],
    }));
  }

  subscribe(id: string, uri: string): Promise<void> {
    return this.update(id, ({ subscriptions }) => {
      if (subscriptions.includes(uri)) return null;
      if (subscriptions.length >= SUBSCRIPTIONS_MAX) throw new RpcError(-32_000, `A session has at most ${SUBSCRIPTIONS_MAX} subscriptions.`);
      return { subscriptions: [...subscriptions, uri] };
    });
  }

  unsubscribe(id: string, uri: string): Promise<void> {
    return this.update(id, ({ subscriptions }) =>
      subscriptions.includes(uri) ? { subscriptions: subscriptions.filter((each) => each !== uri) } : null,
    );
  }

  setLevel(id: string, level: LoggingLevel): Promise<void> {
    return this.update(id, () => ({ level }));
  }

  /** N1 */
  async end({ id, caller }: HandshakeSession): Promise<void> {
    await this.#discard(SESSION_KIND, id);
    await this.#discard(ownedKind(caller), id);
    this.#store.ring(bellOf(id));
  }

  /** Ends those that nobody used for long, oldest first; at most a page a call. */
  async sweep(after: { readonly createdAt: number; readonly id: string } | null, limit: number): Promise<typeof after> {
    const page = await this.#store.list(WORKSPACE, SESSION_KIND, { order: "asc", limit, ...(after && { beyond: after }) });
    for (const document of page) {
      const session = sessionOf(document);
      if (session.usedAt + IDLE_MS <= Date.now()) await this.end(session);
    }
    const last = page.at(-1);
    return last && page.length === limit ? { createdAt: last.createdAt, id: last.id } : null;
  }

  /** N4. Null: nothing to change. A session that is gone stays gone. */
  async update(
    id: string,
    change: (session: HandshakeSession) => Partial<Body> | null,
    options: { readonly isSilent?: boolean } = {},
  ): Promise<void> {
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const { id: _, revision, ...before } = await this.find(id);
      const changed = change({ id, revision, ...before });
      if (!changed) return;
      const body: Body = { ...before, ...changed, usedAt: Date.now() };
      try {
        await this.#store.put(WORKSPACE, [{ kind: SESSION_KIND, id, body, replaces: revision }]);
        if (!options.isSilent) this.#store.ring(bellOf(id));
        return;
      } catch (error) {
        if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
      }
    }
    throw new Refusal("store_busy");
  }

  /** N3. Many that open at once may exceed the bound for a moment; each of them makes up for it. */
  async #makeRoom(caller: string): Promise<void> {
    const owned = await this.#store.list(WORKSPACE, ownedKind(caller), { order: "asc", limit: SESSIONS_MAX + LOOKED_AT_MAX });
    const over = owned.length - SESSIONS_MAX + 1;
    if (over <= 0) return;
    const oldest = owned.slice(0, LOOKED_AT_MAX);
    const documents = await Promise.all(oldest.map(({ id }) => this.#store.get(WORKSPACE, SESSION_KIND, id)));
    for (const [index, { id }] of oldest.entries()) if (!documents[index]) await this.#discard(ownedKind(caller), id);
    const unused = documents.flatMap((document) => (document ? [sessionOf(document)] : [])).sort((x, y) => x.usedAt - y.usedAt);
    for (const session of unused.slice(0, over)) await this.end(session);
  }

  async #discard(kind: string, id: string): Promise<void> {
    try {
      await this.#store.discard(WORKSPACE, kind, id);
    } catch (error) {
      if (!(error instanceof Refusal && error.code === "document_not_found")) throw error;
    }
  }
}

const sessionOf = ({ id, revision, body }: Document): HandshakeSession => ({ id, revision, ...Body.parse(body) });
