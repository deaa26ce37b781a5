// The hand host's memory: which calls it took and what they came to, who holds each hand, which hands there are.
//
//   G1  A promise of this file resolves when what it wrote is on the disk (SQLite, WAL, synchronous=FULL: each commit is an fsync).
//   G2  Writes that arrive together share one commit, and so one fsync; they take effect in the order in which they arrived.
//   G3  What a read shows may be not yet durable; a caller that acts on it outside waits for its own write first, and that one comes later. G2
//   G4  One host has the file: a second one is refused while the first lives; the operating system frees it at any death.
//   G5  The boot number grows with each opening. A row that is running in an earlier boot is nobody's: its outcome can't be known.
//
// SQLite rather than an append file: torn writes, compaction and the reading back of large results are its business, not ours.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import Database from "libsql";
import { z } from "zod";
import type { Fence, SessionId } from "../session-store/ids.ts";
import { mint } from "../session-store/ids.ts";
import type { Holder, Outcome } from "./hand.ts";

const SCHEMA = `
CREATE TABLE IF NOT EXISTS host (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, boot INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS hands (hand TEXT PRIMARY KEY, session TEXT NOT NULL, driver TEXT NOT NULL, folder TEXT NOT NULL, created INTEGER NOT NULL,
  holder TEXT NOT NULL, fence INTEGER NOT NULL, state TEXT NOT NULL, server TEXT);
CREATE TABLE IF NOT EXISTS calls (hand TEXT NOT NULL, tool_use_id TEXT NOT NULL, session TEXT NOT NULL, fence INTEGER NOT NULL, boot INTEGER NOT NULL,
  state TEXT NOT NULL, outcome TEXT, PRIMARY KEY (hand, tool_use_id)) WITHOUT ROWID;
`;

/** Writes that wait for a commit; more than this means that the disk does not keep up. */
const PENDING_MAX = 10_000;

const HandRow = z.object({
  hand: z.string(),
  session: z.string().transform((text) => text as SessionId),
  driver: z.string(),
  folder: z.string(),
  created: z.number(),
  holder: z.string().transform((text) => text as SessionId),
  fence: z.number().transform((value) => value as Fence),
  state: z.enum(["live", "releasing"]),
  /** JSON text of the MCP server that the hand is; null: it is a sandbox. */
  server: z.string().nullable(),
});
export type HandRow = Readonly<z.infer<typeof HandRow>>;

const StoredCall = z.object({ fence: z.number(), boot: z.number(), state: z.enum(["running", "done", "failed"]), outcome: z.string().nullable() });
const StoredHost = z.object({ id: z.string(), boot: z.number() });

/** A call as the ledger has it. `settled`: it is over and its result was dropped, because the log has it. */
export type CallRow =
  | { readonly state: "running"; readonly isThisBoot: boolean }
  | { readonly state: "over"; readonly outcome: Outcome }
  | { readonly state: "settled" };

interface Pending {
  readonly sql: string;
  readonly values: readonly (string | number | null)[];
}

export class Ledger {
  readonly hostId: string;
  readonly boot: number;
  readonly #db: Database.Database;
  readonly #hands = new Map<string, HandRow>();
  readonly #statements = new Map<string, Database.Statement>();
  #pending: Pending[] = [];
  #commit: Promise<void> | undefined;
  readonly #onBroken: (error: unknown) => void;

  private constructor(db: Database.Database, host: { id: string; boot: number }, onBroken: (error: unknown) => void) {
    this.#db = db;
    this.#onBroken = onBroken;
    this.hostId = host.id;
    this.boot = host.boot;
    for (const row of db.prepare("SELECT * FROM hands").all()) {
      const hand = HandRow.parse(row);
      this.#hands.set(hand.hand, hand);
    }
  }

  /**
   * Throws SQLITE_BUSY while another host has it. `onBroken`: a commit failed, so what this object shows and what the disk has may differ;
   * the process must end and open it anew. G4 G5
   */
  static open(dataDir: string, onBroken: (error: unknown) => void): Ledger {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    const db = new Database(join(dataDir, "ledger.db"));
    try {
      db.exec("PRAGMA journal_mode = WAL");
      db.exec("PRAGMA locking_mode = EXCLUSIVE");
      db.exec("PRAGMA synchronous = FULL");
      db.exec(SCHEMA);
      addServerColumn(db);
      db.prepare("INSERT INTO host (one, id, boot) VALUES (1, ?, 1) ON CONFLICT (one) DO UPDATE SET boot = boot + 1").run(mint("host"));
      return new Ledger(db, StoredHost.parse(db.prepare("SELECT id, boot FROM host").get()), onBroken);
    } catch (error) {
      db.close();
      throw error;
    }
  }

