// A worker that drove a session before reads only what came since, and never believes what it kept over the log.

import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { WarmViews } from "../../harnesses/warm-views.ts";
import type { Position } from "../../session-store/ids.ts";
import { position } from "../../session-store/ids.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { LOOK_UP } from "../harnesses/agents.ts";
import { startNode, type TestNode, until } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let node: TestNode;
beforeAll(async () => {
  node = await startNode();
});
afterEach(() => node.rest());
afterAll(() => node.close());

/** A store that counts the entries which are read through it. */
function counted(store: SessionStore) {
  const reads: { readonly after: Position; readonly count: number }[] = [];
  const wrapped = new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      if (name !== "getEvents") return value.bind(target);
      return async (...[id, slice]: Parameters<SessionStore["getEvents"]>) => {
        const read = await target.getEvents(id, slice);
        reads.push({ after: slice?.after ?? position(0), count: read.length });
        return read;
      };
    },
  });
  return { store: wrapped, reads };
}

const entriesOf = (reads: readonly { readonly count: number }[]) => reads.reduce((sum, { count }) => sum + count, 0);

test("the second turn of a session reads the end of its log alone", async () => {
  const { store, reads } = counted(node.store);
  const views = new WarmViews();
  const session = await node.open();
  await node.work({ store, views });
  for (let turn = 1; turn <= 5; turn += 1) {
    await session.say(`say: answer ${turn}`);
    await session.has("session.status_idle", turn);
    await until(() => views.size === 1, "the view is kept");
  }
  expect(await session.texts()).toEqual([1, 2, 3, 4, 5].map((turn) => `answer ${turn}`));
  // From the start once; then from the last entry that was known.
  expect(reads.filter(({ after }) => after === 0)).toHaveLength(1);
  expect(entriesOf(reads)).toBeLessThan((await session.log()).length + 5 * 5);
});

test("what another worker wrote in between is in the next turn's request", async () => {
  const first = counted(node.store);
  const [views, others] = [new WarmViews(), new WarmViews()];
  const session = await node.open();
  const worker = await node.work({ store: first.store, views });
  await session.say("say: from the first");
  await session.idle();
  await until(() => views.size === 1, "the view is kept");
  // Drained it would forget: here it takes nothing, as one that has no room.
  const kept = views.take(session.id);
  await worker.drain(5_000);
  if (!kept) throw new Error("nothing was kept");

  const second = await node.work({ views: others });
  await session.say("say: from the second");
  await session.has("session.status_idle", 2);
  await session.idle();
  await second.drain(5_000);

  views.keep(session.id, kept);
  const again = counted(node.store);
  await node.work({ store: again.store, views });
  node.model.clear();
  await session.say("say: from the first again");
  await session.has("session.status_idle", 3);
  expect(await session.texts()).toEqual(["from the first", "from the second", "from the first again"]);
  expect(again.reads.filter(({ after }) => after === 0)).toEqual([]);
  const asked = JSON.stringify(node.model.requests()[0]);
  for (const text of ["from the first", "from the second"]) expect(asked).toContain(text);
  expect(node.model.stats().rejected).toBe(0);
});

test("a session that waits for an answer goes on from what was kept", async () => {
  const { store, reads } = counted(node.store);
  const views = new WarmViews();
  const session = await node.open([LOOK_UP]);
  await node.work({ store, views });
  await session.say('call look_up: {"q":1}\nsay: done');
  await session.has("session.status_idle");
  await until(() => views.size === 1, "the view is kept");
  await session.answer(await session.callId(), "42");
  await session.has("session.status_idle", 2);
  expect(await session.texts()).toEqual(["done"]);
  expect(reads.filter(({ after }) => after === 0)).toHaveLength(1);
});

test("without room for it a session is read from its start at each turn", async () => {
  const { store, reads } = counted(node.store);
  const views = new WarmViews({ viewBytesMax: 10 });
  const session = await node.open();
  await node.work({ store, views });
  for (let turn = 1; turn <= 2; turn += 1) {
    await session.say(`say: answer ${turn}`);
    await session.has("session.status_idle", turn);
    await session.idle();
  }
  expect(await session.texts()).toEqual(["answer 1", "answer 2"]);
  expect(reads.filter(({ after }) => after === 0)).toHaveLength(2);
});

test("a session that was deleted is never taken again, whatever is kept of it", async () => {
  const { store, reads } = counted(node.store);
  const views = new WarmViews();
  const [gone, other] = [await node.open(), await node.open()];
  await node.work({ store, views });
  await gone.say("say: hello");
  await gone.idle();
  await until(() => views.size === 1, "the view is kept");
  await node.store.remove(gone.id);
  const before = reads.length;
  await expect(gone.say("say: anyone?")).rejects.toMatchObject({ code: "session_not_found" });
  await other.say("say: hello");
  await other.idle();
  expect(reads.slice(before).filter(({ after }) => after === 0)).toHaveLength(1);
  await expect(node.store.getEvents(gone.id)).rejects.toMatchObject({ code: "session_not_found" });
});
