// The API under fifty thousand generated requests (F1 to F3 of test/fuzz/run.ts), and the same on products that break one of its rules: there
// something must be found. REQUESTS=n sends another number.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Sabotage, sabotaged } from "../chaos/sabotage.ts";
import { seeded } from "../chaos/seed.ts";
import { fuzzProduct } from "../fuzz/product.ts";
import { tell } from "../fuzz/run.ts";

const REQUESTS = Number(process.env.REQUESTS ?? 50_000);
const CONTROL_REQUESTS = 3_000;
const DEADLINE_MS = 45 * 60_000;

let work = "";
const { seed } = seeded("fuzz");
beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), "manyhands-fuzz-"));
});
afterAll(() => rm(work, { recursive: true, force: true }));

test("fifty thousand generated requests give no 5xx, leave nothing half-stored and break nothing", async () => {
  const report = await fuzzProduct({ seed, requests: REQUESTS, deadlineMs: DEADLINE_MS });
  process.stderr.write(`${tell(report)}\n`);
  expect(report.faults).toEqual([]);
  expect(report.badLines).toEqual([]);
  expect(report.requests).toBe(REQUESTS);
  expect(report.code).toBe(0);
});

const CONTROLS: readonly (Sabotage & { readonly found: RegExp })[] = [
  {
    name: "a bug instead of a refusal",
    file: "gateway/http/check.js",
    line: 'throw invalid(says.join("; "), explain?.(findings[0]?.path ?? ""));',
    instead: 'if (says.length > 2) throw new TypeError("a bug"); throw invalid(says.join("; "));',
    found: /^500 /,
  },
  {
    name: "an agent that is stored and then refused",
    file: "gateway/http/agents.js",
    line: 'throw new Error("a put of two documents gave none");',
    instead: 'throw new Error("none"); if (agent.system) throw invalid("system: is refused too late");',
    found: /^agent .* never acknowledged$/,
  },
  {
    name: "a title that is taken before the rest is looked at",
    file: "gateway/http/agents.js",
    line: "const after = changed(before, value);",
    instead:
      "const after = value.metadata ? before : changed(before, value); if (value.metadata) { await update(door, call, { name: String(Math.random()) }); throw invalid('late'); }",
    found: /^a refused request changed /,
  },
  {
    name: "events that are stored and not shown",
    file: "gateway/http/event-list.js",
    line: "const wanted = entryTypes(types);",
    instead: 'const wanted = entryTypes(types).filter((type) => type !== "log.received");',
    found: /has lost sevt_/,
  },
  {
    name: "a field that the document does not name",
    file: "gateway/http/session-object.js",
    line: "deployment_id: null,",
    instead: "deployment_id: null, secret_field: 1,",
    found: /^an answer that the document does not know /,
  },
  {
    name: "a key that is said back",
    file: "gateway/authenticate.js",
    line: "found = hash;",
    instead: 'found = hash; if (!found) throw new Refusal("unauthenticated", "not " + headers["x-api-key"]);',
    found: /^a key is said back/,
  },
];

describe("the same finds", () => {
  for (const control of CONTROLS)
    test(control.name, async () => {
      const dist = await sabotaged(work, control);
      const { faults } = await fuzzProduct({ seed, requests: CONTROL_REQUESTS, deadlineMs: DEADLINE_MS, dist });
      expect(faults).toContainEqual(expect.stringMatching(control.found));
    });
});
