// What each session has spent at the models, by the operator's prices.
//
//   D1  Counted when an answer ends, whichever way it ends. A limit stops the next request, not one that runs: a session can pass it by what is open.
//   D2  Kept on the disk: a restart forgets nothing that was counted. Over a Vault server the proxies put their counts together (shared-spend.ts).

import { randomBytes } from "node:crypto";
import { join } from "node:path";
import Database from "libsql";
import { z } from "zod";
import type { Price } from "./providers.ts";
import type { Used } from "./usage.ts";

const KEPT_MS = 90 * 86_400_000;
const BUSY_MS = 2_000;
const MICRO = 1_000_000;

const Row = z.object({ spent: z.number() });
const Own = z.object({ id: z.string() });

/** What is asked and told about spending. */
export interface Spending {
  /** Dollars. */
  spentBy(session: string): number | Promise<number>;
  /** Dollars that this costs, counted. D1 D2 */
  count(session: string, used: Used, price: Price): number | Promise<number>;
}

export class Spend implements Spending {
  /** Whose counts these are: as lasting as they. */
  readonly id: string;
  readonly #database: Database.Database;
  readonly #read: Database.Statement;
  readonly #add: Database.Statement;

  /** `folder` exists. */
  constructor(folder: string) {
    this.#database = new Database(join(folder, "spend.sqlite"), { timeout: BUSY_MS });
    this.#database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;");
    this.#database.exec("CREATE TABLE IF NOT EXISTS spend (session TEXT PRIMARY KEY, micro_usd REAL NOT NULL, at INTEGER NOT NULL) STRICT");
    this.#database.exec("CREATE TABLE IF NOT EXISTS own (id TEXT NOT NULL) STRICT");
    this.#database.prepare("INSERT INTO own SELECT ? WHERE NOT EXISTS (SELECT 1 FROM own)").run(randomBytes(9).toString("hex"));
    this.id = Own.parse(this.#database.prepare("SELECT id FROM own").get()).id;
    this.#database.prepare("DELETE FROM spend WHERE at < ?").run(Date.now() - KEPT_MS);
    this.#read = this.#database.prepare("SELECT micro_usd / 1e6 AS spent FROM spend WHERE session = ?");
    this.#add = this.#database.prepare(
      "INSERT INTO spend VALUES (?, ?, ?) ON CONFLICT (session) DO UPDATE SET micro_usd = micro_usd + excluded.micro_usd, at = excluded.at",
    );
  }

  spentBy(session: string): number {
    const row = Row.safeParse(this.#read.get(session));
    return row.success ? row.data.spent : 0;
  }

  count(session: string, used: Used, price: Price): number {
    const micro = used.input * price.input + used.output * price.output + used.cacheRead * price.cacheRead + used.cacheWrite * price.cacheWrite;
    if (micro > 0) this.#add.run(session, micro, Date.now());
    return micro / MICRO;
  }

  close(): void {
    this.#database.close();
  }
}
