// Reading a log: slices, bells, and following it without a gap or a double.

import { expect, test } from "vitest";
import type { Stored } from "../../../session-store/entry.ts";
import { follow } from "../../../session-store/follow.ts";
import type { Fence, SessionId } from "../../../session-store/ids.ts";
import { mintEvent, position, topic } from "../../../session-store/ids.ts";
import type { Bell, Preview, SessionStore } from "../../../session-store/store.ts";
import { codeOf, message, type Open, openHeld, openIdle, openSession, positionsOf, retitled, says, spanStart, until } from "./kit.ts";

const preview = (n: number, text?: string): Preview => ({
  fence: 1 as Fence,
  span: "sevt_span",
  n,
  event: { type: "agent.message", id: "sevt_message" },
  ...(text === undefined ? {} : { delta: { index: 0, text } }),
});

/** Follows until `count` entries came. */
async function followed(store: Pick<SessionStore, "listen" | "getEvents">, id: SessionId, after: number, count: number, pollMs?: number) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), 20_000);
  const seen: Stored[] = [];
  for await (const stored of follow(store, id, position(after), stop.signal, pollMs === undefined ? {} : { pollMs })) {
    seen.push(stored);
    if (seen.length === count) stop.abort();
  }
  clearTimeout(timer);
  return seen;
}

