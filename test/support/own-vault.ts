// A file vault in a folder of its own, for a test that has no other: opened by its first use, gone with its close.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FileVault } from "../../vault-proxy/drivers/file/driver.ts";
import type { VaultStore } from "../../vault-proxy/store.ts";

export function ownVault(): VaultStore {
  let opened: Promise<{ vault: FileVault; folder: string }> | null = null;
  const open = async () => {
    const folder = await mkdtemp(join(tmpdir(), "manyhands-own-vault-"));
    return { folder, vault: await FileVault.open({ folder, keys: { type: "file", path: join(folder, "master.key"), isOwn: true } }) };
  };
  const vault = async () => {
    opened ??= open();
    return (await opened).vault;
  };
  return {
    driver: "file",
    get: async (...given) => (await vault()).get(...given),
    put: async (...given) => (await vault()).put(...given),
    remove: async (...given) => (await vault()).remove(...given),
    ids: async (...given) => (await vault()).ids(...given),
    async close() {
      if (opened === null) return;
      const { vault, folder } = await opened;
      await vault.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
