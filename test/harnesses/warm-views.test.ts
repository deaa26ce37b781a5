// What a worker keeps of sessions that it drove: bounded, each view with one user.

import { describe, expect, test, vi } from "vitest";
import { LogView } from "../../harnesses/view.ts";
import { WarmViews } from "../../harnesses/warm-views.ts";
import { weightOf } from "../../harnesses/weight.ts";
import type { SessionId } from "../../session-store/ids.ts";
import { TestLog } from "./logs.ts";

const id = (n: number) => `sesn_${n}` as SessionId;

function viewOf(text = "hello"): LogView {
  const view = new LogView();
  view.fold(new TestLog().message(text).stored);
  return view;
}
const ONE = viewOf().bytes;

describe("what a worker keeps", () => {
  test("is given out once: whoever takes a view is its only user", () => {
    const views = new WarmViews();
    const view = viewOf();
    views.keep(id(1), view);
    expect(views.take(id(1))).toBe(view);
    expect(views.take(id(1))).toBeNull();
    expect({ size: views.size, bytes: views.bytes }).toEqual({ size: 0, bytes: 0 });
  });

  test("stays below its bound: what was used the longest ago goes first", () => {
    const views = new WarmViews({ bytesMax: 3 * ONE });
    for (const n of [1, 2, 3]) views.keep(id(n), viewOf());
    const first = views.take(id(1));
    if (!first) throw new Error("the first view is missing");
    views.keep(id(1), first);
    views.keep(id(4), viewOf());
    expect(views.bytes).toBe(3 * ONE);
    expect([1, 2, 3, 4].filter((n) => views.take(id(n)) !== null)).toEqual([1, 3, 4]);
  });

  test("has no view above the bound of one, and puts none out for it", () => {
    const views = new WarmViews({ bytesMax: 10 * ONE, viewBytesMax: 2 * ONE });
    views.keep(id(1), viewOf());
    views.keep(id(2), viewOf("a".repeat(2 * ONE)));
    expect(views.take(id(2))).toBeNull();
    expect(views.take(id(1))).not.toBeNull();
  });

  test("is counted once where a session is kept again, grown or too large by now", () => {
    const views = new WarmViews({ viewBytesMax: 2 * ONE });
    views.keep(id(1), viewOf());
    views.keep(id(1), viewOf());
    expect({ size: views.size, bytes: views.bytes }).toEqual({ size: 1, bytes: ONE });
    views.keep(id(1), viewOf("a".repeat(2 * ONE)));
    expect({ size: views.size, bytes: views.bytes }).toEqual({ size: 0, bytes: 0 });
  });

  test("goes after a while in which nobody asked for it, also of a session that was deleted meanwhile", () => {
    vi.useFakeTimers();
    try {
      const views = new WarmViews({ ageMaxMs: 1_000 });
      views.keep(id(1), viewOf());
      vi.advanceTimersByTime(600);
      views.keep(id(2), viewOf());
      vi.advanceTimersByTime(500);
      expect(views.take(id(1))).toBeNull();
      expect(views.size).toBe(1);
      vi.advanceTimersByTime(2_000);
      expect({ size: views.size, bytes: views.bytes, timers: vi.getTimerCount() }).toEqual({ size: 0, bytes: 0, timers: 0 });
    } finally {
      vi.useRealTimers();
    }
  });
});

describe("the weight of a value", () => {
  test("is no less than its text, however deep it is nested", () => {
    let deep: unknown = "end";
    for (let depth = 0; depth < 100_000; depth += 1) deep = [deep];
    expect(weightOf(deep)).toBeGreaterThan(100_000);
    const entry = new TestLog().message("a".repeat(10_000)).stored;
    expect(weightOf(entry)).toBeGreaterThan(JSON.stringify(entry).length);
  });
});
