// `manyhands vault rotate`: a new master key for a file vault that nobody has open.
//
//   The key file holds the new key in front of the old ones before the first record is sealed anew, and the new one alone after the last: wherever this is cut
//   off, the key file opens every record.

import { readConfig } from "./config.ts";
import { FileVault } from "./drivers/file/driver.ts";
import { Keyring, makeKey, VaultSettingError, writeKeyFile } from "./drivers/file/keyring.ts";
import { StoreTrouble } from "./store.ts";

const LOCK_WAIT_MS = 1_000;

try {
  process.stdout.write(`${await rotate()}\n`);
} catch (error) {
  const says = error instanceof StoreTrouble ? `${error.message} ${error.detail}` : error instanceof Error ? error.message : String(error);
  process.stderr.write(`manyhands vault rotate: ${says}\n`);
  process.exitCode = error instanceof StoreTrouble ? 1 : 2;
}

async function rotate(): Promise<string> {
  const { vaultFolder, vaultKey, server } = readConfig();
  if (server !== null) throw new VaultSettingError("VAULT_ADDR is set: that server has keys of its own (`vault operator rotate`).");
  if (vaultKey.type !== "file")
    throw new VaultSettingError(
      "The vault's key is not in a file of ours: put a new key in front of the old one where it comes from, and start again.",
    );
  const vault = await FileVault.open({ folder: vaultFolder, keys: vaultKey, lockWaitMs: LOCK_WAIT_MS });
  try {
    const key = makeKey();
    const both = vault.keys.with(key);
    await writeKeyFile(vaultKey.path, both);
    const count = await vault.rotate(both);
    await writeKeyFile(vaultKey.path, new Keyring([key]));
    return `The vault has a new key (${key.kid}); ${count} ${count === 1 ? "record is" : "records are"} sealed by it.`;
  } finally {
    await vault.close();
  }
}
