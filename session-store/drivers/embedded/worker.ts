// The store's thread: everything that is queued goes into one transaction, is made durable by one sync, and is answered then.
//
//   G1  No answer leaves before the COMMIT that holds it. A refused call changes nothing: each write has its own savepoint.
//   G2  A full disk refuses (`store_busy`) what did not fit and acknowledges nothing of it.
//   G3  Any other failure is fatal: after a failed write or sync nobody can tell what the disk holds but a fresh start.

import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { Refusal } from "../../refusal.ts";
import { sqliteCode } from "./database.ts";
import * as documents from "./documents.ts";
import * as due from "./due.ts";
import * as log from "./log.ts";
import {
  type Answer,
  type CallName,
  type Calls,
  type FromWorker,
  READS,
  type Request,
  type Ring,
  type ToWorker,
  type WorkerOptions,
} from "./protocol.ts";
import { type OpenDatabase, openDatabase } from "./schema.ts";
import * as sessions from "./sessions.ts";
import type { Bench, Step } from "./steps.ts";

const BATCH_MAX = 512;
/** Batches of writes between two write-backs of the log to the database; about 1,000 pages. */
const WRITE_BACK_BATCHES = 128;
const WRITE_BACK_BYTES = 4 * 1024 * 1024;

const ping: Step<"ping"> = ({ sql }) => {
  sql.run("INSERT OR REPLACE INTO ping (id, at) VALUES (1, ?)", Date.now());
  return null;
};

const STEPS: { readonly [Name in CallName]: Step<Name> } = {
  create: sessions.create,
  receive: log.receive,
  emitEvents: log.emitEvents,
  finish: log.finish,
  release: log.release,
  getEvents: log.getEvents,
  getSession: sessions.getSession,
  listSessions: sessions.listSessions,
  recall: log.recall,
  forget: log.forget,
  remove: sessions.remove,
  take: due.take,
  renew: due.renew,
  wake: due.wake,
  put: documents.put,
  get: documents.get,
  list: documents.list,
  discard: documents.discard,
  ping,
};

if (!parentPort) throw new Error("This file is the store's thread; the driver starts it.");
const port = parentPort;
const tell = (message: FromWorker) => port.postMessage(message);

try {
  const options: WorkerOptions = workerData;
  serve(openDatabase(options), options.leaseMs);
  tell({ type: "ready" });
} catch (error) {
  tell({ type: "unfit", says: error instanceof Refusal ? error.message : `The store can't be opened: ${String(error)}` });
  port.close();
}

function serve(database: OpenDatabase, leaseMs: number): void {
  const { sql } = database;
  let batches = 0;
  let bytes = 0;

  port.on("message", (first: ToWorker) => {
    const batch: Request[] = [];
    let isClosing = false;
    for (
      let next: ToWorker | undefined = first;
      next && !isClosing;
      next = batch.length < BATCH_MAX ? receiveMessageOnPort(port)?.message : undefined
    ) {
      if (next.name === "close") isClosing = true;
      else batch.push(next);
    }
    try {
      if (batch.length > 0) tell(runBatch(batch));
      writeBack(batch);
      if (isClosing) {
        database.close();
        port.close();
      }
    } catch (error) {
      // G3: nothing is closed in order, since closing writes too.
      tell({ type: "fatal", says: `${sqliteCode(error)} ${String(error)}`.trim() });
      port.close();
    }
  });

  function runBatch(batch: readonly Request[]): FromWorker {
    const rings: Ring[] = [];
    let isDue = false;
    try {
      sql.run("BEGIN IMMEDIATE");
      const answers = batch.map((request) => {
        const rung: Ring[] = [];
        let isDueHere = false;
        const bench: Bench = {
          sql,
          leaseMs,
          ring: (id, head) => rung.push({ id, head }),
          due: () => {
            isDueHere = true;
          },
        };
        const answer = READS.has(request.name) ? runStep(bench, request) : inSavepoint(bench, request);
        if ("value" in answer) {
          rings.push(...rung);
          isDue ||= isDueHere;
        }
        return answer;
      });
      sql.run("COMMIT");
      return { type: "answers", answers, rings, isDue };
    } catch (error) {
      if (!isFull(error)) throw error;
      // G2: the whole batch is undone, so nothing of it may be answered as done.
      if (sql.isInTransaction()) sql.run("ROLLBACK");
      return { type: "answers", answers: batch.map(({ number }) => busy(number)), rings: [], isDue: false };
    }
  }

  function inSavepoint(bench: Bench, request: Request): Answer {
    sql.run("SAVEPOINT step");
    try {
      const answer = runStep(bench, request);
      if ("refused" in answer) sql.run("ROLLBACK TO step");
      sql.run("RELEASE step");
      return answer;
    } catch (error) {
      // SQLite may have undone the whole transaction by itself; then the batch is lost with it.
      if (!isFull(error) || !sql.isInTransaction()) throw error;
      sql.run("ROLLBACK TO step");
      sql.run("RELEASE step");
      return busy(request.number);
    }
  }

  /** Moves what is durable in the write-ahead log to the database. A full disk puts it off; the log holds everything meanwhile. */
  function writeBack(batch: readonly Request[]): void {
    const written = batch.filter(({ name }) => !READS.has(name));
    if (written.length === 0) return;
    batches += 1;
    for (const request of written) bytes += sizeOf(request);
    if (batches < WRITE_BACK_BATCHES && bytes < WRITE_BACK_BYTES) return;
    batches = 0;
    bytes = 0;
    try {
      sql.one("PRAGMA wal_checkpoint(PASSIVE)");
    } catch (error) {
      if (!isFull(error)) throw error;
    }
  }
}

function runStep<Name extends CallName>(
  bench: Bench,
  request: { readonly number: number; readonly name: Name; readonly ask: Calls[Name]["ask"] },
): Answer {
  try {
    return { number: request.number, value: STEPS[request.name](bench, request.ask) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { number: request.number, refused: error.code, says: error.message, detail: error.detail };
  }
}

function busy(number: number): Answer {
  return { number, refused: "store_busy", says: "The store's disk is full.", detail: "SQLITE_FULL" };
}

function isFull(error: unknown): boolean {
  return sqliteCode(error).startsWith("SQLITE_FULL");
}

function sizeOf(request: Request): number {
  switch (request.name) {
    case "create":
    case "receive":
    case "emitEvents":
    case "finish":
    case "release":
      return request.ask.append.entries.reduce((sum, { json }) => sum + json.length, 0);
    case "put":
      return request.ask.writes.reduce((sum, { body }) => sum + body.length, 0);
    default:
      return 0;
  }
}
