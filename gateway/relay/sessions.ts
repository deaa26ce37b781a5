// Sessions of clients of the handshake era at hands, as documents: the same on every node.
//
//   N1  A session is known on every node from the answer to `initialize` on, survives any restart, and ends everywhere.
//   N2  Its id is random (over 128 bits), ours, and no credential: it belongs to one caller, and to any other it is unknown. The hand's own id for it
//       never leaves this installation.
//   N3  A session that was not used for IDLE_MS is over. A caller has at most SESSIONS_MAX: the one unused for longest makes room.
//   N4  What changes goes by the revision that it was read at; whoever comes second reads again.
//   N5  A node believes what it read for FRESH_MS at most, and no longer than until it hears that a session changed or ended. If it believes one that
//       ended a moment ago, the hand was told of the end before and answers for itself.

import { z } from "zod";
import type { Document } from "../../session-store/documents.ts";
import { mint, topic } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { WORKSPACE } from "../mcp/kept.ts";
import type { RelaySession, Sessions } from "./upstream.ts";

const SESSION_KIND = "hand_session";
const ownedKind = (caller: string) => `hand_sessions_of:${caller}`;
const CHANGED = topic("hand_sessions");
const endOf = (id: string) => topic(id);
const ID = /^mcpr_[0-9A-Za-z]{24}$/;
const IDLE_MS = 24 * 3_600_000;
const SESSIONS_MAX = 256;
const LOOKED_AT_MAX = 64;
/** How exact the time of the last use is. */
const TOUCH_MS = 60_000;
const FRESH_MS = 1_000;
const CACHED_MAX = 10_000;
const TRIES_MAX = 20;

const Body = z.object({
  caller: z.string(),
  workspace: z.string(),
  hand: z.string(),
  url: z.string(),
  version: z.string(),
  hello: z.string(),
  era: z.enum(["handshake", "stateless"]),
  upstream: z.string().nullable(),
  level: z.string().nullable(),
  subscriptions: z.array(z.string()),
  notes: z.unknown(),
  usedAt: z.number(),
});

type Place = { readonly createdAt: number; readonly id: string };

export class RelaySessions implements Sessions {
  readonly #store: SessionStore;
  readonly #fresh = new Map<string, { readonly session: RelaySession; readonly at: number }>();
  readonly #touching = new Set<string>();
  #hush: (() => void) | null = null;
  #isClosed = false;

  constructor(store: SessionStore) {
    this.#store = store;
  }

  /** Hears of changes on other nodes from here on. */
  async watch(): Promise<void> {
    const hush = await this.#store.listen(CHANGED, () => this.#fresh.clear());
    if (this.#isClosed) hush();
    else this.#hush = hush;
  }

  close(): void {
    this.#isClosed = true;
    this.#hush?.();
  }

  async open(opened: Parameters<Sessions["open"]>[0]): Promise<RelaySession> {
    await this.#makeRoom(opened.caller);
    const id = mint("mcpr");
    const body = { ...opened, level: null, subscriptions: [], usedAt: Date.now() };
    const [written] = await this.#store.put(WORKSPACE, [
      { kind: SESSION_KIND, id, body, replaces: 0 },
      { kind: ownedKind(opened.caller), id, body: {}, replaces: 0 },
    ]);
    if (!written) throw new Error("a session was written and not given back");
    return this.#keep(sessionOf(written));
  }

  /** As it was FRESH_MS ago at most. N5 */
  async find(id: string): Promise<RelaySession | null> {
    const known = this.#fresh.get(id);
    if (known && performance.now() - known.at < FRESH_MS) return known.session;
    return this.peek(id);
  }

  async peek(id: string): Promise<RelaySession | null> {
    this.#fresh.delete(id);
    const document = ID.test(id) ? await this.#store.get(WORKSPACE, SESSION_KIND, id) : null;
    const session = document && sessionOf(document);
    return session && session.usedAt + IDLE_MS > Date.now() ? this.#keep(session) : null;
  }

  /** Says that it is in use, now and then; the request does not wait for that. */
  touch({ id, usedAt }: RelaySession, failed: (error: unknown) => void): void {
    if (usedAt + TOUCH_MS > Date.now() || this.#touching.has(id)) return;
    this.#touching.add(id);
    this.#change(id, () => ({}))
      .catch(failed)
      .finally(() => this.#touching.delete(id));
  }

  async update(id: string, change: Parameters<Sessions["update"]>[1]): Promise<RelaySession | null> {
    const changed = await this.#change(id, change);
    this.#store.ring(CHANGED);
    return changed;
  }

  /** N1 */
  async end({ id, caller }: Pick<RelaySession, "id" | "caller">): Promise<void> {
    this.#fresh.delete(id);
    await this.#discard(SESSION_KIND, id);
    await this.#discard(ownedKind(caller), id);
    this.#store.ring(CHANGED);
    this.#store.ring(endOf(id));
  }

  /** Calls `then` when the session ended, on whatever node, until `signal` aborts. */
  async onEnd(id: string, then: () => void, signal: AbortSignal): Promise<void> {
    const look = async () => {
      if (!signal.aborted && !(await this.peek(id))) then();
    };
    const hush = await this.#store.listen(endOf(id), () => void look().catch(() => {}));
    if (signal.aborted) hush();
    else signal.addEventListener("abort", hush, { once: true });
  }

  /** Those that nobody used for long are over, oldest first; at most a page a call. Gives where to go on, and what ended. */
  async sweep(after: Place | null, limit: number): Promise<{ readonly next: Place | null; readonly ended: readonly RelaySession[] }> {
    const page = await this.#store.list(WORKSPACE, SESSION_KIND, { order: "asc", limit, ...(after && { beyond: after }) });
    const ended = page.map(sessionOf).filter(({ usedAt }) => usedAt + IDLE_MS <= Date.now());
    for (const session of ended) await this.end(session);
    const last = page.at(-1);
    return { next: last && page.length === limit ? { createdAt: last.createdAt, id: last.id } : null, ended };
  }

  /** N4 */
  async #change(id: string, change: Parameters<Sessions["update"]>[1]): Promise<RelaySession | null> {
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const before = await this.peek(id);
      const changed = before && change(before);
      if (!before || !changed) return before;
      const { id: _, revision, ...body } = before;
      try {
        const [written] = await this.#store.put(WORKSPACE, [
          { kind: SESSION_KIND, id, body: { ...body, ...changed, usedAt: Date.now() }, replaces: revision },
        ]);
        return written ? this.#keep(sessionOf(written)) : null;
      } catch (error) {
        if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
      }
    }
    throw new Refusal("store_busy");
  }

  #keep(session: RelaySession): RelaySession {
    if (this.#fresh.size >= CACHED_MAX) this.#fresh.clear();
    this.#fresh.set(session.id, { session, at: performance.now() });
    return session;
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

const sessionOf = ({ id, revision, body }: Document): RelaySession => ({ id, revision, ...Body.parse(body) });
