// A view that was kept from an earlier lease: it is proved against the log, and only what came since is read (J3, J4).

import { expect, test } from "vitest";
import { Journal } from "../../harnesses/journal.ts";
import { LogView } from "../../harnesses/view.ts";
import type { Tenure } from "../../harnesses/writer.ts";
import type { Lease } from "../../session-store/due.ts";
import type { Stored } from "../../session-store/entry.ts";
import type { Fence, SessionId } from "../../session-store/ids.ts";
import { position } from "../../session-store/ids.ts";
import type { SessionStore, Slice } from "../../session-store/store.ts";
import { TestLog } from "./logs.ts";

const tenure: Tenure = { signal: new AbortController().signal, isAlive: () => true, lose: () => {} };

/** A store that shows one log, and remembers from where it was read. */
function storeOf(log: readonly Stored[], pageMax = 500) {
  const asked: number[] = [];
  const store = {
    listen: async () => () => {},
    getEvents: async (_: SessionId, { after = position(0) }: Slice = {}) => {
      asked.push(after);
      return log.slice(after, after + pageMax);
    },
  } as unknown as SessionStore;
  return { store, asked };
}

async function open(store: SessionStore, head: number, kept: LogView) {
  const lease: Lease = { id: "sesn_1" as SessionId, fence: 2 as Fence, head: position(head), attempt: 1, leaseMs: 1_000 };
  const journal = new Journal(store, lease, tenure, { onNews: () => {}, kept });
  await journal.open();
  return journal;
}

function viewOf(entries: readonly Stored[]): LogView {
  const view = new LogView();
  view.fold(entries);
  return view;
}

test("only what came since is read, with the last entry that is known as its proof", async () => {
  const log = new TestLog().message("one").running().idle();
  const kept = viewOf(log.stored);
  log.message("two", false);
  const { store, asked } = storeOf(log.stored);
  const journal = await open(store, log.stored.length, kept);
  expect(asked).toEqual([4]);
  expect(journal.view).toBe(kept);
  expect(journal.view.entries).toEqual(log.stored);
});

test("a page that ends behind the proof is followed by the next one", async () => {
  const log = new TestLog().message("one").running().idle();
  const kept = viewOf(log.stored);
  log.message("two", false);
  const { store } = storeOf(log.stored, 1);
  expect((await open(store, log.stored.length, kept)).view.entries).toEqual(log.stored);
});

test("another worker's entries are read like a client's", async () => {
  const log = new TestLog().message("one").running().idle();
  const kept = viewOf(log.stored);
  log.fence = 2;
  log.message("two").running();
  log.reply([]);
  log.idle().message("three", false);
  const { store, asked } = storeOf(log.stored);
  expect((await open(store, log.stored.length, kept)).view.entries).toEqual(log.stored);
  expect(asked).toEqual([4]);
});

test.each([
  ["is shorter than what is known", new TestLog().message("one")],
  ["has another entry there", new TestLog().message("one").running().running().message("two")],
  ["has its entry there at another time", retimed(new TestLog().message("one").running().idle())],
])("a log that %s is read anew", async (_, other) => {
  const kept = viewOf(new TestLog().message("one").running().idle().stored);
  const { store, asked } = storeOf(other.stored);
  const journal = await open(store, other.stored.length, kept);
  expect(asked).toEqual([4, 0]);
  expect(journal.view).not.toBe(kept);
  expect(journal.view.entries).toEqual(other.stored);
});

test("what is read after the end of a lease leaves its view alone", async () => {
  const log = new TestLog().message("one");
  const kept = viewOf(log.stored);
  const { store } = storeOf(log.stored);
  const journal = await open(store, log.stored.length, kept);
  log.message("two");
  const late = journal.read();
  journal.close();
  await late;
  expect(kept.head).toBe(3);
});

function retimed(log: TestLog): TestLog {
  for (const [index, stored] of log.stored.entries()) log.stored[index] = { ...stored, at: stored.at + 1 };
  return log;
}
