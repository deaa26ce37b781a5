// A vault as it is kept, one record with its credentials inside, and as it is shown (contract §15).
//
//   O1  Everything that must hold for a vault as a whole (keys once, the number of credentials, the cascade of an archive) is decided on one record and
//       written by one step: there is no half of it.

import { z } from "zod";
import { keyOf, shownAuth } from "./auth.ts";
import { ShownAuth, StoredAuth } from "./auth-schema.ts";
import { CredentialId, rfc3339, time, VaultId } from "./fields.ts";

/** Who made it: the digest of an idempotency key (null: there was none) and that of the body. */
const Origin = z.strictObject({ key: z.string().nullable(), digest: z.string() });

const kept = {
  metadata: z.record(z.string(), z.string()),
  createdAt: z.number(),
  updatedAt: z.number(),
  archivedAt: z.number().nullable(),
  origin: Origin,
};
export const StoredCredential = z.strictObject({ id: CredentialId, display_name: z.string().nullable(), ...kept, auth: StoredAuth });
export type StoredCredential = z.infer<typeof StoredCredential>;
export const StoredVault = z.strictObject({ display_name: z.string(), ...kept, credentials: z.array(StoredCredential) });
export type StoredVault = z.infer<typeof StoredVault>;

const own = { metadata: z.record(z.string(), z.string()), created_at: time, updated_at: time, archived_at: time.nullable() };
export const Vault = z.strictObject({ id: VaultId, type: z.literal("vault"), display_name: z.string(), ...own });
export const Credential = z.strictObject({
  id: CredentialId,
  type: z.literal("vault_credential"),
  vault_id: VaultId,
  display_name: z.string().nullable(),
  auth: ShownAuth,
  ...own,
});

const times = ({ createdAt, updatedAt, archivedAt }: Pick<StoredVault, "createdAt" | "updatedAt" | "archivedAt">) => ({
  created_at: rfc3339(createdAt),
  updated_at: rfc3339(updatedAt),
  archived_at: archivedAt === null ? null : rfc3339(archivedAt),
});

export function wireOfVault(id: string, vault: StoredVault): z.infer<typeof Vault> {
  return { id, type: "vault", display_name: vault.display_name, metadata: vault.metadata, ...times(vault) };
}

export function wireOfCredential(vaultId: string, credential: StoredCredential): z.infer<typeof Credential> {
  const { id, display_name, metadata, auth } = credential;
  return { id, type: "vault_credential", vault_id: vaultId, display_name, auth: shownAuth(auth), metadata, ...times(credential) };
}

/** The active credential, another than `except`, that has this one's key. */
export function holderOf(vault: StoredVault, auth: StoredAuth, except = ""): StoredCredential | undefined {
  const key = keyOf(auth);
  return vault.credentials.find((each) => each.id !== except && each.archivedAt === null && keyOf(each.auth) === key);
}
