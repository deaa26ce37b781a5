// The API under fifty thousand generated requests. F1–F3 of test/fuzz/run.ts. REQUESTS=n runs another number.

import { expect, test } from "vitest";
import { seeded } from "../chaos/seed.ts";
import { fuzzProduct } from "../fuzz/product.ts";
import { tell } from "../fuzz/run.ts";

const REQUESTS = Number(process.env.REQUESTS ?? 50_000);
const DEADLINE_MS = 45 * 60_000;

test("fifty thousand generated requests give no 5xx, leave nothing half-stored and break nothing", async () => {
  const { seed } = seeded("fuzz");
  const report = await fuzzProduct({ seed, requests: REQUESTS, deadlineMs: DEADLINE_MS });
  process.stderr.write(`${tell(report)}\n`);
  expect(report.faults).toEqual([]);
  expect(report.badLines).toEqual([]);
  expect(report.requests).toBe(REQUESTS);
  expect(report.code).toBe(0);
});