  hands(): readonly HandRow[] {
    return [...this.#hands.values()];
  }

  hand(id: string): HandRow | undefined {
    return this.#hands.get(id);
  }

  /** The session's live hand that is this server, or its sandbox; hands that are being released no longer count. */
  handOf(session: SessionId, server: string | null = null): HandRow | undefined {
    return this.hands().find((row) => row.session === session && row.state === "live" && row.server === server);
  }

  addHand(row: HandRow): Promise<void> {
    this.#hands.set(row.hand, row);
    return this.#write("INSERT INTO hands VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [
      row.hand,
      row.session,
      row.driver,
      row.folder,
      row.created,
      row.holder,
      row.fence,
      row.state,
      row.server,
    ]);
  }

  setHolder(hand: string, holder: Holder): Promise<void> {
    const row = this.#hands.get(hand);
    if (row !== undefined) this.#hands.set(hand, { ...row, holder: holder.session, fence: holder.fence });
    return this.#write("UPDATE hands SET holder = ?, fence = ? WHERE hand = ?", [holder.session, holder.fence, hand]);
  }

  markReleasing(hand: string): Promise<void> {
    const row = this.#hands.get(hand);
    if (row !== undefined) this.#hands.set(hand, { ...row, state: "releasing" });
    return this.#write("UPDATE hands SET state = 'releasing' WHERE hand = ?", [hand]);
  }

  /** Forgets a hand and every id of its calls: only once its folder is gone. */
  async forget(hand: string): Promise<void> {
    this.#hands.delete(hand);
    await Promise.all([this.#write("DELETE FROM calls WHERE hand = ?", [hand]), this.#write("DELETE FROM hands WHERE hand = ?", [hand])]);
  }

  call(hand: string, toolUseId: string): CallRow | undefined {
    const row = this.#statement("SELECT fence, boot, state, outcome FROM calls WHERE hand = ? AND tool_use_id = ?").get(hand, toolUseId);
    if (row === undefined || row === null) return undefined;
    const stored = StoredCall.parse(row);
    if (stored.state === "running") return { state: "running", isThisBoot: stored.boot === this.boot };
    return stored.outcome === null ? { state: "settled" } : { state: "over", outcome: JSON.parse(stored.outcome) as Outcome };
  }

  /** Before a tool starts. M3 */
  started(hand: string, holder: Holder, toolUseId: string): Promise<void> {
    return this.#write("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?, 'running', NULL)", [
      hand,
      toolUseId,
      holder.session,
      holder.fence,
      this.boot,
    ]);
  }

  /** What a call came to, also for one that never started: its id is spent from now on. */
  ended(hand: string, holder: Holder, toolUseId: string, outcome: Outcome): Promise<void> {
    const state = outcome.type === "done" ? "done" : "failed";
    return this.#write("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?, ?)", [
      hand,
      toolUseId,
      holder.session,
      holder.fence,
      this.boot,
      state,
      JSON.stringify(outcome),
    ]);
  }

  /** Drops the results of calls that are over; the ids stay. */
  async settled(hand: string, toolUseIds: readonly string[]): Promise<void> {
    const sql = "UPDATE calls SET outcome = NULL WHERE hand = ? AND tool_use_id = ? AND state <> 'running'";
    await Promise.all(toolUseIds.map((id) => this.#write(sql, [hand, id])));
  }

  /** Commits what waits and gives the file back. */
  async close(): Promise<void> {
    await this.#commit;
    // The driver gives the lock back only once the collector has come to every statement; leaving WAL and exclusive mode gives it back now.
    this.#db.pragma("journal_mode = DELETE");
    this.#db.pragma("locking_mode = NORMAL");
    this.#db.prepare("SELECT boot FROM host").get();
    this.#db.close();
  }

  /** G1 G2 */
  #write(sql: string, values: Pending["values"]): Promise<void> {
    if (this.#pending.length >= PENDING_MAX) return Promise.reject(new Error("the ledger's disk does not keep up"));
    this.#pending.push({ sql, values });
    this.#commit ??= new Promise((resolve, reject) => {
      setImmediate(() => {
        const batch = this.#pending;
        this.#pending = [];
        this.#commit = undefined;
        try {
          this.#db.transaction(() => {
            for (const { sql, values } of batch) this.#statement(sql).run(...values);
          })();
          resolve();
        } catch (error) {
          this.#onBroken(error);
          reject(error);
        }
      });
    });
    return this.#commit;
  }
  #statement(sql: string): Database.Statement {
    const statement = this.#statements.get(sql) ?? this.#db.prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }
}

/** A ledger of a host that knew sandboxes only has no such column. */
function addServerColumn(db: Database.Database): void {
  const columns = z.array(z.object({ name: z.string() })).parse(db.prepare("PRAGMA table_info(hands)").all());
  if (!columns.some(({ name }) => name === "server")) db.exec("ALTER TABLE hands ADD COLUMN server TEXT");
}
