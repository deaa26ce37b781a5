// What a vault proxy inside a test's process stands on: a file vault and an audit in a folder of the test's own.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Logger } from "pino";
import { Audit } from "../../vault-proxy/audit.ts";
import { FileVault } from "../../vault-proxy/drivers/file/driver.ts";
import { Spend } from "../../vault-proxy/models/spend.ts";
import { Reach } from "../../vault-proxy/reach.ts";

export interface VaultParts {
  readonly folder: string;
  readonly vaults: FileVault;
  readonly audit: Audit;
  readonly reach: Reach;
  readonly spend: Spend;
  readonly egressReach: Reach;
  /** `isKept`: the folder stays, for the next one. */
  close(isKept?: boolean): Promise<void>;
}

export interface VaultPartsChoice {
  readonly internalHosts?: readonly string[];
  readonly egressHosts?: readonly string[];
  /** One that is there already. */
  readonly folder?: string;
}

export async function openVaultParts(log: Logger, { internalHosts = [], egressHosts = [], folder: kept }: VaultPartsChoice = {}): Promise<VaultParts> {
  const folder = kept ?? (await mkdtemp(join(tmpdir(), "manyhands-vault-")));
  const vaults = await FileVault.open({ folder, keys: { type: "file", path: join(folder, "master.key"), isOwn: true } });
  const audit = await Audit.open(join(folder, "audit"), log);
  const spend = new Spend(folder);
  return {
    folder,
    spend,
    vaults,
    audit,
    reach: new Reach(internalHosts),
    egressReach: new Reach(egressHosts),
    async close(isKept = false) {
      await vaults.close();
      await audit.close();
      spend.close();
      if (!isKept) await rm(folder, { recursive: true, force: true });
    },
  };
}
