// Sessions as a whole: making, listing and removing them.

import { expect, test } from "vitest";
import type { SessionId } from "../../../session-store/ids.ts";
import { mintSession, position } from "../../../session-store/ids.ts";
import type { SessionRecord } from "../../../session-store/session.ts";
import { statusOf } from "../../../session-store/session.ts";
import type { Bell, SessionQuery } from "../../../session-store/store.ts";
import {
  agent,
  archived,
  codeOf,
  created,
  idle,
  message,
  type Open,
  openIdle,
  openSession,
  rescheduled,
  retitled,
  says,
  take,
  takeOrNull,
  until,
  wholeOf,
} from "./kit.ts";

const everything: SessionQuery = { order: "asc", limit: 100 };

export function describeSessions(open: Open): void {
  test("a new session is its first entry and its projection, idle when nothing was said", async () => {
    const { store } = await open();
    const id = mintSession();
    const first = created({ title: "Hello", metadata: { a: "1" } });
    const record = await store.create({ id, created: first, entries: [] });
    const { type: _, workspace, ...projection } = first;
    expect(record).toEqual({
      id,
      workspace,
      createdAt: record.createdAt,
      updatedAt: record.createdAt,
      head: 1,
      gate: 0,
      fence: 0,
      isHeld: false,
      dueAt: null,
      projection,
    });
    expect(await store.getSession(id)).toEqual(record);
    expect(await store.getEvents(id)).toEqual([{ position: 1, at: record.createdAt, fence: 0, entry: first }]);
    expect(await takeOrNull(store)).toBeNull();
  });

  test("a session that is made with something said is due at once", async () => {
    const { store } = await open();
    const said = message();
    const record = await openSession(store, [said]);
    expect(record).toMatchObject({ head: 2, isHeld: false, projection: { "pending:2": { id: said.event.id, type: "user.message" } } });
    expect(statusOf(record)).toBe("running");
    expect(await take(store)).toMatchObject({ id: record.id, head: 2 });
  });

  test("initial entries that do not wake leave the new session idle", async () => {
    const { store } = await open();
    expect(await openSession(store, [retitled("Set up")])).toMatchObject({ head: 2, gate: 2, dueAt: null });
  });

  test("making a known session answers with what is stored, however far it came", async () => {
    const { store, peer = store } = await open();
    const id = mintSession();
    const session = { id, created: created(), entries: [message()], digest: "body-1" };
    await store.create(session);
    const lease = await take(store);
    await store.emitEvents(lease, 1, [says("hi")]);
    const before = await wholeOf(store, id);
    expect(await peer.create(session)).toEqual(await store.getSession(id));
    expect(await wholeOf(store, id)).toEqual(before);
  });

  test("a known session with another body behind its key is refused and stays as it is", async () => {
    const { store } = await open();
    const id = mintSession();
    await store.create({ id, created: created(), entries: [], digest: "body-1" });
    const before = await wholeOf(store, id);
    const again = { id, created: created({ title: "Other" }), entries: [message()] };
    expect(await codeOf(store.create({ ...again, digest: "body-2" }))).toBe("idempotency_conflict");
    expect(await codeOf(store.create(again))).toBe("idempotency_conflict");
    expect(await wholeOf(store, id)).toEqual(before);
  });

  test("of many makings of one session at once one is stored", async () => {
    const { store, peer = store } = await open();
    const session = { id: mintSession(), created: created(), entries: [message()], digest: "d" };
    const records = await Promise.all(Array.from({ length: 6 }, (_, index) => (index % 2 ? store : peer).create(session)));
    for (const record of records) expect(record).toEqual(records[0]);
    expect(await store.getEvents(session.id)).toHaveLength(2);
  });

  test("a removed session is gone everywhere, and its bell says to look", async () => {
    const { store, peer = store } = await open();
    const { id, lease } = await openIdle(store);
    await store.receive(id, [retitled("x")], { retryDigest: "retry" });
    const bells: Bell[] = [];
    const hush = await peer.listen(id, (bell) => bells.push(bell));
    await store.remove(id);
    await until(() => bells.some(({ type }) => type === "look"));
    hush();

    for (const one of [store, peer]) {
      expect(await codeOf(one.getSession(id))).toBe("session_not_found");
      expect(await codeOf(one.getEvents(id))).toBe("session_not_found");
      expect(await codeOf(one.receive(id, [message()]))).toBe("session_not_found");
      expect(await codeOf(one.emitEvents(lease, 2, [says("late")]))).toBe("session_not_found");
      expect(await codeOf(one.finish(lease, 2, position(4), []))).toBe("session_not_found");
      expect(await codeOf(one.release(lease, 2, [], 0))).toBe("session_not_found");
      expect(await codeOf(one.remove(id))).toBe("session_not_found");
      expect(await codeOf(one.wake(id))).toBe("session_not_found");
      expect(await one.renew(lease)).toBe("lost");
      expect(await one.listSessions("default", everything)).toEqual([]);
    }
    expect(await takeOrNull(store)).toBeNull();
  });

  test("a session that is due, held or rescheduled is busy and is not removed", async () => {
    const { store } = await open();
    const { id } = await openSession(store, [message()]);
    expect(await codeOf(store.remove(id))).toBe("session_busy");
    const lease = await take(store);
    expect(await codeOf(store.remove(id))).toBe("session_busy");
    await store.release(lease, 1, [rescheduled()], 60_000);
    expect(await codeOf(store.remove(id))).toBe("session_busy");
    expect(await store.getEvents(id)).toHaveLength(3);
  });

  test("a removed session is never made again", async () => {
    const { store } = await open();
    const session = { id: mintSession(), created: created(), entries: [], digest: "d" };
    await store.create(session);
    await store.remove(session.id);
    expect(["session_exists", "session_not_found"]).toContain(await codeOf(store.create(session)));
    expect(await codeOf(store.getSession(session.id))).toBe("session_not_found");
  });

  test("sessions are listed by the time they were made and their id, both ways and page by page", async () => {
    const { store } = await open();
    const made = await Promise.all(Array.from({ length: 13 }, () => openSession(store)));
    await openSession(store, [], { workspace: "elsewhere" });
    const sorted = made.toSorted((one, other) => one.createdAt - other.createdAt || (one.id < other.id ? -1 : 1));
    expect(await store.listSessions("default", everything)).toEqual(sorted);
    expect(await store.listSessions("default", { ...everything, order: "desc" })).toEqual(sorted.toReversed());

    for (const [order, wanted] of [["asc", sorted] as const, ["desc", sorted.toReversed()] as const]) {
      const paged: SessionRecord[] = [];
      for (let page = 0; page < 5; page++) {
        const last = paged.at(-1);
        const beyond = last && { createdAt: last.createdAt, id: last.id };
        const found = await store.listSessions("default", { order, limit: 4, ...(beyond ? { beyond } : {}) });
        expect(found).toHaveLength([4, 4, 4, 1, 0][page] ?? 0);
        paged.push(...found);
      }
      expect(paged).toEqual(wanted);
    }
  });

  test("sessions made in the same millisecond are listed by id", async () => {
    const { store } = await open();
    const made = await Promise.all(Array.from({ length: 40 }, () => openSession(store)));
    const [at] = made.map(({ createdAt }) => createdAt);
    const listed = await store.listSessions("default", { ...everything, createdAt: { gte: at ?? 0 } });
    for (const [index, record] of listed.entries()) {
      const next = listed[index + 1];
      if (next?.createdAt === record.createdAt) expect(record.id < next.id).toBe(true);
    }
    expect(listed).toHaveLength(made.filter(({ createdAt }) => createdAt >= (at ?? 0)).length);
  });

  test("a list can be bounded by the time of making", async () => {
    const { store } = await open();
    const one = await openSession(store);
    await until(() => Date.now() > one.createdAt + 2);
    const two = await openSession(store);
    const idsOf = async (createdAt: NonNullable<SessionQuery["createdAt"]>) =>
      (await store.listSessions("default", { ...everything, createdAt })).map(({ id }) => id);
    expect(await idsOf({ gt: one.createdAt })).toEqual([two.id]);
    expect(await idsOf({ gte: one.createdAt })).toEqual([one.id, two.id]);
    expect(await idsOf({ lt: two.createdAt })).toEqual([one.id]);
    expect(await idsOf({ lte: two.createdAt })).toEqual([one.id, two.id]);
    expect(await idsOf({ gt: one.createdAt, lt: two.createdAt })).toEqual([]);
  });

  test("a list can be narrowed to an agent, a version of it and statuses, and leaves archived sessions out", async () => {
    const { store } = await open();
    const of = (id: string, version: number) => ({ agent: agent({ id, version }) });
    const waiting = await openSession(store, [message()], of("a", 1));
    const retrying = await take(store);
    await store.release(retrying, 1, [rescheduled()], 60_000);
    const { id: due } = await openSession(store, [message()], of("a", 2));
    const { id: quiet } = await openSession(store, [], of("b", 1));
    const { id: gone } = await openSession(store, [], of("b", 1));
    await store.receive(gone, [archived()]);

    const idsOf = async (query: Partial<SessionQuery>): Promise<SessionId[]> =>
      (await store.listSessions("default", { ...everything, ...query })).map(({ id }) => id).toSorted();
    const sorted = (...ids: SessionId[]) => ids.toSorted();
    expect(await idsOf({})).toEqual(sorted(waiting.id, due, quiet));
    expect(await idsOf({ includeArchived: true })).toEqual(sorted(waiting.id, due, quiet, gone));
    expect(await idsOf({ agentId: "a" })).toEqual(sorted(waiting.id, due));
    expect(await idsOf({ agentId: "a", agentVersion: 2 })).toEqual([due]);
    expect(await idsOf({ agentId: "c" })).toEqual([]);
    expect(await idsOf({ statuses: ["idle"] })).toEqual([quiet]);
    expect(await idsOf({ statuses: ["running"] })).toEqual([due]);
    expect(await idsOf({ statuses: ["rescheduling"] })).toEqual([waiting.id]);
    expect(await idsOf({ statuses: ["terminated"] })).toEqual([]);
    expect(await idsOf({ statuses: ["terminated", "idle"], includeArchived: true })).toEqual(sorted(quiet, gone));
    // What is filtered out does not count towards the limit.
    expect(await idsOf({ agentId: "b", includeArchived: true, limit: 2 })).toEqual(sorted(quiet, gone));
  });

  test("an archived session keeps its log and the time it was archived", async () => {
    const { store } = await open();
    const { id } = await openSession(store);
    const [stored] = (await store.receive(id, [archived()], { onlyIdle: true })) as readonly { at: number }[];
    const record = await store.getSession(id);
    expect(record.projection).toMatchObject({ terminated: true, archived_at: stored?.at });
    expect(statusOf(record)).toBe("terminated");
  });

  test("an operator's wake makes any session due that nobody holds", async () => {
    const { store } = await open();
    const { id } = await openIdle(store);
    await store.wake(id);
    const lease = await take(store);
    expect(lease.id).toBe(id);
    const { dueAt } = await store.getSession(id);
    await store.wake(id);
    expect(await store.getSession(id)).toMatchObject({ dueAt, isHeld: true });
    await store.release(lease, 1, [idle()], 60_000);
    await store.wake(id);
    expect((await take(store)).id).toBe(id);
    expect(await codeOf(store.wake(mintSession()))).toBe("session_not_found");
  });
}
