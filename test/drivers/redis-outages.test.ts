// Redis goes away, stands still, runs short or changes its mind: calls end or resume in time, nothing acknowledged is lost or doubled.

import { expect, test } from "vitest";
import { follow } from "../../session-store/follow.ts";
import type { SessionId } from "../../session-store/ids.ts";
import { position } from "../../session-store/ids.ts";
import type { Bell, SessionStore } from "../../session-store/store.ts";
import { needs } from "../support/real-part.ts";
import { keptLog, redisOfTest, storeOfTest, textsOf } from "./redis-kit.ts";
import { codeOf, message, openHeld, openSession, says, storedOf, until } from "./suite/kit.ts";

const RESUME_MAX_MS = 10_000;

/** Sends one message after the other until it is told to stop; gives what was acknowledged. */
function sending(store: SessionStore, id: SessionId): { readonly acknowledged: string[]; stop(): Promise<void> } {
  const acknowledged: string[] = [];
  let isOver = false;
  const run = async () => {
    for (let n = 1; !isOver; n++) {
      // The same entry until it is acknowledged, as a client with an idempotency key would.
      const said = message(`${n}`);
      while (!isOver) {
        const code = await codeOf(store.receive(id, [said]));
        if (code === "none") {
          acknowledged.push(`${n}`);
          break;
        }
        expect(["store_busy", "store_in_doubt"]).toContain(code);
      }
    }
  };
  const running = run();
  return {
    acknowledged,
    stop: async () => {
      isOver = true;
      await running;
    },
  };
}

async function timed(call: () => Promise<unknown>): Promise<{ code: string; ms: number }> {
  const from = performance.now();
  const code = await codeOf(call());
  return { code, ms: performance.now() - from };
}

