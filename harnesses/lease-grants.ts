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
  readonly #made = new Map<GrantUse, { readonly text: Promise<string>; readonly until: number }>();

  constructor(mint: MintGrant, lease: Lease, view: () => LogView) {
    this.#mint = mint;
    this.#lease = lease;
    this.#view = view;
  }

  of(use: GrantUse): Promise<string> {
    const known = this.#made.get(use);
    if (known && known.until >= performance.now()) return known.text;
    const { vaultIds, workspace } = this.#view();
    const { text, lifeMs } = this.#mint({ session: this.#lease.id, fence: this.#lease.fence, vaults: vaultIds, workspace, use });
    this.#made.set(use, { text, until: performance.now() + lifeMs * LIFE_USED });
    return text;
  }

  /** For a hand host; undefined: the session has no vaults. */
  async forHands(): Promise<string | undefined> {
    return this.#view().vaultIds.length === 0 ? undefined : await this.of("mcp");
  }
}
