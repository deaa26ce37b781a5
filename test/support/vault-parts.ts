// What a vault proxy inside a test's process stands on: a file vault and an audit in a folder of the test's own.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Logger } from "pino";
import { Audit } from "../../vault-proxy/audit.ts";
import { FileVault } from "../../vault-proxy/drivers/file/driver.ts";
import { Way, type WayOptions } from "../../vault-proxy/egress/way.ts";
import { GitHosts } from "../../vault-proxy/git/hosts.ts";
import { Spend } from "../../vault-proxy/models/spend.ts";
import { Reach } from "../../vault-proxy/reach.ts";

export interface EgressParts extends WayOptions {
  /** Internal hosts that hands may reach. */
  readonly hosts?: readonly string[];
}

export interface VaultParts {
  readonly folder: string;
  readonly vaults: FileVault;
  readonly audit: Audit;
  readonly reach: Reach;
  readonly egressWay: Way;
  readonly gitHosts: GitHosts;
  readonly spend: Spend;
  /** `isKept`: the folder stays, for the next one. */
  close(isKept?: boolean): Promise<void>;
}

export interface VaultPartsChoice {
  readonly internalHosts?: readonly string[];
  readonly egress?: EgressParts;
  /** Where repositories may be, beside GitHub. */
  readonly gitOrigins?: readonly string[];
  /** One that is there already. */
  readonly folder?: string;
}

export async function openVaultParts(
  log: Logger,
  { internalHosts = [], egress = {}, gitOrigins = [], folder: kept }: VaultPartsChoice = {},
): Promise<VaultParts> {
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
    gitHosts: new GitHosts(gitOrigins),
    egressWay: new Way(new Reach(egress.hosts ?? []), egress),
    async close(isKept = false) {
      await vaults.close();
      await audit.close();
      spend.close();
      if (!isKept) await rm(folder, { recursive: true, force: true });
    },
  };
}
