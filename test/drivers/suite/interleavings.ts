// Many hands at once: seeded random runs of writers, takers that die and ends of turns, and what must hold when all is quiet.

import { expect, test } from "vitest";
import type { Lease } from "../../../session-store/due.ts";
import type { BrainEntry, Stored } from "../../../session-store/entry.ts";
import type { EventId, SessionId } from "../../../session-store/ids.ts";
import { mintEvent, position } from "../../../session-store/ids.ts";
import { openCalls, pendingOf } from "../../../session-store/session.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import { answer, applies, calls, codeOf, idle, message, type Open, openSession, positionsOf, reply, rescheduled, says, takeOrNull } from "./kit.ts";

const SESSIONS = 6;
const WRITERS = 4;
const MESSAGES = 15;
const TAKERS = 3;
const LEASE_MS = 60;
const DEADLINE_MS = 40_000;

/** A small generator of numbers in [0, 1) that a seed repeats (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

export function describeInterleavings(open: Open): void {
  test("no wake is lost and nothing is doubled, whatever writers, takers and dying holders do at once", async () => {
    const seed = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
    process.stdout.write(`interleavings: SEED=${seed}\n`);
    const random = randomFrom(seed);
    const { store, peer = store } = await open({ leaseMs: LEASE_MS });
    const either = () => (random() < 0.5 ? store : peer);
    const ids = await Promise.all(Array.from({ length: SESSIONS }, async () => (await openSession(store)).id));
    const sent = new Map<SessionId, EventId[]>(ids.map((id) => [id, []]));
    const deadline = Date.now() + DEADLINE_MS;
    let areWriting = true;

    const writer = async () => {
      for (let index = 0; index < MESSAGES; index++) {
        const id = ids[Math.floor(random() * ids.length)];
        if (!id) continue;
        const said = message(`${index}`);
        sent.get(id)?.push(said.event.id);
        await either().receive(id, [said]);
        // A resend, as after a lost answer.
        if (random() < 0.3) await either().receive(id, [said]);
        if (random() < 0.5) await pause(random() * 4);
      }
    };
    const isQuiet = async () => {
      const records = await Promise.all(ids.map((id) => store.getSession(id)));
      return records.every(({ dueAt }) => dueAt === null);
    };
    const taker = async () => {
      while (areWriting || !(await isQuiet())) {
        if (Date.now() > deadline) throw new Error("the sessions never came to rest");
        const at = either();
        const lease = await takeOrNull(at);
        if (lease) await turn(at, lease, random);
        else await pause(5);
      }
    };
    const takers = Array.from({ length: TAKERS }, taker);
    await Promise.all(Array.from({ length: WRITERS }, writer));
    areWriting = false;
    await Promise.all(takers);

    for (const id of ids) {
      const record = await store.getSession(id);
      const log = await store.getEvents(id, { limit: 10_000 });
      expect(positionsOf(log)).toEqual(Array.from({ length: record.head }, (_, index) => index + 1));
      // The promise: nothing waits in a session that nobody will look at.
      if (openCalls(record.projection).length === 0) expect(pendingOf(record.projection)).toEqual([]);
      const receivedIds = log.flatMap(({ entry }) => (entry.type === "log.received" && entry.waits ? [entry.event.id] : []));
      expect(receivedIds.toSorted()).toEqual((sent.get(id) ?? []).toSorted());
      const appliedIds = log.flatMap(({ entry }) => (entry.type === "log.applied" ? [entry.id] : []));
      expect(appliedIds.toSorted()).toEqual(receivedIds.toSorted());
      const fences = log.map(({ fence }) => fence).filter((fence) => fence > 0);
      expect(fences).toEqual(fences.toSorted((one, other) => one - other));
    }
  });

  test("whenever a wake and the end of a turn meet, the session is due or the turn goes on", async () => {
    const { store, peer = store } = await open();
    for (let round = 0; round < 40; round++) {
      const { id } = await openSession(store, [message()]);
      const lease = await takeOrNull(store);
      if (!lease) throw new Error("nothing is due");
      const said = (await store.getEvents(id)).filter(({ entry }) => entry.type === "log.received");
      const late = message("late");
      const ends = () => store.finish(lease, 1, lease.head, [...said.map(applies), idle()]);
      const [answered] = round % 2 ? await Promise.all([ends(), peer.receive(id, [late])]) : await both(() => peer.receive(id, [late]), ends);
      const record = await store.getSession(id);
      if (answered === "more") expect(record.isHeld).toBe(true);
      else expect(record.dueAt).not.toBeNull();
      if (answered === "more") await store.release(lease, 1, [], 0);
      const next = await takeOrNull(store);
      expect(next?.id).toBe(id);
      if (next) await store.release(next, 1, [], 3_000_000);
    }
  });
}

/** Starts the second call after the first one, and gives the second one's answer first. */
async function both<T>(first: () => Promise<unknown>, second: () => Promise<T>): Promise<[T, unknown]> {
  const [other, one] = await Promise.all([first(), second()]);
  return [one, other];
}

/** One turn of a holder that may die, dawdle past its lease, ask a client, or end well. */
async function turn(store: SessionStore, lease: Lease, random: () => number): Promise<void> {
  let n = 0;
  for (let rounds = 0; rounds < 20; rounds++) {
    const log = await store.getEvents(lease.id, { limit: 10_000 });
    const seen = log.at(-1)?.position ?? position(0);
    const fate = random();
    if (fate < 0.15) return; // It dies; the lease runs out.
    if (fate < 0.25) await pause(LEASE_MS * 2); // It sleeps past its lease.
    const entries: BrainEntry[] = [reply(), ...waitingIn(log).map(applies), says("done")];
    const code = await codeOf(store.emitEvents(lease, ++n, entries));
    if (code === "fenced") return;
    expect(code).toBe("none");
    if (fate > 0.9) {
      await codeOf(store.release(lease, ++n, [rescheduled()], random() * 30));
      return;
    }
    if (fate > 0.8) {
      const call = mintEvent();
      if ((await codeOf(store.emitEvents(lease, ++n, [calls(call)]))) === "fenced") return;
      await store.receive(lease.id, [answer(call)]);
      continue;
    }
    const head = position(seen + entries.length);
    const ended = await store.finish(lease, ++n, head, [idle()]).catch((error: unknown) => {
      if (error instanceof Error && "code" in error && error.code === "fenced") return "fenced" as const;
      throw error;
    });
    if (ended !== "more") return;
    n -= 1;
  }
  await codeOf(store.release(lease, ++n, [], 0));
}

/** What was received and is not applied yet. */
function waitingIn(log: readonly Stored[]): readonly Stored[] {
  const applied = new Set(log.flatMap(({ entry }) => (entry.type === "log.applied" ? [entry.ref] : [])));
  return log.filter(({ entry, position: at }) => entry.type === "log.received" && entry.waits && !applied.has(at));
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
