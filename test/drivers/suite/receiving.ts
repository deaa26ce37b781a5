// What comes from outside: the wake it causes, the gate, ids that are known already. S7 to S9, D5.

import { expect, test } from "vitest";
import { mintEvent, position } from "../../../session-store/ids.ts";
import { outcomesOf, pendingOf } from "../../../session-store/session.ts";
import {
  answer,
  applies,
  asks,
  calls,
  codeOf,
  confirmation,
  idle,
  interrupt,
  message,
  type Open,
  openHeld,
  openIdle,
  openSession,
  outcome,
  positionsOf,
  rescheduled,
  result,
  retitled,
  running,
  storedOf,
  take,
  takeOrNull,
  usage,
  wholeOf,
} from "./kit.ts";

export function describeReceiving(open: Open): void {
  test("a received entry makes an idle session due now, in the same step", async () => {
    const { store } = await open();
    const { id, head } = await openIdle(store);
    const said = message();
    const stored = storedOf(await store.receive(id, [said]));
    expect(stored).toEqual([{ position: head + 1, at: stored[0]?.at, fence: 0, entry: said }]);
    const { dueAt } = await store.getSession(id);
    expect(Math.abs((dueAt ?? 0) - (stored[0]?.at ?? 0))).toBeLessThanOrEqual(1_000);
    expect(await take(store)).toMatchObject({ id, head: head + 1 });
  });

  test("an entry that does not wake leaves an idle session idle", async () => {
    const { store } = await open();
    const { id, head } = await openIdle(store);
    const stored = storedOf(await store.receive(id, [retitled("A new title")]));
    expect(positionsOf(stored)).toEqual([head + 1]);
    expect(await store.getSession(id)).toMatchObject({ dueAt: null, head: head + 1, gate: head + 1 });
    expect(await takeOrNull(store)).toBeNull();
  });

  test("a batch with one entry that wakes makes the session due", async () => {
    const { store } = await open();
    const { id } = await openIdle(store);
    await store.receive(id, [retitled("A new title"), message()]);
    expect(await take(store)).toMatchObject({ id });
  });

  test("a received entry leaves the score of a held session as it is", async () => {
    const { store } = await open();
    const { id } = await openHeld(store);
    const { dueAt } = await store.getSession(id);
    await store.receive(id, [message(), interrupt()]);
    expect(await store.getSession(id)).toMatchObject({ dueAt, isHeld: true });
    expect(await takeOrNull(store)).toBeNull();
  });

  test("only an interrupt or an answer brings a rescheduled session forward", async () => {
    const { store } = await open();
    const { id, lease, said } = await openHeld(store);
    const [custom, asking] = [mintEvent(), mintEvent()];
    await store.release(lease, 1, [applies(said), calls(custom), asks(asking), rescheduled()], 60_000);
    const { dueAt } = await store.getSession(id);
    await store.receive(id, [message("hurry")]);
    expect(await store.getSession(id)).toMatchObject({ dueAt });
    expect(await takeOrNull(store)).toBeNull();

    for (const urgent of [answer(custom), confirmation(asking), interrupt()]) {
      await store.receive(id, [urgent]);
      const next = await take(store);
      expect(next.id).toBe(id);
      await store.release(next, 1, [], 60_000);
    }
    expect(await takeOrNull(store)).toBeNull();
  });

  test("of two outcomes that were checked against one gate one is stored; it is looked at until it is taken up", async () => {
    const { store, peer = store } = await open();
    const { id, lease, said } = await openHeld(store);
    const { gate } = await store.getSession(id);
    const answers = await Promise.all([store, peer].map((one) => one.receive(id, [outcome()], { gate })));
    expect(answers.filter((answer) => answer === "moved")).toHaveLength(1);
    const [defined] = storedOf(answers.find((answer) => answer !== "moved") ?? "moved");
    if (!defined) throw new Error("no outcome is stored");
    const seen = position(3);
    expect(await store.getSession(id)).toMatchObject({ gate: seen, head: seen });
    await store.finish(lease, 1, seen, [applies(said), idle()]);
    const next = await take(store);
    expect(next.id).toBe(id);
    await store.finish(next, 1, next.head, [running(), applies(defined), idle()]);
    expect((await store.getSession(id)).dueAt).toBeNull();
    expect(outcomesOf((await store.getSession(id)).projection)).toMatchObject([{ position: seen, result: "running", completedAt: null }]);
  });

  test("a batch is received as a whole, in order, or not at all", async () => {
    const { store } = await open();
    const { id, head } = await openIdle(store);
    const known = message("first");
    await store.receive(id, [known]);
    const before = await wholeOf(store, id);
    // One id is known and one is not: no answer could be right for both.
    expect(await codeOf(store.receive(id, [known, message("second")]))).toBe("idempotency_conflict");
    expect(await codeOf(store.receive(id, [message("second"), known]))).toBe("idempotency_conflict");
    expect(await wholeOf(store, id)).toEqual(before);
    const batch = [message("a"), retitled("b"), message("c")];
    const stored = storedOf(await store.receive(id, batch));
    expect(stored.map(({ position, entry }) => ({ position, entry }))).toEqual(batch.map((entry, index) => ({ position: head + 2 + index, entry })));
  });

  test("when the gate moved nothing is stored, and the answer says so", async () => {
    const { store } = await open();
    const { id, head } = await openIdle(store);
    const { gate } = await store.getSession(id);
    expect(gate).toBe(head);
    await store.receive(id, [retitled("moves the gate")]);
    const before = await wholeOf(store, id);
    expect(await store.receive(id, [message()], { gate })).toBe("moved");
    expect(await wholeOf(store, id)).toEqual(before);
    expect(positionsOf(storedOf(await store.receive(id, [message()], { gate: position(head + 1) })))).toEqual([head + 2]);
  });

  test("the gate is the newest entry that can change admission, and messages and replies are none", async () => {
    const { store } = await open();
    const { id, lease, said } = await openHeld(store);
    expect(await store.getSession(id)).toMatchObject({ gate: 0, head: 2 });
    await store.emitEvents(lease, 1, [running(), applies(said), usage(5)]);
    await store.receive(id, [message()]);
    expect(await store.getSession(id)).toMatchObject({ gate: 0, head: 6 });
    await store.emitEvents(lease, 2, [running(), calls(mintEvent()), usage(6)]);
    expect(await store.getSession(id)).toMatchObject({ gate: 8, head: 9 });
    await store.receive(id, [interrupt(), message()]);
    expect(await store.getSession(id)).toMatchObject({ gate: 10, head: 11 });
  });

  test("what holds only while the session is idle is refused on a due, a held and a rescheduled one", async () => {
    const { store } = await open();
    const idleSession = await openIdle(store);
    expect(positionsOf(storedOf(await store.receive(idleSession.id, [retitled("now")], { onlyIdle: true })))).toEqual([idleSession.head + 1]);

    const { id } = await openSession(store, [message()]);
    const refuses = async () => {
      const before = await wholeOf(store, id);
      expect(await codeOf(store.receive(id, [retitled("now")], { onlyIdle: true }))).toBe("session_busy");
      expect(await wholeOf(store, id)).toEqual(before);
    };
    await refuses();
    const lease = await take(store);
    await refuses();
    await store.release(lease, 1, [], 60_000);
    await refuses();
  });

  test("known event ids answer as they were stored, before gate and idleness are looked at", async () => {
    const { store, peer = store } = await open();
    const { id } = await openIdle(store);
    const batch = [message("once"), message("only")];
    const stored = storedOf(await store.receive(id, batch, { digest: "body-1" }));
    await store.receive(id, [retitled("moves the gate")]);
    const before = await wholeOf(store, id);
    const again = await peer.receive(id, batch, { digest: "body-1", gate: position(1), onlyIdle: true });
    expect(again).toEqual(stored);
    expect(await wholeOf(store, id)).toEqual(before);
  });

  test("a known id with another body behind its key is refused and changes nothing", async () => {
    const { store } = await open();
    const { id } = await openIdle(store);
    const said = message("once");
    await store.receive(id, [said], { digest: "body-1" });
    const before = await wholeOf(store, id);
    expect(await codeOf(store.receive(id, [said], { digest: "body-2" }))).toBe("idempotency_conflict");
    expect(await wholeOf(store, id)).toEqual(before);
  });

  test("of many sends of the same id at once one is stored and all get its answer", async () => {
    const { store, peer = store } = await open();
    const { id, head } = await openIdle(store);
    const said = message("once");
    const answers = await Promise.all(Array.from({ length: 8 }, (_, index) => (index % 2 ? store : peer).receive(id, [said], { digest: "d" })));
    for (const answered of answers) expect(answered).toEqual(answers[0]);
    expect((await store.getSession(id)).head).toBe(head + 1);
  });

  test("an initial event's id is known from the start", async () => {
    const { store } = await open();
    const said = message("first");
    const { id } = await openSession(store, [said]);
    expect(positionsOf(storedOf(await store.receive(id, [said])))).toEqual([2]);
  });

  test("a retried send is recalled by its digest until its answer got out", async () => {
    const { store, peer = store } = await open();
    const { id, head } = await openIdle(store);
    const other = await openSession(store);
    expect(await store.recall(id, "retry-1")).toBeNull();
    await store.receive(id, [message("a"), message("b")], { retryDigest: "retry-1" });
    expect(await peer.recall(id, "retry-1")).toEqual([head + 1, head + 2]);
    expect(await store.recall(id, "retry-2")).toBeNull();
    expect(await store.recall(other.id, "retry-1")).toBeNull();
    await store.forget(id, "retry-1");
    expect(await store.recall(id, "retry-1")).toBeNull();
    await store.forget(id, "retry-1");
  });

  test("the projection follows every entry, field by field, in the same step", async () => {
    const { store } = await open();
    const { id, lease, said } = await openHeld(store);
    const start = await store.getSession(id);
    const saidId = said.entry.type === "log.received" ? said.entry.event.id : "";
    expect(start.projection).toEqual({
      agent: start.projection.agent,
      environment_id: "env_1",
      title: null,
      metadata: {},
      resources: [],
      vault_ids: [],
      "pending:2": { id: saidId, type: "user.message" },
    });
    const { "pending:2": _, ...base } = start.projection;

    const [custom, asking] = [mintEvent(), mintEvent()];
    const [at] = await store.emitEvents(lease, 1, [running(), applies(said), calls(custom), asks(asking), usage(7)]);
    const usageField = expect.objectContaining({ output_tokens: 7 });
    const working = { ...base, running_since: at?.at, usage: usageField };
    const called = { [`call:${custom}`]: { kind: "custom", name: "look_up" }, [`call:${asking}`]: { kind: "ask", name: "bash" } };
    expect((await store.getSession(id)).projection).toEqual({ ...working, ...called });

    const [, confirmed] = storedOf(await store.receive(id, [answer(custom), confirmation(asking, "deny"), retitled("Named")]));
    const waiting = await store.getSession(id);
    expect(waiting.projection).toEqual({
      ...working,
      title: "Named",
      [`call:${asking}`]: called[`call:${asking}`],
      [`answered:${asking}`]: "deny",
      [`pending:${confirmed?.position}`]: {
        id: confirmed?.entry.type === "log.received" && confirmed.entry.event.id,
        type: "user.tool_confirmation",
      },
    });
    expect(pendingOf(waiting.projection)).toHaveLength(1);

    if (!confirmed) throw new Error("the confirmation is missing");
    storedOf(await store.finish(lease, 2, waiting.head, [applies(confirmed), result(asking), idle()]));
    const end = await store.getSession(id);
    const last = await store.getEvents(id, { order: "desc", limit: 1 });
    expect(end).toEqual({
      ...end,
      id,
      workspace: "default",
      createdAt: start.createdAt,
      updatedAt: last[0]?.at,
      head: waiting.head + 3,
      gate: waiting.head + 3,
      fence: lease.fence,
      isHeld: false,
      dueAt: null,
      projection: { ...base, title: "Named", usage: usageField, stop_reason: { type: "end_turn" } },
    });
  });

  test("a turn that starts and ends in one batch leaves no trace of having run", async () => {
    const { store } = await open();
    const { id, lease, said } = await openHeld(store);
    const call = mintEvent();
    storedOf(await store.finish(lease, 1, position(2), [running(), applies(said), asks(call), result(call), idle(), rescheduled(), idle()]));
    const { projection, dueAt } = await store.getSession(id);
    expect(Object.keys(projection).sort()).toEqual(["agent", "environment_id", "metadata", "resources", "stop_reason", "title", "vault_ids"]);
    expect(dueAt).toBeNull();
  });
}
