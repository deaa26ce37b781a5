// Opening a session again at a hand that lost it.
//
//   Q1  Once for all who wait on this node; of two nodes that do it at once, the one that writes first wins, and the other ends what it opened.
//   Q2  Only for hands whose connections are shared: what another kept for the session can't be made again.
//   Q3  The hand must agree on the same revision as before, since the client was told of that one.

import type { Logger } from "pino";
import { readWhole } from "./answers.ts";
import { JSON_HEADERS, versionIn } from "./hello.ts";
import { ASIDE_MS, HELLO_MS } from "./limits.ts";
import type { RelaySessions } from "./sessions.ts";
import type { RelaySession, Upstream } from "./upstream.ts";

export interface ReopeningOptions {
  readonly sessions: RelaySessions;
  readonly log: Logger;
}

export class Reopening {
  readonly #options: ReopeningOptions;
  readonly #underWay = new Map<string, Promise<RelaySession | null>>();

  constructor(options: ReopeningOptions) {
    this.#options = options;
  }

  /** The session with its new id at the hand; null: it is over. Q1 */
  reopen(upstream: Upstream, lost: RelaySession): Promise<RelaySession | null> {
    const underWay = this.#underWay.get(lost.id) ?? this.#reopen(upstream, lost).finally(() => this.#underWay.delete(lost.id));
    this.#underWay.set(lost.id, underWay);
    return underWay;
  }

  async #reopen(upstream: Upstream, lost: RelaySession): Promise<RelaySession | null> {
    const { sessions, log } = this.#options;
    const now = await sessions.peek(lost.id);
    if (!now || now.upstream !== lost.upstream) return now;
    if (upstream.hand.sharing !== "shared") return null;
    const opened = await this.#initialize(upstream, now);
    if (opened === null) return null;
    const changed = await sessions.update(lost.id, ({ upstream: id }) => (id === lost.upstream ? { upstream: opened } : null));
    log.info({ hand: upstream.hand.name, isOurs: changed?.upstream === opened }, "hand_session.reopened");
    if (changed?.upstream !== opened) await this.#aside(upstream, "DELETE", now, opened, null);
    return changed;
  }

  /** The new session's id at the hand. Q3 */
  async #initialize(upstream: Upstream, session: RelaySession): Promise<string | null> {
    const body = `{"jsonrpc":"2.0","id":"manyhands-initialize","method":"initialize","params":${session.hello}}`;
    const answer = await upstream.send({ method: "POST", headers: JSON_HEADERS, body, signal: AbortSignal.timeout(HELLO_MS) });
    const { message } = await readWhole(answer);
    const id = answer.headers["mcp-session-id"];
    if (versionIn(message?.result) !== session.version || typeof id !== "string") return null;
    const tell = (told: object) => this.#aside(upstream, "POST", session, id, JSON.stringify({ jsonrpc: "2.0", ...told }));
    await tell({ method: "notifications/initialized" });
    if (session.level !== null) await tell({ id: "manyhands-level", method: "logging/setLevel", params: { level: session.level } });
    await Promise.all(
      session.subscriptions.map((uri, at) => tell({ id: `manyhands-subscribe-${at}`, method: "resources/subscribe", params: { uri } })),
    );
    return id;
  }

  async #aside(upstream: Upstream, method: "POST" | "DELETE", { version }: RelaySession, id: string, body: string | null): Promise<void> {
    const headers = { ...JSON_HEADERS, "mcp-protocol-version": version, "mcp-session-id": id };
    const answer = await upstream.send({ method, headers, body, signal: AbortSignal.timeout(ASIDE_MS) });
    await readWhole(answer);
  }
}
