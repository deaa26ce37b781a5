// The sessions at hands that this node uses.
//
//   L1  One that nobody used for IDLE_MS is ended, at the hand, too; on another node it may still be in use, which its document says.

import { Refusal } from "../../../session-store/refusal.ts";
import { WORKSPACE } from "../../mcp/kept.ts";
import { REFUSED, RpcError } from "../../mcp/rpc.ts";
import type { Exchange, Upstream } from "../upstream.ts";
import { ASKED_KIND, type CrossedOptions, capabilitiesOf, infoOf, reasonOf } from "./crossed.ts";
import { FarLine } from "./far-line.ts";
import { FAR_KIND, type FarSession, FarSessions } from "./far-session.ts";
import { NEWS_KIND, News } from "./news.ts";
import { PARKED_KIND } from "./parked.ts";
import { Questions } from "./questions.ts";

const IDLE_MS = 1_800_000;
const TOUCH_MS = 60_000;
const LINES_MAX = 5_000;
const PAGE = 100;
/** Longer than any call takes with its questions. */
const KEPT_MS = 4 * 3_600_000;

interface Used {
  readonly line: FarLine;
  upstream: Upstream;
  touchedAt: number;
}

export class FarLines {
  readonly news: News;
  readonly #options: CrossedOptions;
  readonly #sessions: FarSessions;
  readonly #questions: Questions;
  readonly #lines = new Map<string, Used>();

  constructor(options: CrossedOptions) {
    const { store, log } = options;
    this.#options = options;
    this.#sessions = new FarSessions(store);
    this.#questions = new Questions(store, log);
    this.news = new News(store, log);
  }

  /** The session for this request: the one that is in use, the one that another node opened, or a new one. */
  async of(exchange: Exchange): Promise<FarLine> {
    const { caller } = exchange;
    const client = { caller: caller.name, info: infoOf(exchange), capabilities: capabilitiesOf(exchange) };
    const id = FarSessions.idOf(exchange.upstream, client);
    const known = this.#lines.get(id);
    const far = known?.line.far ?? (await this.#sessions.open(exchange.upstream, client));
    const upstream = exchange.upstream.at(far.place) ?? exchange.upstream;
    const used = known ?? this.#keep(id, far, upstream, client.capabilities);
    used.line.use(upstream);
    used.upstream = upstream;
    if (used.touchedAt + TOUCH_MS < Date.now()) this.#touch(used);
    return used.line;
  }

  /** The hand does not know it any more. */
  async lost(line: FarLine): Promise<void> {
    if (this.#lines.get(line.far.id)?.line === line) this.#lines.delete(line.far.id);
    line.retire();
    await this.#sessions.lost(line.far);
  }

  /** L1 */
  async sweep(now = Date.now()): Promise<void> {
    for (const [id, { line, upstream }] of [...this.#lines]) {
      if (line.isUsed || line.usedAt + IDLE_MS > now) continue;
      this.#lines.delete(id);
      line.close();
      const far = await this.#sessions.find(id);
      if (far && far.session === line.far.session && far.usedAt + IDLE_MS <= now) await this.#sessions.end(upstream, far);
    }
    for (const kind of [PARKED_KIND, ASKED_KIND]) await this.#sweepOld(kind, now - KEPT_MS, () => true);
    await this.#sweepOld(
      FAR_KIND,
      now - IDLE_MS,
      (body) => typeof body === "object" && body !== null && "usedAt" in body && Number(body.usedAt) + 2 * IDLE_MS <= now,
    );
    await this.#sweepOld(NEWS_KIND, now - KEPT_MS, () => true);
  }

  close(): void {
    for (const { line } of this.#lines.values()) line.close();
    this.#lines.clear();
  }

  #keep(id: string, far: FarSession, upstream: Upstream, capabilities: Readonly<Record<string, unknown>>): Used {
    const known = this.#lines.get(id);
    if (known) return known;
    if (this.#lines.size >= LINES_MAX) throw new RpcError(REFUSED, "This node has no more room for sessions at hands.", { status: 503 });
    const { log } = this.#options;
    const line: FarLine = new FarLine({
      upstream,
      far,
      capabilities,
      news: this.news,
      questions: this.#questions,
      log,
      lost: () => this.#gone(line),
    });
    const used = { line, upstream, touchedAt: Date.now() };
    this.#lines.set(id, used);
    return used;
  }

  #gone(line: FarLine): void {
    this.lost(line).catch((error: unknown) => this.#options.log.warn({ reason: reasonOf(error) }, "hand.session_not_forgotten"));
  }

  #touch(used: Used): void {
    used.touchedAt = Date.now();
    this.#sessions.touch(used.line.far).catch((error: unknown) => this.#options.log.warn({ reason: reasonOf(error) }, "hand.session_not_touched"));
  }

  async #sweepOld(kind: string, before: number, isOld: (body: unknown) => boolean): Promise<void> {
    const { store } = this.#options;
    for (const { id, body } of await store.list(WORKSPACE, kind, { order: "asc", limit: PAGE, createdAt: { lt: before } })) {
      if (!isOld(body)) continue;
      try {
        await store.discard(WORKSPACE, kind, id);
      } catch (error) {
        if (!(error instanceof Refusal && error.code === "document_not_found")) throw error;
      }
    }
  }
}
