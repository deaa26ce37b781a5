// A test that proves a promise. The first argument names the promise in test/promises.ts; promises.test.ts holds the two together.

import { test } from "vitest";
import { PROMISES, type PromiseId } from "../promises.ts";

/** `test`, for a promise: a failure names the promise that it broke. */
export function proves(id: PromiseId, name: string, fn: () => Promise<void> | void, timeoutMs?: number): void {
  test(`${name} [${id}: ${PROMISES[id]}]`, fn, timeoutMs);
}
