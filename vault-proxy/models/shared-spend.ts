// What a session has spent at all vault proxies over one storage: a record a session, in which each proxy writes the sum that it counted itself.
//
//   H1  A proxy's own sum (spend.ts) only grows, and is on its disk first: writing it again says the same. A count that could not be stored is put right by
//       the proxy's next one of that session.
//   H2  Before a request the record is read. Where it can't be, the caller hears of the storage's trouble: what is not known can't be limited.
//   H3  The record goes with its session.

import type { Logger } from "pino";
import { z } from "zod";
import { nameOf } from "../passing.ts";
import { OWN_WORKSPACE, type RecordKey, StoreTrouble, type VaultStore } from "../store.ts";
import type { Price } from "./providers.ts";
import type { Spend, Spending } from "./spend.ts";
import type { Used } from "./usage.ts";

const TRIES_MAX = 10;
/** Proxies that ever counted for one session; beyond, those of others are put together. */
const PROXIES_MAX = 1_000;
const OTHERS = "others";

/** Proxy → dollars. */
const Kept = z.strictObject({ spent: z.record(z.string(), z.number()) });
type Sums = z.infer<typeof Kept>["spent"];

const keyOf = (session: string): RecordKey => ({ workspace: OWN_WORKSPACE, kind: "spend", id: nameOf(session) });

export class SharedSpend implements Spending {
  readonly #own: Spend;
  readonly #store: VaultStore;
  readonly #log: Logger;

  constructor(own: Spend, store: VaultStore, log: Logger) {
    this.#own = own;
    this.#store = store;
    this.#log = log;
  }

  /** Throws the storage's trouble. H2 */
  async spentBy(session: string): Promise<number> {
    const { sums } = await this.#read(session);
    const others = Object.entries(sums).reduce((sum, [id, each]) => (id === this.#own.id ? sum : sum + each), 0);
    return others + Math.max(this.#own.spentBy(session), sums[this.#own.id] ?? 0);
  }

  /** H1 */
  async count(session: string, used: Used, price: Price): Promise<number> {
    const usd = this.#own.count(session, used, price);
    try {
      if (usd > 0) await this.#write(session);
    } catch (error) {
      if (!(error instanceof StoreTrouble)) throw error;
      this.#log.warn({ sessionId: session, reason: error.reason, detail: error.detail }, "spend.not_shared");
    }
    return usd;
  }

  /** Throws the storage's trouble. H3 */
  async forget(session: string): Promise<void> {
    await this.#store.remove(keyOf(session));
  }

  async #read(session: string): Promise<{ readonly sums: Sums; readonly revision: number }> {
    const found = await this.#store.get(keyOf(session));
    return found === null ? { sums: {}, revision: 0 } : { sums: Kept.parse(found.body).spent, revision: found.revision };
  }

  async #write(session: string): Promise<void> {
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const { sums, revision } = await this.#read(session);
      const own = Math.max(this.#own.spentBy(session), sums[this.#own.id] ?? 0);
      const spent = { ...(Object.keys(sums).length < PROXIES_MAX ? sums : folded(sums)), [this.#own.id]: own };
      if ((await this.#store.put(keyOf(session), { spent }, revision)) !== "changed") return;
    }
    throw new StoreTrouble("busy", "a session's spending is changed again and again");
  }
}

/** One that counts again later is counted twice: it errs to the limit's side. */
const folded = (sums: Sums): Sums => ({ [OTHERS]: Object.values(sums).reduce((sum, each) => sum + each, 0) });
