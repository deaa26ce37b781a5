// The due-set: D1 to D8.

import { expect, test, vi } from "vitest";
import { WAIT_MAX_MS } from "../../../session-store/due.ts";
import type { BrainEntry } from "../../../session-store/entry.ts";
import { mintEvent, position } from "../../../session-store/ids.ts";
import {
  applies,
  asks,
  codeOf,
  idle,
  message,
  nonce,
  type Open,
  openHeld,
  openIdle,
  openSession,
  reply,
  rescheduled,
  result,
  retitled,
  running,
  says,
  storedOf,
  take,
  takeOrNull,
  until,
} from "./kit.ts";

export function describeDueSet(open: Open): void {
  test("an empty due-set gives nothing", async () => {
    const { store } = await open();
    await openSession(store);
    expect(await takeOrNull(store)).toBeNull();
  });

  test("a take grants the next fence and the head, and holds the session for the lease", async () => {
    const { store } = await open({ leaseMs: 20_000 });
    const { id } = await openSession(store, [message(), message()]);
    const from = Date.now();
    expect(await take(store)).toEqual({ id, fence: 1, head: 3, attempt: 1, leaseMs: 20_000 });
    const record = await store.getSession(id);
    expect(record).toMatchObject({ isHeld: true, fence: 1 });
    expect(record.dueAt).toBeGreaterThanOrEqual(from + 20_000 - 1_000);
    expect(record.dueAt).toBeLessThanOrEqual(Date.now() + 20_000 + 1_000);
    expect(await takeOrNull(store)).toBeNull();
  });

  test("the session that is due the longest is taken first", async () => {
    const { store } = await open();
    const ids: string[] = [];
    for (let index = 0; index < 5; index++) {
      const { id, createdAt } = await openSession(store, [message()]);
      ids.push(id);
      await until(() => Date.now() > createdAt + 1);
    }
    const taken: string[] = [];
    for (let index = 0; index < 5; index++) taken.push((await take(store)).id);
    expect(taken).toEqual(ids);
  });

  test("sessions that are due are given out once each, whoever asks at once", async () => {
    const { store, peer = store } = await open();
    const ids = await Promise.all(Array.from({ length: 12 }, async () => (await openSession(store, [message()])).id));
    const taken = await Promise.all(Array.from({ length: 20 }, (_, index) => takeOrNull(index % 2 ? store : peer)));
    const found = taken.flatMap((lease) => (lease ? [lease.id] : []));
    expect(found.toSorted()).toEqual(ids.toSorted());
  });

  test("the same nonce gets the same lease, and costs no fence", async () => {
    const { store, peer = store } = await open();
    await openSession(store, [message()]);
    await openSession(store, [message()]);
    const asked = nonce();
    const lease = await store.take("http://127.0.0.1:1", asked);
    expect(lease).not.toBeNull();
    expect(await store.take("http://127.0.0.1:1", asked)).toEqual(lease);
    expect(await peer.take("http://127.0.0.1:1", asked)).toEqual(lease);
    expect((await take(store)).id).not.toBe(lease?.id);
    expect(await takeOrNull(store)).toBeNull();
  });

  test("the nonce of a lease that was given back gets no lease of it again", async () => {
    const { store } = await open();
    await openSession(store, [message()]);
    const asked = nonce();
    const lease = await store.take("http://127.0.0.1:1", asked);
    if (!lease) throw new Error("nothing is due");
    await store.release(lease, 1, [], 60_000);
    expect(await store.take("http://127.0.0.1:1", asked)).toBeNull();
  });

  test("a lease that ran out is taken by another one with the next fence, and its old holder is refused", async () => {
    const { store } = await open({ leaseMs: 100 });
    const { id, lease: old } = await openHeld(store);
    const lease = await until(() => takeOrNull(store));
    expect(lease).toEqual({ id, fence: old.fence + 1, head: 2, attempt: 2, leaseMs: 100 });
    expect(await codeOf(store.emitEvents(old, 1, [says("late")]))).toBe("fenced");
    expect(await store.renew(old)).toBe("lost");
  });

  test("a lease that is renewed is not taken, and renewing tells the head", async () => {
    const { store } = await open({ leaseMs: 400 });
    const { id, lease } = await openHeld(store);
    const end = Date.now() + 1_200;
    let head = 2;
    while (Date.now() < end) {
      if (head === 2) {
        await store.receive(id, [message("more")]);
        head = 3;
      }
      expect(await store.renew(lease)).toBe(head);
      expect(await takeOrNull(store)).toBeNull();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  });

  test("a lease that ran out still writes until another one takes the session: only the fence is safety", async () => {
    const { store } = await open({ leaseMs: 50 });
    const { id, lease } = await openHeld(store);
    await until(async () => Date.now() > ((await store.getSession(id)).dueAt ?? 0));
    expect(await store.emitEvents(lease, 1, [says("slow")])).toHaveLength(1);
    expect(await store.renew(lease)).toBe(3);
  });

  test("what is scored further ahead than the longest wait is due, so that a clock set back hides nothing", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    await store.release(lease, 1, [], WAIT_MAX_MS + 60_000);
    expect(await take(store)).toMatchObject({ id });
  });

  test("what is scored within the longest wait is not due before its time, and then it is", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    const from = Date.now();
    await store.release(lease, 1, [], 300);
    const next = await until(() => takeOrNull(store));
    expect(next.id).toBe(id);
    expect(Date.now()).toBeGreaterThanOrEqual(from + 300 - 5);
  });

  test("a wait is counted by the store's clock, whatever the caller's clock says", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 1_800_000 });
    const [stored] = await store.release(lease, 1, [rescheduled()], 60_000).finally(() => vi.useRealTimers());
    const { dueAt } = await store.getSession(id);
    expect(Math.abs((stored?.at ?? 0) - Date.now())).toBeLessThan(30_000);
    expect(Math.abs((dueAt ?? 0) - (stored?.at ?? 0) - 60_000)).toBeLessThanOrEqual(1_000);
  });

  test("attempts count takes until there is progress: a reply, a result, or something received", async () => {
    const { store } = await open();
    const { id, lease: first } = await openHeld(store);
    const call = mintEvent();
    let lease = first;
    let appends = 0;
    const emits = async (...entries: readonly BrainEntry[]) => {
      appends += 1;
      await store.emitEvents(lease, appends, entries);
    };
    const again = async () => {
      await store.release(lease, appends + 1, [], 0);
      appends = 0;
      lease = await take(store);
      return lease.attempt;
    };
    expect(lease.attempt).toBe(1);
    expect(await again()).toBe(2);
    await emits(running(), asks(call), says("thinking"));
    expect(await again()).toBe(3);
    await emits(reply());
    expect(await again()).toBe(1);
    expect(await again()).toBe(2);
    await emits(result(call));
    expect(await again()).toBe(1);
    expect(await again()).toBe(2);
    await store.receive(id, [retitled("no progress")]);
    expect(await again()).toBe(3);
    await store.receive(id, [message("progress")]);
    expect(await again()).toBe(1);
  });

  test("what recovery itself appends is no progress", async () => {
    const { store } = await open();
    const { lease } = await openHeld(store);
    const call = mintEvent();
    await store.emitEvents(lease, 1, [asks(call)], { isRecovery: true });
    await store.emitEvents(lease, 2, [result(call), reply()], { isRecovery: true });
    await store.release(lease, 3, [rescheduled()], 0);
    expect((await take(store)).attempt).toBe(2);
  });

  test("a finished turn that is woken again starts at the first attempt", async () => {
    const { store } = await open();
    const { id, lease, said } = await openHeld(store);
    await store.release(lease, 1, [], 0);
    const second = await take(store);
    expect(second.attempt).toBe(2);
    storedOf(await store.finish(second, 1, position(2), [applies(said), idle()]));
    await store.receive(id, [message()]);
    expect((await take(store)).attempt).toBe(1);
  });

  test("a fence is granted once: over many takes it only grows by one", async () => {
    const { store } = await open();
    const { id, lease: first } = await openHeld(store);
    const fences: number[] = [first.fence];
    let lease = first;
    for (let index = 0; index < 10; index++) {
      await store.release(lease, 1, [], 0);
      lease = await take(store);
      fences.push(lease.fence);
    }
    expect(fences).toEqual(Array.from({ length: 11 }, (_, index) => index + 1));
    expect((await store.getSession(id)).fence).toBe(11);
  });

  test("who listens for due sessions hears of one that was made, told something, released or woken", async () => {
    const { store, peer = store } = await open();
    let heard = 0;
    const hush = await peer.onDue(() => heard++);
    const hears = async (act: () => Promise<unknown>) => {
      const before = heard;
      await act();
      await until(() => heard > before);
    };
    let id = "" as Awaited<ReturnType<typeof openIdle>>["id"];
    await hears(async () => {
      id = (await openIdle(store)).id;
    });
    await hears(() => store.receive(id, [message()]));
    const lease = await take(store);
    await hears(() => store.release(lease, 1, [], 0));
    const next = await take(store);
    await hears(() => store.finish(next, 1, next.head, [idle()]));
    hush();
    const before = heard;
    await openSession(store, [message()]);
    await store.ping();
    expect(heard).toBe(before);
  });
}