export function describeReading(open: Open): void {
  test("a slice is what lies between its ends, in its order, of its types, up to its limit", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    await store.emitEvents(lease, 1, [says("3"), spanStart(), says("5"), spanStart(), says("7")]);
    const at = async (slice: Parameters<typeof store.getEvents>[1]) => positionsOf(await store.getEvents(id, slice));
    expect(await at({})).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(await at({ after: position(4) })).toEqual([5, 6, 7]);
    expect(await at({ before: position(3) })).toEqual([1, 2]);
    expect(await at({ after: position(2), before: position(6) })).toEqual([3, 4, 5]);
    expect(await at({ after: position(7) })).toEqual([]);
    expect(await at({ after: position(5), before: position(3) })).toEqual([]);
    expect(await at({ order: "desc" })).toEqual([7, 6, 5, 4, 3, 2, 1]);
    expect(await at({ order: "desc", limit: 2 })).toEqual([7, 6]);
    expect(await at({ order: "desc", before: position(6), after: position(2) })).toEqual([5, 4, 3]);
    expect(await at({ limit: 3 })).toEqual([1, 2, 3]);
    expect(await at({ types: ["agent.message"] })).toEqual([3, 5, 7]);
    expect(await at({ types: ["agent.message", "log.created"], order: "desc" })).toEqual([7, 5, 3, 1]);
    expect(await at({ types: ["span.model_request_start"], limit: 1 })).toEqual([4]);
    expect(await at({ types: ["span.model_request_start"], after: position(4), limit: 1 })).toEqual([6]);
    expect(await at({ types: [] })).toEqual([]);
  });

  test("a page has 500 entries unless its limit says otherwise, and pages join up", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    for (let n = 1; n <= 6; n++)
      await store.emitEvents(
        lease,
        n,
        Array.from({ length: 100 }, (_, index) => says(`${n}.${index}`)),
      );
    const first = await store.getEvents(id);
    expect(positionsOf(first)).toEqual(Array.from({ length: 500 }, (_, index) => index + 1));
    expect(positionsOf(await store.getEvents(id, { after: position(500) }))).toEqual(Array.from({ length: 102 }, (_, index) => index + 501));
    expect(positionsOf(await store.getEvents(id, { types: ["agent.message"], after: position(2), limit: 600 }))).toHaveLength(600);
  });

  test("a page ends at about four MiB, never before its first entry", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    const big = "x".repeat(1_500_000);
    for (let n = 1; n <= 5; n++) await store.emitEvents(lease, n, [says(big)]);
    await store.emitEvents(lease, 6, [says(big.repeat(4))]);
    for (const order of ["asc", "desc"] as const) {
      const seen: number[] = [];
      for (let pages = 0; seen.length < 8 && pages < 10; pages++) {
        const last = seen.at(-1);
        const ends = last === undefined ? {} : order === "asc" ? { after: position(last) } : { before: position(last) };
        const page = await store.getEvents(id, { order, ...ends });
        expect(page.length).toBeGreaterThan(0);
        if (page.length > 1) expect(JSON.stringify(page).length).toBeLessThan(6_500_000);
        seen.push(...positionsOf(page));
      }
      expect(order === "asc" ? seen : seen.reverse()).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    }
  });

  test("text of every script and odd character reads back as it was", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    const text = 'quotes " \\ new\nline \u0000 nul \u2028 日本語 🙂 %s \ud800 half';
    const [stored] = await store.emitEvents(lease, 1, [says(text)]);
    expect(await store.getEvents(id, { after: position(2) })).toEqual([JSON.parse(JSON.stringify(stored))]);
  });

  test("whoever listens hears of each new head and of previews, of this session only, until hushed", async () => {
    const { store, peer = store } = await open();
    const { id, lease } = await openHeld(store);
    const other = await openSession(store);
    const bells: Bell[] = [];
    const hush = await peer.listen(id, (bell) => bells.push(bell));
    await store.receive(other.id, [retitled("other")]);
    await store.emitEvents(lease, 1, [says("a"), says("b")]);
    await until(() => bells.length >= 1);
    store.preview(id, preview(0));
    store.preview(id, preview(1, "Hel"));
    store.preview(other.id, preview(0));
    await until(() => bells.length >= 3);
    await store.receive(id, [message()]);
    await until(() => bells.length >= 4);
    expect(bells).toEqual([
      { type: "head", head: 4 },
      { type: "preview", preview: preview(0) },
      { type: "preview", preview: preview(1, "Hel") },
      { type: "head", head: 5 },
    ]);
    hush();
    await store.emitEvents(lease, 2, [says("unheard")]);
    await store.ping();
    expect(bells).toHaveLength(4);
  });

  test("a topic is rung for whoever listens to it, on any node, and for nobody else", async () => {
    const { store, peer = store } = await open();
    const heard: string[] = [];
    const hush = await peer.listen(topic("ask_1"), ({ type }) => heard.push(`1 ${type}`));
    await peer.listen(topic("ask_2"), ({ type }) => heard.push(`2 ${type}`));
    store.ring(topic("ask_1"));
    await until(() => heard.length >= 1);
    hush();
    store.ring(topic("ask_1"));
    store.ring(topic("ask_2"));
    await until(() => heard.length >= 2);
    expect(heard).toEqual(["1 look", "2 look"]);
  });

  test("two listeners of one session both hear, and one's end is not the other's", async () => {
    const { store } = await open();
    const { id } = await openIdle(store);
    const heard = { one: 0, other: 0 };
    const hush = await store.listen(id, () => heard.one++);
    const hushOther = await store.listen(id, () => heard.other++);
    await store.receive(id, [message()]);
    await until(() => heard.one === 1 && heard.other === 1);
    hush();
    await store.receive(id, [message()]);
    await until(() => heard.other === 2);
    expect(heard.one).toBe(1);
    hushOther();
  });

  test("following gives what is there and what comes, each once and in order, under concurrent writers", async () => {
    const { store, peer = store } = await open();
    const { id, lease } = await openHeld(store);
    const followers = [followed(store, id, 0, 202), followed(peer, id, 0, 202), followed(store, id, 100, 102)];
    const writers = [0, 1, 2].map(async (writer) => {
      for (let index = 0; index < 50; index++) await (index % 2 ? store : peer).receive(id, [message(`${writer}.${index}`)]);
    });
    for (let n = 1; n <= 50; n++) await store.emitEvents(lease, n, [says(`${n}`)]);
    await Promise.all(writers);
    const all = await store.getEvents(id, { limit: 1_000 });
    expect(positionsOf(all)).toEqual(Array.from({ length: 202 }, (_, index) => index + 1));
    expect(await Promise.all(followers)).toEqual([all, all, all.slice(100)]);
  });

  test("following heals when every bell is lost, by looking again", async () => {
    const { store } = await open();
    const { id, lease } = await openHeld(store);
    const deaf = { getEvents: store.getEvents.bind(store), listen: async () => () => {} };
    const seen = followed(deaf, id, 0, 6, 50);
    for (let n = 1; n <= 4; n++) await store.emitEvents(lease, n, [says(`${n}`)]);
    expect(positionsOf(await seen)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  test("a bell reaches a follower long before it would look by itself", async () => {
    const { store, peer = store } = await open();
    const { id, lease } = await openHeld(store);
    let wasHeard = false;
    const stop = new AbortController();
    const following = (async () => {
      for await (const stored of follow(peer, id, position(2), stop.signal, { pollMs: 60_000 })) {
        wasHeard = true;
        return stored.position;
      }
      return null;
    })();
    for (let n = 1; !wasHeard; n++) {
      if (n > 100) throw new Error("no bell in five seconds");
      await store.emitEvents(lease, n, [says("ring")]);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    expect(await following).toBe(3);
    stop.abort();
  });

  test("following a session ends with a refusal when it is removed, and quietly when it is called off", async () => {
    const { store } = await open();
    const { id } = await openIdle(store);
    const called = new AbortController();
    const collect = async (signal: AbortSignal) => {
      const seen: Stored[] = [];
      for await (const stored of follow(store, id, position(0), signal, { pollMs: 60_000 })) seen.push(stored);
      return seen;
    };
    const quiet = collect(called.signal);
    const removed = codeOf(collect(new AbortController().signal));
    await store.ping();
    called.abort();
    await quiet;
    await store.remove(id);
    expect(await removed).toBe("session_not_found");
    expect(await codeOf(followed(store, mintEvent() as string as SessionId, 0, 1))).toBe("session_not_found");
  });
}
