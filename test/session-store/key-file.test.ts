import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readKeyFile } from "../../session-store/key-file.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-key-file-"));
});
afterEach(() => rm(folder, { recursive: true }));

test("a key is its file's text without the line's end", async () => {
  await writeFile(join(folder, "hand.key"), "one-key\n");
  expect(await readKeyFile(join(folder, "hand.key"))).toEqual({ type: "key", text: "one-key" });
});

test("a file that gives no key says which of the three troubles it is", async () => {
  await writeFile(join(folder, "empty"), " \n");
  await mkdir(join(folder, "folder"));
  expect(await readKeyFile(join(folder, "none"))).toEqual({ type: "unusable", why: "is missing" });
  expect(await readKeyFile(join(folder, "empty"))).toEqual({ type: "unusable", why: "is empty" });
  expect(await readKeyFile(join(folder, "folder"))).toEqual({ type: "unusable", why: "can't be read (EISDIR)" });
});
