// The tables, and what opening a store does before the first call.
//
//   B1  One owner: an exclusive lock on a file of its own is held for life; the death of the process frees it.
//   B2  A store that a newer version wrote is refused and left as it is.
//   B3  Opening makes every held session due at once and takes its lease away, in one step: its only possible holder is dead.

import { closeSync, fsyncSync, mkdirSync, openSync } from "node:fs";
import { dirname, join } from "node:path";
import { Refusal } from "../../refusal.ts";
import { openSql, type Sql, sqliteCode } from "./database.ts";
import type { WorkerOptions } from "./protocol.ts";

const SCHEMA_VERSION = 1;

// Entries and fields are keyed by session first, so that reading a page or a projection is one range of one tree. A projection is kept as
// rows: a title that changes does not rewrite the agent beside it.
const SCHEMA = `
CREATE TABLE session (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, workspace TEXT NOT NULL, digest TEXT NOT NULL, created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL, head INTEGER NOT NULL, gate INTEGER NOT NULL, fence INTEGER NOT NULL, is_held INTEGER NOT NULL,
  due_at INTEGER, nonce TEXT, host TEXT, attempt INTEGER NOT NULL, waiting INTEGER NOT NULL, open INTEGER NOT NULL,
  n INTEGER NOT NULL, n_from INTEGER NOT NULL, n_count INTEGER NOT NULL
) STRICT;
CREATE INDEX session_due ON session (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX session_nonce ON session (nonce) WHERE nonce IS NOT NULL;
CREATE INDEX session_list ON session (workspace, created_at, id);
CREATE TABLE tombstone (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
CREATE TABLE entry (
  session INTEGER NOT NULL, position INTEGER NOT NULL, at INTEGER NOT NULL, fence INTEGER NOT NULL, type TEXT NOT NULL,
  bytes INTEGER NOT NULL, json TEXT NOT NULL, PRIMARY KEY (session, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE field (
  session INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE received (
  session INTEGER NOT NULL, id TEXT NOT NULL, position INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE retry (
  session INTEGER NOT NULL, digest TEXT NOT NULL, positions TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (session, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX retry_at ON retry (at);
CREATE TABLE document (
  workspace TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL, created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL, is_archived INTEGER NOT NULL, name TEXT, body TEXT NOT NULL, PRIMARY KEY (workspace, kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX document_list ON document (workspace, kind, created_at, id);
CREATE UNIQUE INDEX document_name ON document (workspace, kind, name) WHERE name IS NOT NULL;
CREATE TABLE document_kind (
  workspace TEXT NOT NULL, kind TEXT NOT NULL, newest INTEGER NOT NULL, PRIMARY KEY (workspace, kind)
) STRICT, WITHOUT ROWID;
CREATE TABLE ping (id INTEGER PRIMARY KEY, at INTEGER NOT NULL) STRICT;
`;

export interface OpenDatabase {
  readonly sql: Sql;
  /** Closes the database, then gives the lock back. */
  close(): void;
}

/** Takes the lock, opens the database and brings it into shape. B1–B3 */
export function openDatabase(options: WorkerOptions): OpenDatabase {
  const made = mkdirSync(options.dir, { recursive: true, mode: 0o700 });
  const lock = takeLock(join(options.dir, "lock.db"), options.lockWaitMs);
  let sql: Sql | undefined;
  const close = () => {
    sql?.close();
    lock.exec("ROLLBACK");
    lock.close();
  };
  try {
    sql = openSql(join(options.dir, "store.db"), 0);
    sql.one("PRAGMA journal_mode = WAL");
    sql.exec(`PRAGMA synchronous = ${options.synchronous}`);
    // The store's thread writes back by itself, so that an error of it is seen.
    sql.one("PRAGMA wal_autocheckpoint = 0");
    prepare(sql);
    if (options.pagesMax !== null) sql.one(`PRAGMA max_page_count = ${options.pagesMax}`);
    // SQLite syncs the folder of its files; the folders made for them are for us to sync.
    for (let dir = options.dir; made !== undefined && dir.length >= made.length; dir = dirname(dir)) syncFolder(dirname(dir));
  } catch (error) {
    close();
    throw error;
  }
  return { sql, close };
}

function takeLock(path: string, waitMs: number): Sql {
  const lock = openSql(path, waitMs);
  try {
    lock.exec("BEGIN EXCLUSIVE");
    return lock;
  } catch (error) {
    lock.close();
    if (!sqliteCode(error).startsWith("SQLITE_BUSY")) throw error;
    throw new Refusal("store_unfit", `Another process uses this store and did not end within ${waitMs / 1000} s: ${dirname(path)}`);
  }
}

function prepare(sql: Sql): void {
  const version = sql.one<{ user_version: number }>("PRAGMA user_version")?.user_version ?? 0;
  if (version > SCHEMA_VERSION)
    throw new Refusal("store_unfit", `This store was written by a newer version (schema ${version}, this one knows ${SCHEMA_VERSION}).`);
  sql.exec("BEGIN IMMEDIATE");
  if (version === 0) sql.exec(`${SCHEMA} PRAGMA user_version = ${SCHEMA_VERSION};`);
  sql.run("UPDATE session SET is_held = 0, nonce = NULL, due_at = ? WHERE is_held = 1", Date.now());
  sql.exec("COMMIT");
}

function syncFolder(path: string): void {
  const folder = openSync(path, "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
