// What the hand host's ledger keeps over a restart (hands/ledger.ts).

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { Outcome } from "../../hands/hand.ts";
import { type HandRow, Ledger } from "../../hands/ledger.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";

const session = mintSession();
const holder = { session, fence: 1 as Fence };
const row: HandRow = {
  hand: "hand_1",
  session,
  driver: "virtual",
  folder: "hand_1",
  created: 1,
  holder: session,
  fence: holder.fence,
  state: "live",
  server: null,
};
const done: Outcome = { type: "done", content: [{ type: "text", text: "hi" }], isError: false };

let folder: string;
const open = () =>
  Ledger.open(folder, (error) => {
    throw error;
  });

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "ledger-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

it("keeps its id, and its boot number grows with each opening", async () => {
  const first = open();
  await first.close();
  const second = open();
  expect([second.hostId, second.boot]).toEqual([first.hostId, first.boot + 1]);
  await second.close();
});

it("is one host's at a time", async () => {
  const first = open();
  expect(open).toThrow(/locked|busy/i);
  await first.close();
  await open().close();
});

it("remembers hands, holders and highest fences over a restart", async () => {
  const before = open();
  await before.addHand(row);
  await before.setHolder("hand_1", { session, fence: 7 as Fence });
  await before.close();
  const after = open();
  expect(after.hands()).toEqual([{ ...row, fence: 7 }]);
  expect(after.handOf(session)?.hand).toBe("hand_1");
  await after.markReleasing("hand_1");
  expect(after.handOf(session)).toBeUndefined();
  await after.forget("hand_1");
  expect(after.hands()).toEqual([]);
  await after.close();
});

it("tells a call of this boot from one of an earlier boot, and a result from a dropped one", async () => {
  const before = open();
  await before.started("hand_1", holder, "a");
  await before.started("hand_1", holder, "b");
  await before.ended("hand_1", holder, "b", done);
  expect(before.call("hand_1", "a")).toEqual({ state: "running", isThisBoot: true });
  expect(before.call("hand_1", "b")).toEqual({ state: "over", outcome: done });
  expect(before.call("hand_2", "a")).toBeUndefined();
  await before.settled("hand_1", ["a", "b", "c"]);
  await before.close();
  const after = open();
  expect(after.call("hand_1", "a")).toEqual({ state: "running", isThisBoot: false });
  expect(after.call("hand_1", "b")).toEqual({ state: "settled" });
  expect(after.call("hand_1", "c")).toBeUndefined();
  await after.close();
});

it("commits writes that come together in the order in which they came", async () => {
  const ledger = open();
  await Promise.all([ledger.started("hand_1", holder, "a"), ledger.ended("hand_1", holder, "a", done), ledger.settled("hand_1", ["a"])]);
  expect(ledger.call("hand_1", "a")).toEqual({ state: "settled" });
  await ledger.close();
});
