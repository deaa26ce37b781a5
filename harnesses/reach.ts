// What a leased session may reach through others, and by which short-lived paper: the model through the vault proxy, its own hands through their door.

import type { HarnessSession } from "./harness.ts";
import type { LeaseContext } from "./host-context.ts";
import type { LogView } from "./view.ts";

/** A grant that is older than this share of its life is minted anew. */
const GRANT_LIFE_USED = 0.6;

export class Reach implements Pick<HarnessSession, "model" | "hands"> {
  readonly #context: LeaseContext;
  readonly #view: () => LogView;
  #grant: { readonly text: Promise<string>; readonly until: number } | null = null;

  constructor(context: LeaseContext, view: () => LogView) {
    this.#context = context;
    this.#view = view;
  }

  readonly model: HarnessSession["model"] = async () => {
    if (!this.#grant || this.#grant.until < performance.now()) {
      const { lease, mintGrant } = this.#context;
      const minted = mintGrant({ session: lease.id, fence: lease.fence, vaults: this.#view().vaultIds });
      this.#grant = { text: minted.text, until: performance.now() + minted.lifeMs * GRANT_LIFE_USED };
    }
    return { baseURL: `${this.#context.vaultUrl}/model`, grant: await this.#grant.text };
  };

  readonly hands: HarnessSession["hands"] = async () => {
    const { handsDoor, lease } = this.#context;
    const url = handsDoor?.url();
    if (!handsDoor || url === undefined) throw new Error("This worker knows no gateway (MANYHANDS_GATEWAY_URL): nobody serves a session's hands.");
    const { id: session, fence } = lease;
    const { key } = await handsDoor.keys.mint({ session, fence, by: { type: "turn", fence } });
    return { url: `${url}/mcp/sessions/${session}`, key };
  };
}
