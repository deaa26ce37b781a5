// The API under generated requests, on the product as it is started. A short run; the long one is test/proof/fuzz.test.ts.

import { expect, test } from "vitest";
import { seeded } from "../chaos/seed.ts";
import { fuzzProduct } from "../fuzz/product.ts";
import { tell } from "../fuzz/run.ts";

const REQUESTS = 1_500;

test(`${REQUESTS} generated requests give no 5xx, leave nothing half-stored and break nothing`, async () => {
  const { seed } = seeded("fuzz");
  const report = await fuzzProduct({ seed, requests: REQUESTS, deadlineMs: 90_000 });
  process.stderr.write(`${tell(report)}\n`);
  expect(report.faults).toEqual([]);
  expect(report.badLines).toEqual([]);
  expect(report.requests).toBe(REQUESTS);
  expect(report.statuses.get(200)).toBeGreaterThan(REQUESTS / 10);
  expect(report.statuses.get(400)).toBeGreaterThan(REQUESTS / 10);
  expect(report.compared).toBeGreaterThan(5);
  expect(report.code).toBe(0);
});
