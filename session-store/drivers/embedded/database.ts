// One SQLite connection: statements prepared once, rows read by their columns.

import Database from "libsql";

type Value = string | number | null;

export interface Sql {
  /** Runs statements without parameters or rows. */
  exec(text: string): void;
  run(text: string, ...values: Value[]): void;
  /** The first row; its shape is what the statement selects. */
  one<Row>(text: string, ...values: Value[]): Row | undefined;
  all<Row>(text: string, ...values: Value[]): Row[];
  isInTransaction(): boolean;
  close(): void;
}

/** Opens a database file; a lock that another one holds is waited for as long as `busyMs`. */
export function openSql(path: string, busyMs: number): Sql {
  const database = new Database(path, { timeout: busyMs });
  const prepared = new Map<string, Database.Statement>();
  // Every text is a constant of this folder, so the map is as bounded as the code.
  const statement = (text: string) => {
    const known = prepared.get(text);
    if (known) return known;
    const fresh = database.prepare(text);
    prepared.set(text, fresh);
    return fresh;
  };
  return {
    exec: (text) => void database.exec(text),
    run: (text, ...values) => void statement(text).run(...values),
    one: <Row>(text: string, ...values: Value[]) => statement(text).get(...values) as Row | undefined,
    all: <Row>(text: string, ...values: Value[]) => statement(text).all(...values) as Row[],
    isInTransaction: () => database.inTransaction,
    close: () => {
      prepared.clear();
      database.close();
    },
  };
}

/** SQLite's name for what went wrong (SQLITE_FULL …); "" when it is no error of SQLite. */
export function sqliteCode(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}