needs("redis-server")("a Redis that fails", () => {
  test("calls resume within ten seconds of a kill -9, and what was acknowledged is there once", async () => {
    const redis = await redisOfTest();
    const { log, count } = keptLog();
    const store = await storeOfTest(redis.url, log);
    const { id } = await openSession(store);
    const sender = sending(store, id);
    for (let round = 0; round < 3; round++) {
      const before = sender.acknowledged.length;
      await until(() => sender.acknowledged.length > before + 20);
      await redis.kill();
      const stalled = sender.acknowledged.length;
      await redis.restart();
      await until(() => sender.acknowledged.length > stalled + 20, RESUME_MAX_MS);
      // The bells' connection may come back a moment later.
      await until(() => count("connection.restored") === 2 * (round + 1), RESUME_MAX_MS);
    }
    await sender.stop();
    const { texts, isDense } = await textsOf(store, id);
    expect(isDense).toBe(true);
    // The last one may have been stored without having been acknowledged.
    expect(texts.slice(0, sender.acknowledged.length)).toEqual(sender.acknowledged);
    expect(new Set(texts).size).toBe(texts.length);
    expect(texts.length - sender.acknowledged.length).toBeLessThanOrEqual(1);
    // Two connections, three outages: each said once when it began and once when it was over.
    expect(count("connection.lost")).toBe(6);
    expect(count("connection.restored")).toBe(6);
  });

  test("while Redis is gone a call is refused as busy within its deadline, and the next one after it is back succeeds", async () => {
    const redis = await redisOfTest();
    const { log, count } = keptLog();
    const store = await storeOfTest(redis.url, log);
    const { id } = await openSession(store);
    await redis.kill();
    await until(() => count("connection.lost") === 2);
    const { code, ms } = await timed(() => store.receive(id, [message()]));
    expect(code).toBe("store_busy");
    expect(ms).toBeLessThan(6_000);
    expect(await timed(() => store.ping())).toMatchObject({ code: "store_busy" });
    await redis.restart();
    const stored = await store.receive(id, [message("back")]);
    expect(storedOf(stored)).toHaveLength(1);
  });

  test("a Redis that stands still for three seconds delays calls and loses none", async () => {
    const redis = await redisOfTest();
    const store = await storeOfTest(redis.url);
    const { id, lease } = await openHeld(store);
    redis.pause();
    const from = performance.now();
    setTimeout(() => redis.resume(), 3_000);
    const [stored] = await Promise.all([
      store.emitEvents(lease, 1, [says("one")]),
      store.receive(id, [message("two")]),
      store.getEvents(id),
      store.renew(lease),
    ]);
    expect(performance.now() - from).toBeGreaterThan(2_500);
    expect(stored).toHaveLength(1);
    expect(await textsOf(store, id)).toEqual({ texts: ["hello", "one", "two"], isDense: true });
  });

  test("a Redis that stands still for longer leaves a write in doubt in time, and the same call afterwards settles it", async () => {
    const redis = await redisOfTest();
    const store = await storeOfTest(redis.url);
    const { id, lease } = await openHeld(store);
    redis.pause();
    const entries = [says("once")];
    const said = message("too");
    const [emitted, received, read, pinged] = await Promise.all([
      timed(() => store.emitEvents(lease, 1, entries)),
      timed(() => store.receive(id, [said])),
      timed(() => store.getEvents(id)),
      timed(() => store.ping()),
    ]);
    expect([emitted.code, received.code, read.code, pinged.code]).toEqual(["store_in_doubt", "store_in_doubt", "store_busy", "store_busy"]);
    expect(Math.max(emitted.ms, received.ms, read.ms)).toBeLessThan(6_000);
    expect(pinged.ms).toBeLessThan(2_500);
    redis.resume();
    expect(await store.emitEvents(lease, 1, entries)).toHaveLength(1);
    storedOf(await store.receive(id, [said]));
    const { texts, isDense } = await textsOf(store, id);
    expect({ texts: texts.toSorted(), isDense }).toEqual({ texts: ["hello", "once", "too"], isDense: true });
  });

  test("closing a store ends soon while Redis stands still, and refuses what is asked of it afterwards", async () => {
    const redis = await redisOfTest();
    const store = await storeOfTest(redis.url);
    const { id } = await openSession(store);
    await store.listen(id, () => {});
    redis.pause();
    const inFlight = codeOf(store.receive(id, [message()]));
    const { ms } = await timed(() => store.close());
    expect(ms).toBeLessThan(2_500);
    expect(["store_in_doubt", "store_busy"]).toContain(await inFlight);
    expect(await codeOf(store.getSession(id))).toBe("store_busy");
    redis.resume();
  });

  test("a follower goes on after restarts and killed clients, without a gap or a double, and listeners are told to look", async () => {
    const redis = await redisOfTest();
    const store = await storeOfTest(redis.url);
    const { id } = await openSession(store);
    const bells: Bell[] = [];
    await store.listen(id, (bell) => void bells.push(bell));
    let dueRings = 0;
    await store.onDue(() => dueRings++);

    const calledOff = new AbortController();
    const positions: number[] = [];
    const following = (async () => {
      for await (const stored of follow(store, id, position(0), calledOff.signal)) positions.push(stored.position);
    })();
    const sender = sending(store, id);
    const goesOn = async () => {
      const seen = positions.length;
      await until(() => positions.length > seen + 20, RESUME_MAX_MS);
    };
    await goesOn();
    for (const act of [() => redis.restart(), () => redis.command("CLIENT KILL TYPE pubsub"), () => redis.command("CLIENT KILL TYPE normal")]) {
      const looks = bells.filter(({ type }) => type === "look").length;
      await act();
      await goesOn();
      if (!`${act}`.includes("TYPE normal")) await until(() => bells.filter(({ type }) => type === "look").length > looks);
    }
    await sender.stop();
    const { head } = await store.getSession(id);
    await until(() => positions.length >= head);
    calledOff.abort();
    await following;
    expect(positions).toEqual(Array.from({ length: head }, (_, index) => index + 1));
    expect(dueRings).toBeGreaterThan(0);
  });

  test("without memory a write is refused whole at once, a removal is not, and it heals", async () => {
    const redis = await redisOfTest();
    const store = await storeOfTest(redis.url);
    const { id, lease } = await openHeld(store);
    const spare = await openSession(store);
    await redis.command("CONFIG SET maxmemory 1");
    const { code, ms } = await timed(() => store.emitEvents(lease, 1, [says("one")]));
    expect(code).toBe("store_busy");
    expect(ms).toBeLessThan(1_000);
    expect(await codeOf(store.receive(id, [message()]))).toBe("store_busy");
    expect(await codeOf(store.ping())).toBe("store_busy");
    expect(await store.getEvents(id)).toHaveLength(2);
    await store.remove(spare.id);
    await redis.command("CONFIG SET maxmemory 0");
    expect(await store.emitEvents(lease, 1, [says("one")])).toHaveLength(1);
  });

  test("a Redis that is read-only for a while, and one that forgot the scripts, are waited for", async () => {
    const redis = await redisOfTest();
    const store = await storeOfTest(redis.url);
    const { id } = await openSession(store);
    await redis.command("SCRIPT FLUSH");
    storedOf(await store.receive(id, [message("one")]));
    await redis.command("REPLICAOF 127.0.0.1 1");
    setTimeout(() => void redis.command("REPLICAOF NO ONE"), 500);
    storedOf(await store.receive(id, [message("two")]));
    expect(await textsOf(store, id)).toEqual({ texts: ["one", "two"], isDense: true });
  });
});
