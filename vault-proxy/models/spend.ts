// What each session has spent at the models, by the operator's prices.
//
//   D1  Counted when an answer ends, whichever way it ends. A limit stops the next request, not one that runs: a session can pass it by what is open.
//   D2  Kept on the disk: a restart forgets nothing that was counted. Another vault proxy counts for itself.

import { join } from "node:path";
import Database from "libsql";
import { z } from "zod";
import type { Price } from "./providers.ts";
import type { Used } from "./usage.ts";

const KEPT_MS = 90 * 86_400_000;
const BUSY_MS = 2_000;
const MICRO = 1_000_000;

const Row = z.object({ spent: z.number() });

export class Spend {
  readonly #database: Database.Database;
  readonly #read: Database.Statement;
  readonly #add: Database.Statement;

  /** `folder` exists. */
  constructor(folder: string) {
    this.#database = new Database(join(folder, "spend.sqlite"), { timeout: BUSY_MS });
    this.#database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;");
    this.#database.exec("CREATE TABLE IF NOT EXISTS spend (session TEXT PRIMARY KEY, micro_usd REAL NOT NULL, at INTEGER NOT NULL) STRICT");
    this.#database.prepare("DELETE FROM spend WHERE at < ?").run(Date.now() - KEPT_MS);
    this.#read = this.#database.prepare("SELECT micro_usd / 1e6 AS spent FROM spend WHERE session = ?");
    this.#add = this.#database.prepare(
      "INSERT INTO spend VALUES (?, ?, ?) ON CONFLICT (session) DO UPDATE SET micro_usd = micro_usd + excluded.micro_usd, at = excluded.at",
    );
  }

  /** Dollars. */
  spentBy(session: string): number {
    const row = Row.safeParse(this.#read.get(session));
    return row.success ? row.data.spent : 0;
  }

  /** Dollars that this costs, counted. D1 D2 */
  count(session: string, used: Used, price: Price): number {
    const micro = used.input * price.input + used.output * price.output + used.cacheRead * price.cacheRead + used.cacheWrite * price.cacheWrite;
    if (micro > 0) this.#add.run(session, micro, Date.now());
    return micro / MICRO;
  }

  close(): void {
    this.#database.close();
  }
}
