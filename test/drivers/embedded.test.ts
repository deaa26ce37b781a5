// The embedded store: the contract suite, and what only it promises: one owner, death at any instant, a full disk, a failing one.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import Database from "libsql";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { type EmbeddedOptions, openEmbeddedStore } from "../../session-store/drivers/embedded/driver.ts";
import type { SessionId } from "../../session-store/ids.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { describeStore } from "./session-store.suite.ts";
import { codeOf, message, openHeld, openSession, positionsOf, says, take, takeOrNull, until } from "./suite/kit.ts";

const ROOT = resolve(fileURLToPath(new URL("../..", import.meta.url)));
const CHILD = fileURLToPath(new URL("./embedded-child.ts", import.meta.url));

describeStore("embedded", async ({ leaseMs }) => {
  const dir = await mkdtemp(join(tmpdir(), "manyhands-store-"));
  let store = await openEmbeddedStore({ dir, leaseMs });
  const reopen = async (): Promise<SessionStore> => {
    await store.close();
    store = await openEmbeddedStore({ dir, leaseMs });
    return store;
  };
  const close = async () => {
    await store.close();
    await rm(dir, { recursive: true });
  };
  return { store, reopen, close };
});

/** A folder that goes with the test. */
async function makeFolder(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "manyhands-store-"));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** Opens a store that is closed with the test. */
async function openIn(dir: string, options: Partial<EmbeddedOptions> = {}): Promise<SessionStore> {
  const store = await openEmbeddedStore({ dir, leaseMs: 30_000, lockWaitMs: 200, ...options });
  onTestFinished(() => store.close());
  return store;
}

