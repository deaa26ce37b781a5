// One OAuth credential inside its vault's record: read and changed by compare-and-set.

import type { OAuth } from "../api/auth-schema.ts";
import type { StoredVault } from "../api/record.ts";
import { ApiRefusal } from "../api/refusal.ts";
import { later, type Vaults } from "../api/vaults.ts";
import { StoreTrouble } from "../store.ts";

/** Where a credential is. */
export interface Place {
  readonly workspace: string;
  readonly vault: string;
  readonly credential: string;
}

/** Null: it is gone, or archived, or of another type. */
export async function readOAuth(vaults: Vaults, { workspace, vault, credential }: Place): Promise<OAuth | null> {
  try {
    return oauthIn((await vaults.read(workspace, vault)).vault, credential);
  } catch (error) {
    if (isAbsence(error)) return null;
    throw error;
  }
}

/** Changes one credential's tokens; null of `change`: as it is. Gives what is stored then; null: it is gone. */
export async function changeOAuth(vaults: Vaults, place: Place, change: (now: OAuth) => OAuth | null): Promise<OAuth | null> {
  try {
    const { vault } = await vaults.change(place.workspace, place.vault, (before) => {
      const auth = oauthIn(before, place.credential);
      const fresh = auth && change(auth);
      if (!fresh) return null;
      const isNew = fresh.access_token !== auth.access_token || fresh.refused !== auth.refused;
      const credentials = before.credentials.map((each) =>
        each.id === place.credential ? { ...each, auth: fresh, updatedAt: isNew ? later(each) : each.updatedAt } : each,
      );
      return { ...before, credentials };
    });
    return oauthIn(vault, place.credential);
  } catch (error) {
    if (isAbsence(error)) return null;
    throw error;
  }
}

/** What a write came to, where the storage's trouble is one of the things that it may come to. */
export async function tried<T>(work: Promise<T>): Promise<T | "trouble"> {
  try {
    return await work;
  } catch (error) {
    if (isStorageTrouble(error)) return "trouble";
    throw error;
  }
}

/** The storage can't do it now: its own trouble, a record that is full, too many writers. */
export const isStorageTrouble = (error: unknown): error is StoreTrouble | ApiRefusal =>
  error instanceof StoreTrouble || (error instanceof ApiRefusal && error.status !== 404);

const isAbsence = (error: unknown): boolean => error instanceof ApiRefusal && error.status === 404;

function oauthIn(vault: StoredVault, id: string): OAuth | null {
  const found = vault.credentials.find((each) => each.id === id && each.archivedAt === null);
  return found?.auth.type === "mcp_oauth" ? found.auth : null;
}
