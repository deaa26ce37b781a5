// Promises and proofs belong together: every promise is proved by some test, and every proof names a promise.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { PROMISES } from "./promises.ts";
import { ROOT } from "./support/process.ts";

const proofs = new Map<string, string[]>();
const files = readdirSync(join(ROOT, "test"), { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && /\.test\.ts$/.test(entry.name) && entry.name !== "promises.test.ts")
  .map((entry) => join(entry.parentPath, entry.name));
for (const file of files) {
  for (const [, id = ""] of readFileSync(file, "utf8").matchAll(/\bproves\(\s*["'`]([^"'`]+)["'`]/g))
    proofs.set(id, [...(proofs.get(id) ?? []), file]);
}

test("test files and proofs were found at all", () => {
  expect(files.length).toBeGreaterThan(3);
  expect(proofs.size).toBeGreaterThan(0);
});

test("every promise is proved by some test", () => {
  expect(Object.keys(PROMISES).filter((id) => !proofs.has(id))).toEqual([]);
});

test("every proof names a promise", () => {
  expect([...proofs.keys()].filter((id) => !Object.hasOwn(PROMISES, id))).toEqual([]);
});

test("README.md quotes every promise word for word", () => {
  const readme = readFileSync(join(ROOT, "README.md"), "utf8");
  expect(Object.values(PROMISES).filter((says) => !readme.includes(says))).toEqual([]);
});