/** Starts a process with a store in `dir`; `hear` gets each line that it says. */
function startChild(dir: string, task: "hold" | "append", hear: (line: unknown) => void): ChildProcess {
  const built = join(ROOT, "dist", relative(ROOT, CHILD).replace(/\.ts$/, ".js"));
  if (!existsSync(built)) throw new Error(`not built: ${built}`);
  const child = spawn(process.execPath, [built, dir, task], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  createInterface({ input: child.stdout }).on("line", (line) => hear(JSON.parse(line)));
  return child;
}

const Acknowledged = z.object({ id: z.string(), n: z.number(), positions: z.array(z.number()) });

describe("the embedded store alone", () => {
  test("kill -9 in the middle of a thousand appends keeps every acknowledged one, and none by half", async () => {
    const dir = await makeFolder();
    const acknowledged: z.infer<typeof Acknowledged>[] = [];
    let isDone = false;
    const killAt = 150 + Math.floor(Math.random() * 500);
    const child = startChild(dir, "append", (line) => {
      if (line === "ready") isDone = true;
      else acknowledged.push(Acknowledged.parse(line));
      if (acknowledged.length === killAt) child.kill("SIGKILL");
    });
    await once(child, "close");
    expect(isDone).toBe(false);
    expect(acknowledged.length).toBeGreaterThanOrEqual(killAt);

    const store = await openIn(dir, { lockWaitMs: 5_000 });
    const sessions = await store.listSessions("default", { order: "asc", limit: 100 });
    expect(sessions).toHaveLength(4);
    for (const { id } of sessions) {
      const log = await store.getEvents(id, { limit: 10_000 });
      expect(positionsOf(log)).toEqual(log.map((_, index) => index + 1));
      const words = log.slice(2).map(({ entry }) => (entry.type === "agent.message" ? entry.content[0]?.text : entry.type));
      const batches = words.length / 3;
      expect(words).toEqual(Array.from({ length: batches }, (_, batch) => [0, 1, 2].map((index) => `${batch + 1}.${index}`)).flat());
      const own = acknowledged.filter((line) => line.id === id);
      expect(own.map(({ n }) => n)).toEqual(own.map((_, index) => index + 1));
      // One append a lease is in flight: at most that one is stored without having been acknowledged.
      expect([own.length, own.length + 1]).toContain(batches);
    }
    // The dead process held all of them: each is due at once, with its next fence.
    const now = Date.now();
    for (const session of sessions) expect(session).toMatchObject({ isHeld: false, fence: 1 });
    for (const { dueAt } of sessions) expect(dueAt).toBeLessThanOrEqual(now);
    const leases = await Promise.all(sessions.map(() => take(store)));
    expect(leases.map(({ fence, attempt }) => ({ fence, attempt }))).toEqual(sessions.map(() => ({ fence: 2, attempt: 2 })));
    expect(leases.map(({ id }) => id).toSorted()).toEqual(sessions.map(({ id }) => id).toSorted());
  });

  test("opening again makes held sessions due at once, and their old leases write no more", async () => {
    const dir = await makeFolder();
    const first = await openEmbeddedStore({ dir, leaseMs: 30_000 });
    const { id, lease } = await openHeld(first);
    const waiting = await openHeld(first);
    await first.release(waiting.lease, 1, [], 60_000);
    const { dueAt } = await first.getSession(waiting.id);
    await first.close();

    const store = await openIn(dir);
    const record = await store.getSession(id);
    expect(record).toMatchObject({ isHeld: false, fence: 1 });
    expect(record.dueAt).toBeLessThanOrEqual(Date.now());
    expect(await store.getSession(waiting.id)).toMatchObject({ dueAt, isHeld: false });
    expect(await codeOf(store.emitEvents(lease, 1, [says("late")]))).toBe("fenced");
    expect(await store.renew(lease)).toBe("lost");
    expect(await take(store)).toMatchObject({ id, fence: 2 });
    expect(await takeOrNull(store)).toBeNull();
  });

  test("a second opener is refused while another process has the store, and gets it when that one is killed", async () => {
    const dir = await makeFolder();
    let isOpen = false;
    const child = startChild(dir, "hold", () => {
      isOpen = true;
    });
    await until(() => isOpen);
    const refused = await openEmbeddedStore({ dir, leaseMs: 1_000, lockWaitMs: 200 }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: "store_unfit", message: expect.stringContaining("Another process uses this store") });
    child.kill("SIGKILL");
    const store = await openIn(dir, { lockWaitMs: 5_000 });
    await store.ping();
  });

  test("a second opener in the same process waits its turn, and the first one does not notice", async () => {
    const dir = await makeFolder();
    const first = await openEmbeddedStore({ dir, leaseMs: 1_000 });
    expect(await codeOf(openEmbeddedStore({ dir, leaseMs: 1_000, lockWaitMs: 100 }))).toBe("store_unfit");
    const { id } = await openSession(first);
    const second = openIn(dir, { lockWaitMs: 10_000 });
    await first.close();
    expect(await (await second).getSession(id)).toMatchObject({ id });
  });

  test("a store that a newer version wrote is refused and left as it is", async () => {
    const dir = await makeFolder();
    await (await openEmbeddedStore({ dir, leaseMs: 1_000 })).close();
    const path = join(dir, "store.db");
    const database = new Database(path);
    database.exec("PRAGMA user_version = 99");
    database.close();
    const before = await readFile(path);
    const refused = await openEmbeddedStore({ dir, leaseMs: 1_000 }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: "store_unfit", message: expect.stringContaining("schema 99") });
    expect(await readFile(path)).toEqual(before);
  });

  test("a full disk refuses what does not fit, acknowledges nothing of it and keeps what is there", async () => {
    const store = await openIn(await makeFolder(), { pagesMax: 100 });
    const { id, lease } = await openHeld(store);
    const big = "x".repeat(20_000);
    let n = 0;
    let refusal = "none";
    while (refusal === "none" && n < 100) {
      n += 1;
      refusal = await codeOf(store.emitEvents(lease, n, [says(big), says(big)]));
    }
    expect(refusal).toBe("store_busy");
    const small = Array.from({ length: 5 }, () => codeOf(store.emitEvents(lease, n, [says(big), says(big)])));
    expect(await Promise.all(small)).toEqual(Array(5).fill("store_busy"));
    const log = await store.getEvents(id);
    expect(log).toHaveLength(2 + 2 * (n - 1));
    expect(await store.getSession(id)).toMatchObject({ head: log.length });
  });

  test("more calls than the queue holds are refused, and the others are answered", async () => {
    const store = await openIn(await makeFolder());
    const codes = await Promise.all(Array.from({ length: 10_100 }, () => codeOf(store.getSession("sesn_absent" as SessionId))));
    expect(codes.filter((code) => code === "store_busy")).toHaveLength(100);
    expect(codes.filter((code) => code === "session_not_found")).toHaveLength(10_000);
    await store.ping();
  });

  test("a wall clock that is set forward refuses nothing that waits", async () => {
    const store = await openIn(await makeFolder());
    vi.useFakeTimers({ toFake: ["Date"] });
    onTestFinished(() => void vi.useRealTimers());
    // Held up after the loop's poll, so that the next look for late calls comes before the answer.
    await new Promise((resolve) => setImmediate(resolve));
    const asked = codeOf(store.ping());
    vi.setSystemTime(Date.now() + 3_600_000);
    for (const until = performance.now() + 400; performance.now() < until; );
    expect(await asked).toBe("none");
  });

  test("a database that fails is told as fatal, and every call is refused from then on", async () => {
    const dir = await makeFolder();
    const fatal: Error[] = [];
    const store = await openIn(dir, { onFatal: (error) => fatal.push(error) });
    const { id } = await openSession(store);
    // Someone else writes to the file, which one owner by lock rules out: the thread's own write fails.
    const intruder = new Database(join(dir, "store.db"));
    intruder.exec("BEGIN IMMEDIATE");
    expect(await codeOf(store.receive(id, [message()]))).toBe("store_in_doubt");
    intruder.close();
    expect(fatal).toMatchObject([{ message: expect.stringContaining("SQLITE_BUSY") }]);
    expect(await codeOf(store.receive(id, [message()]))).toBe("store_unfit");
    expect(await codeOf(store.getEvents(id))).toBe("store_unfit");
    await store.close();
  });

  test("what is under way when the store is closed comes to its end, and what comes later is refused", async () => {
    const store = await openIn(await makeFolder());
    const { id } = await openSession(store);
    const sends = Array.from({ length: 50 }, () => codeOf(store.receive(id, [message()])));
    await store.close();
    expect(await Promise.all(sends)).toEqual(Array(50).fill("none"));
    expect(await codeOf(store.getSession(id))).toBe("store_busy");
    await store.close();
  });
});
