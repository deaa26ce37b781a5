// Following (session-store/follow.ts), O1 to O3, at the edges that a real store seldom meets.

import { describe, expect, test } from "vitest";
import type { Stored } from "../../session-store/entry.ts";
import { follow } from "../../session-store/follow.ts";
import type { Fence, SessionId } from "../../session-store/ids.ts";
import { position } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { Bell, Slice } from "../../session-store/store.ts";
import { says } from "../drivers/suite/kit.ts";

const ID = "sesn_1" as SessionId;
const stored = (at: number): Stored => ({ position: position(at), at, fence: 1 as Fence, entry: says(`${at}`) });

/** A log in memory, whose bells ring when the test says so. */
function logOf(count: number) {
  const log = Array.from({ length: count }, (_, index) => stored(index + 1));
  const hearers = new Set<(bell: Bell) => void>();
  let reads = 0;
  return {
    log,
    hearers,
    reads: () => reads,
    ring: (bell: Bell) => hearers.forEach((hear) => void hear(bell)),
    listen: async (_: SessionId, hear: (bell: Bell) => void) => {
      hearers.add(hear);
      return () => void hearers.delete(hear);
    },
    getEvents: async (_: SessionId, { after = position(0), limit = 500 }: Slice = {}): Promise<readonly Stored[]> => {
      reads += 1;
      return log.filter((entry) => entry.position > after).slice(0, limit);
    },
  };
}
const noPolling = { pollMs: 60_000 };

describe("following", () => {
  test("pages join up, however long the log is", async () => {
    const store = logOf(1_234);
    const stop = new AbortController();
    const seen: number[] = [];
    for await (const { position: at } of follow(store, ID, position(0), stop.signal, noPolling)) {
      seen.push(at);
      if (at === 1_234) stop.abort();
    }
    expect(seen).toEqual(store.log.map(({ position: at }) => at));
    expect(store.hearers.size).toBe(0);
  });

  test("a bell that rings before listening has begun does no harm", async () => {
    const store = logOf(1);
    const eager = {
      ...store,
      listen: async (id: SessionId, hear: (bell: Bell) => void) => {
        hear({ type: "head", head: position(1) });
        return store.listen(id, hear);
      },
    };
    const following = follow(eager, ID, position(0), new AbortController().signal, noPolling);
    expect(await following.next()).toEqual({ done: false, value: store.log[0] });
    await following.return(undefined);
    expect(store.hearers.size).toBe(0);
  });

  test("an entry whose bell rings while a page is read is not missed", async () => {
    const store = logOf(1);
    let isFirstEmpty = true;
    const racing = {
      ...store,
      getEvents: async (id: SessionId, slice: Slice) => {
        const page = await store.getEvents(id, slice);
        if (page.length === 0 && isFirstEmpty) {
          isFirstEmpty = false;
          store.log.push(stored(2));
          store.ring({ type: "head", head: position(2) });
        }
        return page;
      },
    };
    const following = follow(racing, ID, position(0), new AbortController().signal, noPolling);
    expect((await following.next()).value).toEqual(store.log[0]);
    expect((await following.next()).value).toEqual(store.log[1]);
    await following.return(undefined);
  });

  test("being called off ends it at once: while it waits, and between a read and the wait after it", async () => {
    const store = logOf(0);
    const waiting = new AbortController();
    const next = follow(store, ID, position(0), waiting.signal, noPolling).next();
    await expect.poll(() => store.reads()).toBe(1);
    waiting.abort();
    expect(await next).toEqual({ done: true, value: undefined });

    const reading = new AbortController();
    const aborting = {
      ...store,
      getEvents: async () => {
        reading.abort();
        return [];
      },
    };
    expect(await follow(aborting, ID, position(0), reading.signal, noPolling).next()).toEqual({ done: true, value: undefined });
    expect(store.hearers.size).toBe(0);
  });

  test("previews and bells of what was seen already cause no read, and each bell is passed on", async () => {
    const store = logOf(1);
    const bells: Bell[] = [];
    const stop = new AbortController();
    const following = follow(store, ID, position(0), stop.signal, { ...noPolling, onBell: (bell) => bells.push(bell) });
    await following.next();
    const next = following.next();
    await expect.poll(() => store.reads()).toBe(2);
    const preview = { fence: 1 as Fence, span: "s", n: 0, event: { type: "agent.message", id: "e" } } as const;
    store.ring({ type: "preview", preview });
    store.ring({ type: "head", head: position(1) });
    await new Promise((resolve) => setImmediate(resolve));
    expect(store.reads()).toBe(2);
    store.log.push(stored(2));
    store.ring({ type: "look" });
    expect((await next).value).toEqual(store.log[1]);
    expect(bells).toEqual([{ type: "preview", preview }, { type: "head", head: 1 }, { type: "look" }]);
    await following.return(undefined);
  });

  test("a refused read ends it with that refusal, and nothing listens any more", async () => {
    const store = logOf(0);
    const gone = {
      ...store,
      getEvents: async () => {
        throw new Refusal("session_not_found");
      },
    };
    await expect(follow(gone, ID, position(0), new AbortController().signal).next()).rejects.toMatchObject({ code: "session_not_found" });
    expect(store.hearers.size).toBe(0);
  });
});
