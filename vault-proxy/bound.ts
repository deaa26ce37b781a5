// Which credential opens a server, for a grant.
//
//   C1  The first one wins: the vaults in the grant's order, and in each the active credential whose address is the server's (compared as the API
//       compares addresses: origin in lower case, default port and last slash dropped, path and query exact). At most one a vault is.
//   C2  It is read anew for every use: what was rotated, archived or signed in anew counts from the next request on, on every proxy.
//   C3  A vault that is not there has nothing; one that can't be read is no answer at all.

import { keyOf, keyOfUrl } from "./api/auth.ts";
import type { StoredAuth } from "./api/auth-schema.ts";
import type { StoredVault } from "./api/record.ts";
import { ApiRefusal } from "./api/refusal.ts";
import type { Vaults } from "./api/vaults.ts";
import type { Grant } from "./grant.ts";
import type { Place } from "./oauth/stored.ts";

/** More than a session may have. */
const VAULTS_MAX = 50;

export interface Bound {
  readonly place: Place;
  readonly auth: Exclude<StoredAuth, { type: "environment_variable" }>;
}

/** Null: the server has none. Throws the storage's trouble. C1 C3 */
export async function boundTo(vaults: Vaults, { workspace, vaults: ids }: Grant, server: URL): Promise<Bound | null> {
  if (workspace === null) return null;
  const wanted = keyOfUrl(server);
  const read = await Promise.all(ids.slice(0, VAULTS_MAX).map(async (id) => ({ id, vault: await find(vaults, workspace, id) })));
  for (const { id, vault } of read) {
    const found = vault?.credentials.find((each) => each.archivedAt === null && keyOf(each.auth) === wanted);
    if (found !== undefined && found.auth.type !== "environment_variable")
      return { place: { workspace, vault: id, credential: found.id }, auth: found.auth };
  }
  return null;
}

async function find(vaults: Vaults, workspace: string, id: string): Promise<StoredVault | null> {
  if (!/^vlt_[0-9A-Za-z]{1,64}$/.test(id)) return null;
  try {
    return (await vaults.read(workspace, id)).vault;
  } catch (error) {
    if (error instanceof ApiRefusal && error.status === 404) return null;
    throw error;
  }
}
