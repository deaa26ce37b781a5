// Are the vaults that a request names there? The vault proxy knows.

import { Refusal } from "../../session-store/refusal.ts";
import { invalid } from "../answer.ts";
import type { Asker, Door } from "./call.ts";

export const VAULTS_MAX = 50;

/** Every vault is there, in this workspace, and not archived. */
export async function checkVaults(door: Pick<Door, "vaultProxy">, call: Asker, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  const found = door.vaultProxy ? await door.vaultProxy.check(call, ids) : { unknown: ids, archived: [] };
  const [unknown] = found.unknown;
  if (unknown !== undefined) throw new Refusal("not_found", `vault_ids.${ids.indexOf(unknown)}: There is no such vault.`);
  const [archived] = found.archived;
  if (archived !== undefined) throw invalid(`vault_ids.${ids.indexOf(archived)}: Vault ${archived} is archived.`);
}
