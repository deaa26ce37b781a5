// Looking at registered hands by themselves: which are due, who looks, and how many at a time.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { dueAt, Rounds } from "../../gateway/registry/rounds.ts";
import { HAND_KIND, type RegisteredHand } from "../../hands/registry.ts";
import { openEmbeddedStore } from "../../session-store/drivers/embedded/driver.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { registerHand } from "../support/relay.ts";
import { until } from "../support/until.ts";

const EVERY_MS = 300_000;
const HTTP = { type: "http", url: "http://127.0.0.1:9/" } as const;
const STDIO = { type: "stdio", server: "local" } as const;
const never = new AbortController().signal;
const health = (status: "unknown" | "ready" | "failed", checked_at: number | null) =>
  ({ status, checked_at, error: null, server: null, protocol_version: null }) as const;

describe("a hand is due", () => {
  const afterMs = (transport: RegisteredHand["transport"], status: "ready" | "failed", failedForMs = 0) => {
    const at = 1_000_000_000;
    const due = dueAt({ name: "a", transport, health: health(status, at), failing_since: status === "failed" ? at - failedForMs : null }, EVERY_MS);
    return due === null ? null : due - at;
  };
  const near = (ms: number | null, about: number) => {
    expect(ms).toBeGreaterThanOrEqual(about);
    expect(ms).toBeLessThanOrEqual(about * 1.2);
  };

  test("the usual time after it was last looked at, and hands that came together are not due together", () => {
    near(afterMs(HTTP, "ready"), EVERY_MS);
    const times = Array.from({ length: 50 }, (_, n) => dueAt({ name: `hand-${n}`, transport: HTTP, health: health("ready", 0) }, EVERY_MS) ?? 0);
    expect(new Set(times).size).toBeGreaterThan(45);
    expect(Math.max(...times) - Math.min(...times)).toBeGreaterThan(EVERY_MS / 10);
  });

  test("sooner when it began to fail, and then ever more seldom, up to an hour", () => {
    near(afterMs(HTTP, "failed"), 60_000);
    near(afterMs(HTTP, "failed", 600_000), 300_000);
    near(afterMs(HTTP, "failed", 3_600_000), 1_800_000);
    near(afterMs(HTTP, "failed", 86_400_000), 3_600_000);
  });

  test("at once when nobody ever looked; a program of the operator's file only when the last look failed", () => {
    expect(dueAt({ name: "a", transport: HTTP, health: health("unknown", null) }, EVERY_MS)).toBe(0);
    expect(dueAt({ name: "a", transport: STDIO, health: health("unknown", null) }, EVERY_MS)).toBeNull();
    expect(afterMs(STDIO, "ready")).toBeNull();
    near(afterMs(STDIO, "failed"), 60_000);
  });
});

describe("a round", () => {
  let dir: string;
  let store: SessionStore;
  let looked: string[] = [];
  let atOnce = { now: 0, most: 0 };
  let release = () => {};
  const log = pino({ level: "silent" });

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), "manyhands-rounds-"));
    store = await openEmbeddedStore({ dir, leaseMs: 30_000 });
  });
  afterAll(async () => {
    await store.close();
    await rm(dir, { recursive: true });
  });
  beforeEach(() => {
    looked = [];
    atOnce = { now: 0, most: 0 };
  });

  let count = 0;
  /** A workspace of its own with so many hands, those of lower numbers looked at longer ago. */
  async function workspaceWith(hands: number): Promise<string> {
    count += 1;
    const workspace = `rounds-${count}`;
    for (let n = 0; n < hands; n += 1)
      await registerHand(
        store,
        { name: `hand-${String(n).padStart(3, "0")}`, url: HTTP.url, health: health("failed", (n + 1) * 1_000_000) },
        workspace,
      );
    return workspace;
  }
  const rounds = (before: Promise<void> = Promise.resolve()) =>
    new Rounds({
      documents: store,
      everyMs: EVERY_MS,
      log,
      async check(workspace, name) {
        looked.push(name);
        atOnce = { now: atOnce.now + 1, most: Math.max(atOnce.most, atOnce.now + 1) };
        await before;
        atOnce.now -= 1;
        await registerHand(store, { name, url: HTTP.url, health: health("ready", Date.now()) }, workspace);
      },
    });
  const held = () =>
    new Promise<void>((resolve) => {
      release = resolve;
    });

  test("is one gateway's at a time, looks at each due hand once, a few at a time, and is over for a while", async () => {
    const workspace = await workspaceWith(10);
    const hold = held();
    const first = rounds(hold).round(workspace, 60_000, never);
    await until(() => looked.length > 0);
    expect(await rounds().round(workspace, 60_000, never)).toBe(0);
    release();
    expect(await first).toBe(10);
    expect([looked.length, new Set(looked).size, atOnce.most]).toEqual([10, 10, 4]);
    expect(await rounds().round(workspace, 60_000, never)).toBe(0);
    expect(looked).toHaveLength(10);
  });

  test("has a bound, and begins with those that waited longest", async () => {
    const workspace = await workspaceWith(104);
    expect(await rounds().round(workspace, 0, never)).toBe(100);
    expect(looked).not.toContain("hand-103");
    expect(await rounds().round(workspace, 0, never)).toBe(4);
    expect(new Set(looked).size).toBe(104);
  });

  test("of a gateway that died is another one's when its claim is over; one that lost its claim looks no further", async () => {
    const workspace = await workspaceWith(8);
    const hold = held();
    const slow = rounds(hold).round(workspace, 0, never);
    await until(() => looked.length === 4);
    // As it is when the claim's time is over.
    const claim = await store.get(workspace, "hand_round", "round");
    await store.put(workspace, [{ kind: "hand_round", id: "round", body: { until: 1 }, replaces: claim?.revision ?? 0 }]);
    await rounds().round(workspace, 60_000, never);
    expect(new Set(looked).size).toBe(8);
    const before = looked.length;
    release();
    await slow;
    expect(looked).toHaveLength(before);
  });

  test("goes on when a hand is removed meanwhile, or its look breaks", async () => {
    const workspace = await workspaceWith(3);
    const failing = new Rounds({
      documents: store,
      everyMs: EVERY_MS,
      log,
      async check(_, name) {
        looked.push(name);
        throw name === "hand-000" ? new Refusal("not_found") : new Error("broken");
      },
    });
    expect(await failing.round(workspace, 0, never)).toBe(3);
    expect(looked).toHaveLength(3);
  });

  test("passes over a record that nobody can read", async () => {
    const workspace = await workspaceWith(2);
    await store.put(workspace, [{ kind: "hand", id: "hand-odd", body: { name: "hand-odd" }, replaces: 0 }]);
    expect(await rounds().round(workspace, 0, never)).toBe(2);
  });

  test("comes by itself, again and again, until it is ended", async () => {
    const workspace = await workspaceWith(1);
    const end = new AbortController();
    const ended = new Rounds({
      documents: store,
      everyMs: 100,
      log,
      async check(of, name) {
        looked.push(name);
        await registerHand(store, { name, url: HTTP.url, health: health("ready", Date.now()) }, of);
      },
    }).run(workspace, end.signal);
    await until(() => looked.length >= 3);
    end.abort();
    await ended;
    expect((await store.list(workspace, HAND_KIND, { order: "asc", limit: 2 })).length).toBe(1);
  });
});
