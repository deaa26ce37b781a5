// Records that the file vault keeps opened: what is given is what the file holds, whoever changed it.

import { copyFile, mkdtemp, rm, utimes } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { FileVault } from "../../vault-proxy/drivers/file/driver.ts";
import { until } from "../support/until.ts";

const key = (id: string) => ({ workspace: "default", kind: "vault", id }) as const;
let folder: string;
let vault: FileVault;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-opened-"));
  vault = await FileVault.open({ folder: join(folder, "vault"), keys: { type: "file", path: join(folder, "vault", "master.key"), isOwn: true } });
});
afterEach(async () => {
  await vault.close();
  await rm(folder, { recursive: true });
});

/** Until the record is kept: a file that was changed a moment ago is not. */
async function kept(id: string): Promise<unknown> {
  const first = await until(async () => {
    const opened = await vault.get(key(id));
    return opened !== null && (await vault.get(key(id))) === opened ? opened : undefined;
  });
  return first.body;
}

test("a record that is kept opened is given again, and a write or a removal of ours is seen at once", async () => {
  await vault.put(key("vlt_a"), { n: 1 }, 0);
  expect(await kept("vlt_a")).toEqual({ n: 1 });
  for (let n = 2; n < 30; n += 1) {
    // Readers that are under way when the write comes must not leave the old record behind.
    const readers = Array.from({ length: 8 }, () => vault.get(key("vlt_a")));
    expect(await vault.put(key("vlt_a"), { n }, n - 1)).toBe(n);
    expect(await vault.get(key("vlt_a"))).toEqual({ body: { n }, revision: n });
    await Promise.all(readers);
    expect(await vault.get(key("vlt_a"))).toEqual({ body: { n }, revision: n });
  }
  expect(await kept("vlt_a")).toEqual({ n: 29 });
  await vault.remove(key("vlt_a"));
  expect(await vault.get(key("vlt_a"))).toBeNull();
});

test("what somebody else did to a kept record's file shows within a moment", async () => {
  const file = join(folder, "vault", "vault", "default", "vlt_a");
  await vault.put(key("vlt_a"), { n: 1 }, 0);
  await copyFile(file, join(folder, "copy"));
  await vault.put(key("vlt_a"), { n: 2 }, 1);
  expect(await kept("vlt_a")).toEqual({ n: 2 });
  await copyFile(join(folder, "copy"), file);
  await utimes(file, new Date(0), new Date(0));
  expect(await until(async () => ((await vault.get(key("vlt_a")))?.revision === 1 ? "seen" : undefined))).toBe("seen");
});
