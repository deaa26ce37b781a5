// What a vault proxy inside a test's process stands on: a file vault and an audit in a folder of the test's own.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Logger } from "pino";
import { Audit } from "../../vault-proxy/audit.ts";
import { FileVault } from "../../vault-proxy/drivers/file/driver.ts";
import { Reach } from "../../vault-proxy/reach.ts";

export interface VaultParts {
  readonly folder: string;
  readonly vaults: FileVault;
  readonly audit: Audit;
  readonly reach: Reach;
  /** `isKept`: the folder stays, for the next one. */
  close(isKept?: boolean): Promise<void>;
}

export async function openVaultParts(log: Logger, internalHosts: readonly string[] = [], kept?: string): Promise<VaultParts> {
  const folder = kept ?? (await mkdtemp(join(tmpdir(), "manyhands-vault-")));
  const vaults = await FileVault.open({ folder, keys: { type: "file", path: join(folder, "master.key"), isOwn: true } });
  const audit = await Audit.open(join(folder, "audit"), log);
  return {
    folder,
    vaults,
    audit,
    reach: new Reach(internalHosts),
    async close(isKept = false) {
      await vaults.close();
      await audit.close();
      if (!isKept) await rm(folder, { recursive: true, force: true });
    },
  };
}
