// What a brain writes: S1 to S5, and how a turn ends.

import { expect, test } from "vitest";
import type { Fence } from "../../../session-store/ids.ts";
import { mintEvent, mintSession, position } from "../../../session-store/ids.ts";
import {
  applies,
  calls,
  codeOf,
  entriesOf,
  idle,
  message,
  type Open,
  openHeld,
  openSession,
  positionsOf,
  rescheduled,
  running,
  says,
  storedOf,
  take,
  takeOrNull,
  wholeOf,
} from "./kit.ts";

export function describeLog(open: Open): void {
  test("positions are dense over every kind of append, and a log reads back as it was answered", async () => {
    const { store } = await open();
    const { id, lease, said } = await openHeld(store);
    const first = await store.emitEvents(lease, 1, [running(), applies(said)]);
    const outside = storedOf(await store.receive(id, [message("more"), message("and more")]));
    const second = await store.emitEvents(lease, 2, [says("hi")]);
    const last = await store.release(lease, 3, [rescheduled()], 0);

    const all = await store.getEvents(id);
    expect(positionsOf(all)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(all.slice(2)).toEqual([...first, ...outside, ...second, ...last]);
    expect(all.map(({ fence }) => fence)).toEqual([0, 0, lease.fence, lease.fence, 0, 0, lease.fence, lease.fence]);
  });

  test("times are stamped by the store and never go back along a log", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    for (let n = 1; n <= 20; n++) await store.emitEvents(lease, n, [says(`${n}`)]);
    const times = (await store.getEvents(id)).map(({ at }) => at);
    expect(times).toEqual([...times].sort((one, other) => one - other));
    expect(Math.abs(Date.now() - (times.at(-1) ?? 0))).toBeLessThan(60_000);
  });

  test("a batch gets one time and consecutive positions", async () => {
    const { store } = await open();
    const { lease } = await openHeld(store);
    const entries = Array.from({ length: 50 }, (_, index) => says(`${index}`));
    const stored = await store.emitEvents(lease, 1, entries);
    expect(stored).toEqual(entries.map((entry, index) => ({ position: 3 + index, at: stored[0]?.at, fence: lease.fence, entry })));
  });

  test("concurrent appends from outside and within lose nothing and leave no gap", async () => {
    const { store, peer = store } = await open();
    const { id, lease } = await openHeld(store);
    const outside = Array.from({ length: 40 }, (_, index) => (index % 2 ? store : peer).receive(id, [message(`a${index}`), message(`b${index}`)]));
    for (let n = 1; n <= 20; n++) await store.emitEvents(lease, n, [says(`${n}`)]);
    const answered = (await Promise.all(outside)).map(storedOf);
    const all = await store.getEvents(id);
    expect(positionsOf(all)).toEqual(Array.from({ length: 102 }, (_, index) => index + 1));
    for (const pair of answered) expect(all.slice((pair[0]?.position ?? 0) - 1, pair[1]?.position)).toEqual(pair);
  });

  test("an old fence is refused for every write, and changes nothing", async () => {
    const { store } = await open();
    const { id, lease: old } = await openHeld(store);
    await store.release(old, 1, [], 0);
    const lease = await take(store);
    expect(lease.fence).toBe(old.fence + 1);

    const before = await wholeOf(store, id);
    expect(await codeOf(store.emitEvents(old, 2, [says("late")]))).toBe("fenced");
    expect(await codeOf(store.emitEvents(old, 1, [says("late")]))).toBe("fenced");
    expect(await codeOf(store.finish(old, 2, lease.head, [idle()]))).toBe("fenced");
    expect(await codeOf(store.release(old, 2, [], 0))).toBe("fenced");
    expect(await store.renew(old)).toBe("lost");
    expect(await wholeOf(store, id)).toEqual(before);
  });

  test("a fence that was never granted is refused", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    const before = await wholeOf(store, id);
    expect(await codeOf(store.emitEvents({ ...lease, fence: (lease.fence + 1) as Fence }, 1, [says("early")]))).toBe("fenced");
    expect(await wholeOf(store, id)).toEqual(before);
  });

  test("after finish and after release the newest fence is refused too: nobody holds it", async () => {
    const { store } = await open();
    const { id, lease, said } = await openHeld(store);
    storedOf(await store.finish(lease, 1, position(2), [applies(said), idle()]));
    const finished = await wholeOf(store, id);
    expect(await codeOf(store.emitEvents(lease, 2, [says("late")]))).toBe("fenced");
    expect(await codeOf(store.finish(lease, 2, position(4), [idle()]))).toBe("fenced");
    expect(await store.renew(lease)).toBe("lost");
    expect(await wholeOf(store, id)).toEqual(finished);

    await store.receive(id, [message()]);
    const next = await take(store);
    await store.release(next, 1, [], 60_000);
    expect(await codeOf(store.emitEvents(next, 2, [says("late")]))).toBe("fenced");
  });

  test("a write to a session that is not there is refused", async () => {
    const { store } = await open();
    const { lease } = await openHeld(store);
    const stray = { ...lease, id: mintSession() };
    expect(await codeOf(store.emitEvents(stray, 1, [says("hi")]))).toBe("session_not_found");
    expect(await codeOf(store.receive(stray.id, [message()]))).toBe("session_not_found");
    expect(await codeOf(store.getEvents(stray.id))).toBe("session_not_found");
    expect(await codeOf(store.getSession(stray.id))).toBe("session_not_found");
  });

  test("a resend gets the positions and the time of the append that it repeats, whatever came between", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    const entries = [running(), says("hi")];
    const stored = await store.emitEvents(lease, 1, entries);
    await store.receive(id, [message("between")]);
    expect(await store.emitEvents(lease, 1, entries)).toEqual(stored);
    expect(await store.getEvents(id)).toHaveLength(5);
  });

  test("finish and release answer a resend too, though the lease is given back by then", async () => {
    const { store } = await open();
    const { id, lease, said } = await openHeld(store);
    const ending = [applies(said), idle()];
    const finished = storedOf(await store.finish(lease, 1, position(2), ending));
    expect(positionsOf(finished)).toEqual([3, 4]);
    expect(await store.finish(lease, 1, position(2), ending)).toEqual(finished);

    await store.receive(id, [message()]);
    expect(await store.finish(lease, 1, position(2), ending)).toEqual(finished);
    const next = await take(store);
    const entries = [rescheduled()];
    const released = await store.release(next, 1, entries, 60_000);
    const before = await wholeOf(store, id);
    expect(await store.release(next, 1, entries, 60_000)).toEqual(released);
    expect(await wholeOf(store, id)).toEqual(before);
  });

  test("an append that skips a number or goes back is out of step and changes nothing", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    await store.emitEvents(lease, 1, [says("1")]);
    await store.emitEvents(lease, 2, [says("2")]);
    const before = await wholeOf(store, id);
    expect(await codeOf(store.emitEvents(lease, 1, [says("1")]))).toBe("out_of_step");
    expect(await codeOf(store.emitEvents(lease, 4, [says("4")]))).toBe("out_of_step");
    expect(await codeOf(store.finish(lease, 4, position(4), [idle()]))).toBe("out_of_step");
    expect(await codeOf(store.release(lease, 4, [], 0))).toBe("out_of_step");
    expect(await wholeOf(store, id)).toEqual(before);
  });

  test("the count of appends starts anew with every lease, at one", async () => {
    const { store } = await open();
    const { lease } = await openHeld(store);
    expect(await codeOf(store.emitEvents(lease, 0, [says("0")]))).toBe("out_of_step");
    await store.emitEvents(lease, 1, [says("1")]);
    await store.release(lease, 2, [], 0);
    const next = await take(store);
    expect(await codeOf(store.emitEvents(next, 3, [says("3")]))).toBe("out_of_step");
    expect(positionsOf(await store.emitEvents(next, 1, [says("1")]))).toEqual([4]);
  });

  test("an append of nothing counts, and answers with nothing", async () => {
    const { store } = await open();
    const { lease } = await openHeld(store);
    expect(await store.emitEvents(lease, 1, [])).toEqual([]);
    expect(positionsOf(await store.emitEvents(lease, 2, [says("2")]))).toEqual([3]);
  });

  test("finish answers more and appends nothing when the head moved since it looked", async () => {
    const { store } = await open();
    const { id, lease, said } = await openHeld(store);
    await store.receive(id, [message("one more thing")]);
    const before = await wholeOf(store, id);
    const ending = [applies(said), idle()];
    expect(await store.finish(lease, 1, position(2), ending)).toBe("more");
    expect(await wholeOf(store, id)).toEqual(before);
    // The lease is still held and the number was not used up.
    expect(positionsOf(await store.emitEvents(lease, 1, [applies(said)]))).toEqual([4]);
    expect(await store.renew(lease)).toBe(4);
  });

  test("finish leaves an idle session absent from the due-set, with its entries at the end", async () => {
    const { store } = await open();
    const { id, lease, said } = await openHeld(store);
    const ending = [applies(said), idle()];
    const stored = storedOf(await store.finish(lease, 1, position(2), ending));
    expect(entriesOf(stored)).toEqual(ending);
    expect(await store.getSession(id)).toMatchObject({ dueAt: null, isHeld: false, head: 4, fence: lease.fence });
    expect(await takeOrNull(store)).toBeNull();
  });

  test("finish with something that waits and no open call makes the session due at once", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    storedOf(await store.finish(lease, 1, position(2), [idle()]));
    const record = await store.getSession(id);
    expect(record).toMatchObject({ isHeld: false });
    expect(record.dueAt).toBeLessThanOrEqual(Date.now() + 1_000);
    expect((await take(store)).fence).toBe(lease.fence + 1);
  });

  test("finish with something that waits behind an open call leaves the session idle", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    storedOf(await store.finish(lease, 1, position(2), [calls(mintEvent()), idle()]));
    expect(await store.getSession(id)).toMatchObject({ dueAt: null, isHeld: false });
    expect(await takeOrNull(store)).toBeNull();
  });

  test("finish with a wait makes the session due after it, whatever waits", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    const [stored] = storedOf(await store.finish(lease, 1, position(2), [rescheduled()], 60_000));
    const { dueAt, isHeld } = await store.getSession(id);
    expect(isHeld).toBe(false);
    expect(Math.abs((dueAt ?? 0) - (stored?.at ?? 0) - 60_000)).toBeLessThanOrEqual(1_000);
    expect(await takeOrNull(store)).toBeNull();
  });

  test("release gives the lease back for a time to come, whether or not the head moved", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    await store.receive(id, [message("unseen")]);
    const stored = await store.release(lease, 1, [rescheduled()], 60_000);
    expect(positionsOf(stored)).toEqual([4]);
    const { dueAt, isHeld } = await store.getSession(id);
    expect(isHeld).toBe(false);
    expect(Math.abs((dueAt ?? 0) - (stored[0]?.at ?? 0) - 60_000)).toBeLessThanOrEqual(1_000);
    expect(await takeOrNull(store)).toBeNull();
  });

  test("what was acknowledged is there after the store was closed and opened again", async () => {
    const { store, reopen } = await open();
    const { id, lease } = await openHeld(store);
    await store.emitEvents(lease, 1, [running(), says("hi")]);
    await openSession(store, [message()]);
    const events = await store.getEvents(id);
    const { projection } = await store.getSession(id);
    const again = reopen ? await reopen() : store;
    expect(await again.getEvents(id)).toEqual(events);
    expect(await again.getSession(id)).toMatchObject({ projection, head: 4, fence: lease.fence });
  });
}
