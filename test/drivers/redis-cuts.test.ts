// The driver's connection is cut after Redis has executed a step and before the answer is seen: nothing is doubled, nothing is missing.

import { expect, onTestFinished, test } from "vitest";
import type { SessionId } from "../../session-store/ids.ts";
import { mintEvent, mintSession, position } from "../../session-store/ids.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { needs } from "../support/real-part.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { redisOfTest, storeOfTest, textsOf } from "./redis-kit.ts";
import { applies, created, idle, message, nonce, openHeld, openSession, rescheduled, says, storedOf, take } from "./suite/kit.ts";

const CUTS_MIN = 100;

async function cutting(): Promise<{ store: SessionStore; proxy: TcpProxy; cut<T>(call: () => Promise<T>): Promise<T> }> {
  const redis = await redisOfTest();
  const proxy = await startTcpProxy(redis.port);
  onTestFinished(() => proxy.close());
  const store = await storeOfTest(`redis://127.0.0.1:${proxy.port}`);
  return {
    store,
    proxy,
    /** Makes a call whose first answer to a step is never seen. */
    cut: async (call) => {
      let isCut = false;
      proxy.cutAnswers((answer, asked) => {
        if (isCut || !/EVALSHA|HGETALL|XRANGE|DEL/.test(`${asked}`) || `${answer}`.startsWith("-NOSCRIPT")) return false;
        isCut = true;
        return true;
      });
      const answer = await call();
      expect(isCut).toBe(true);
      proxy.passAll();
      return answer;
    },
  };
}

needs("redis-server")("cut connections", () => {
  test("over a hundred cuts, appends and received events are there once each, in order, as they were answered", { timeout: 120_000 }, async () => {
    const { store, proxy, cut } = await cutting();
    const { id, lease } = await openHeld(store);
    const answered = [];
    const said = ["hello"];
    for (let n = 1; proxy.cuts < CUTS_MIN; n++) {
      answered.push(...(await cut(() => store.emitEvents(lease, n, [says(`a${n}`), says(`b${n}`)]))));
      answered.push(...storedOf(await cut(() => store.receive(id, [message(`c${n}`)]))));
      said.push(`a${n}`, `b${n}`, `c${n}`);
    }
    expect(await textsOf(store, id)).toEqual({ texts: said, isDense: true });
    expect(await store.getEvents(id, { after: position(2) })).toEqual(answered);
  });

  test("every other step is done once, and its resend gets the answer that was missed", async () => {
    const { store, cut } = await cutting();
    const session = { id: mintSession(), created: created(), entries: [message()] };
    const record = await cut(() => store.create(session));
    expect(record).toMatchObject({ id: session.id, head: 2 });

    const asked = nonce();
    const lease = await cut(() => store.take("http://127.0.0.1:1", asked));
    if (!lease) throw new Error("nothing is due");
    expect(lease).toMatchObject({ id: session.id, fence: 1, attempt: 1 });
    expect(await store.getSession(session.id)).toMatchObject({ fence: 1 });
    expect(await cut(() => store.renew(lease))).toBe(2);

    const released = await cut(() => store.release(lease, 1, [rescheduled()], 60_000));
    expect(released.map((stored) => stored.position)).toEqual([3]);
    await cut(() => store.wake(session.id));
    const next = await take(store);
    const [, said] = await cut(() => store.getEvents(session.id));
    if (!said) throw new Error("the message is missing");
    const finished = storedOf(await cut(() => store.finish(next, 1, position(3), [applies(said), idle()])));
    expect(finished.map((stored) => stored.position)).toEqual([4, 5]);
    expect(await cut(() => store.getSession(session.id))).toMatchObject({ head: 5, dueAt: null, isHeld: false });

    const write = { kind: "agent", id: "a", body: {}, replaces: 0, name: "Ada" };
    expect(await cut(() => store.put("default", [write]))).toMatchObject([{ revision: 1 }]);
    expect(await cut(() => store.put("default", [{ ...write, replaces: 1 }]))).toMatchObject([{ revision: 2 }]);
    await cut(() => store.discard("default", "agent", "a"));
    expect(await store.get("default", "agent", "a")).toBeNull();
    await cut(() => store.forget(session.id, "digest"));
    await cut(() => store.remove(session.id));
    await expect(store.getSession(session.id)).rejects.toMatchObject({ code: "session_not_found" });
  });

  test("many calls in flight at a cut are all answered, each done once", async () => {
    const { store, proxy } = await cutting();
    const ids: SessionId[] = [];
    for (let index = 0; index < 8; index++) ids.push((await openSession(store)).id);
    proxy.cutAnswers((answer) => proxy.cuts < 5 && /\$\d\r\n(ok|known)\r\n/.test(`${answer}`));
    const sent = ids.flatMap((id) => Array.from({ length: 10 }, (_, index) => store.receive(id, [message(`${index}`, mintEvent())])));
    await Promise.all(sent);
    expect(proxy.cuts).toBe(5);
    for (const id of ids) {
      const { texts, isDense } = await textsOf(store, id);
      expect({ texts: texts.toSorted(), isDense }).toEqual({ texts: Array.from({ length: 10 }, (_, index) => `${index}`), isDense: true });
    }
  });
});
