// A session's `environment_variable` credentials: what stands for them in a hand, and what they are worth at which host.
//
//   S1  They are read for every request anew: what was archived or changed a moment ago is so for the next request.
//   S2  Of several credentials of one name the first in the order of the session's vaults counts, and in a vault there is one.
//   S3  A credential is used at its own hosts alone, and goes by TLS; without TLS only to places that the operator listed.

import { z } from "zod";
import { StoredVault } from "../api/record.ts";
import type { Grant } from "../grant.ts";
import { StoreTrouble, type VaultStore } from "../store.ts";
import { Authority } from "./authority.ts";
import { hasHost } from "./policy.ts";
import { Denied } from "./says.ts";

export interface Secret {
  readonly vault: string;
  readonly credential: string;
  readonly name: string;
  readonly placeholder: string;
  readonly value: string;
  readonly inHeader: boolean;
  readonly inBody: boolean;
  /** Null: every host. */
  readonly hosts: readonly string[] | null;
}

const VaultId = z.string().regex(/^vlt_[0-9A-Za-z]{1,64}$/);

export class Secrets {
  readonly #store: VaultStore;
  #authority: Promise<Authority> | null = null;

  constructor(store: VaultStore) {
    this.#store = store;
  }

  /** Throws `Denied` where the storage is in trouble; the next one asks again. */
  async authority(): Promise<Authority> {
    this.#authority ??= Authority.open(this.#store);
    try {
      return await this.#authority;
    } catch (error) {
      this.#authority = null;
      throw troubled(error);
    }
  }

  /** S1 S2 */
  async of(grant: Grant): Promise<readonly Secret[]> {
    const { workspace, vaults, sessionId } = grant;
    if (workspace === null || vaults.length === 0) return [];
    const found = new Map<string, Secret>();
    for (const id of vaults) {
      const vault = await this.#read(workspace, id);
      for (const { id: credential, auth, archivedAt } of vault?.archivedAt === null ? vault.credentials : []) {
        if (auth.type !== "environment_variable" || archivedAt !== null || auth.secret_value === null || found.has(auth.secret_name)) continue;
        found.set(auth.secret_name, {
          vault: id,
          credential,
          name: auth.secret_name,
          placeholder: (await this.authority()).placeholderOf(sessionId, id, credential),
          value: auth.secret_value,
          inHeader: auth.injection_location.header,
          inBody: auth.injection_location.body,
          hosts: auth.networking.type === "limited" ? auth.networking.allowed_hosts : null,
        });
      }
    }
    return [...found.values()];
  }

  /** S3 */
  async at(grant: Grant, host: string): Promise<readonly Secret[]> {
    return (await this.of(grant)).filter(({ hosts }) => hosts === null || hasHost(hosts, host));
  }

  async #read(workspace: string, id: string): Promise<StoredVault | null> {
    if (!VaultId.safeParse(id).success) return null;
    try {
      const found = await this.#store.get({ workspace, kind: "vault", id });
      return found && StoredVault.parse(found.body);
    } catch (error) {
      throw troubled(error);
    }
  }
}

function troubled(error: unknown): unknown {
  if (error instanceof z.ZodError) return new Denied("no_vault", null, "unreadable");
  return error instanceof StoreTrouble ? new Denied("no_vault", null, error.reason) : error;
}
