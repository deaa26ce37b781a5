// When a failed model request is tried again.

import { describe, expect, test } from "vitest";
import { retryAfter } from "../../harnesses/retry.ts";
import { WAIT_MAX_MS } from "../../session-store/due.ts";

describe("a retry", () => {
  const failure = { type: "model_overloaded_error", message: "m", isTransient: true } as const;
  test("backs off, and never waits shorter than the server asked", () => {
    expect([0, 1, 2, 3].map((failures) => retryAfter(failure, failures, () => 0.999))).toEqual(
      [500, 1_000, 2_000, 4_000].map((ms) => ({ type: "wait", ms: expect.toSatisfy((wait: number) => wait <= ms && wait > ms * 0.99) })),
    );
    for (const dice of [0, 0.5, 0.99])
      expect(retryAfter({ ...failure, retryAfterMs: 30_000 }, 0, () => dice)).toEqual({
        type: "wait",
        ms: expect.toSatisfy((wait: number) => wait >= 30_000 && wait <= 37_500),
      });
    expect(retryAfter({ ...failure, retryAfterMs: 3_000_000 }, 0, () => 0.999)).toEqual({ type: "wait", ms: WAIT_MAX_MS });
  });

  test("is refused after five attempts in a row, for what will not pass, and for what would take for ever", () => {
    expect(retryAfter(failure, 4, Math.random)).toEqual({ type: "exhausted" });
    expect(retryAfter({ ...failure, isTransient: false }, 0, Math.random)).toEqual({ type: "exhausted" });
    expect(retryAfter({ ...failure, retryAfterMs: 86_400_000 }, 0, Math.random)).toEqual({ type: "exhausted" });
  });
});
