// The grants of one lease: made at first need, renewed well before they end.

import type { Lease } from "../session-store/due.ts";
import type { GrantUse, MintGrant } from "./grant.ts";
import type { LogView } from "./view.ts";

/** The part of a grant's life after which a new one is made. */
const LIFE_USED = 0.6;

export class LeaseGrants {
  readonly #mint: MintGrant;
  readonly #lease: Lease;
  readonly #view: () => LogView;
  /** By use and vaults. */
  readonly #made = new Map<string, { readonly text: Promise<string>; readonly until: number }>();

  constructor(mint: MintGrant, lease: Lease, view: () => LogView) {
    this.#mint = mint;
    this.#lease = lease;
    this.#view = view;
  }

  of(use: GrantUse, vaults: readonly string[] = this.#view().vaultIds): Promise<string> {
    const key = [use, ...vaults].join(" ");
    const known = this.#made.get(key);
    if (known && known.until >= performance.now()) return known.text;
    const { workspace } = this.#view();
    const { text, lifeMs } = this.#mint({ session: this.#lease.id, fence: this.#lease.fence, vaults, workspace, use });
    this.#made.set(key, { text, until: performance.now() + lifeMs * LIFE_USED });
    return text;
  }

  /** For a hand host; undefined: there are no vaults. */
  async forHands(vaults: readonly string[]): Promise<string | undefined> {
    return vaults.length === 0 ? undefined : await this.of("mcp", vaults);
  }
}
