// That a list or a resource of a hand changed, for the listeners of every node: a document of counters, one for each session at a hand.
//
//   N1  Whoever holds the hand's stream counts; whoever listens compares with what it counted last. Many changes in a moment are one.

import type { Logger } from "pino";
import { z } from "zod";
import { Refusal } from "../../../session-store/refusal.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import { WORKSPACE } from "../../mcp/kept.ts";
import { bellOf, reasonOf } from "./crossed.ts";

export const NEWS_KIND = "hand_news";
const GATHER_MS = 50;
const POLL_MS = 2_000;
const TRIES_MAX = 10;
const URIS_MAX = 256;
const UPDATED = "notifications/resources/updated";

const Counts = z.record(z.string(), z.number());

/** What changed: a notice's method, and the resource's URI where it is one of a resource. */
export interface Change {
  readonly method: string;
  readonly uri: string | null;
}

export class News {
  readonly #store: SessionStore;
  readonly #log: Logger;
  readonly #gathered = new Map<string, Set<string>>();

  constructor(store: SessionStore, log: Logger) {
    this.#store = store;
    this.#log = log;
  }

  publish(far: string, method: string, uri: unknown): void {
    const key = method === UPDATED ? (typeof uri === "string" ? `${UPDATED} ${uri}` : null) : method;
    if (key === null) return;
    const gathered = this.#gathered.get(far);
    if (gathered) {
      gathered.add(key);
      return;
    }
    this.#gathered.set(far, new Set([key]));
    setTimeout(() => {
      const keys = [...(this.#gathered.get(far) ?? [])];
      this.#gathered.delete(far);
      this.#count(far, keys).catch((error: unknown) => this.#log.warn({ reason: reasonOf(error) }, "hand.news_lost"));
    }, GATHER_MS).unref();
  }

  /** Something may have been missed: every resource that was ever told of is said to have changed. */
  publishAll(far: string): void {
    this.#read(far)
      .then(({ counts }) => this.#count(far, Object.keys(counts)))
      .catch((error: unknown) => this.#log.warn({ reason: reasonOf(error) }, "hand.news_lost"));
  }

  /** Calls `hear` for each change from now on, until `signal` aborts. */
  async watch(far: string, hear: (change: Change) => void, signal: AbortSignal): Promise<void> {
    let known = (await this.#read(far)).counts;
    let isLooking = false;
    const look = async () => {
      if (isLooking || signal.aborted) return;
      isLooking = true;
      try {
        const { counts } = await this.#read(far);
        const changed = Object.keys(counts).filter((key) => counts[key] !== known[key]);
        known = counts;
        for (const key of changed) {
          const [method = "", uri = null] = key.split(" ", 2);
          hear({ method, uri });
        }
      } finally {
        isLooking = false;
      }
    };
    const looked = () => void look().catch((error: unknown) => this.#log.warn({ reason: reasonOf(error) }, "mcp.not_looked"));
    const timer = setInterval(looked, POLL_MS).unref();
    const hush = await this.#store.listen(bellOf(far), looked);
    const stop = () => {
      clearInterval(timer);
      hush();
    };
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  }

  async #read(far: string): Promise<{ readonly counts: z.infer<typeof Counts>; readonly revision: number }> {
    const document = await this.#store.get(WORKSPACE, NEWS_KIND, far);
    return { counts: document ? Counts.parse(document.body) : {}, revision: document?.revision ?? 0 };
  }

  async #count(far: string, keys: readonly string[]): Promise<void> {
    for (let tries = 0; tries < TRIES_MAX && keys.length > 0; tries += 1) {
      const { counts, revision } = await this.#read(far);
      const next = { ...counts };
      for (const key of keys) next[key] = (next[key] ?? 0) + 1;
      const body = Object.fromEntries(Object.entries(next).slice(-URIS_MAX));
      try {
        await this.#store.put(WORKSPACE, [{ kind: NEWS_KIND, id: far, body, replaces: revision }]);
        this.#store.ring(bellOf(far));
        return;
      } catch (error) {
        if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
      }
    }
  }
}
