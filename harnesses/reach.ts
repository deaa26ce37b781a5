// What a leased session may reach through others, and by which short-lived paper: the model through the vault proxy, its own hands through their door.

import type { HarnessSession } from "./harness.ts";
import type { LeaseContext } from "./host-context.ts";
import type { LeaseGrants } from "./lease-grants.ts";

export class Reach implements Pick<HarnessSession, "model" | "hands"> {
  readonly #context: LeaseContext;
  readonly #grants: LeaseGrants;

  constructor(context: LeaseContext, grants: LeaseGrants) {
    this.#context = context;
    this.#grants = grants;
  }

  readonly model: HarnessSession["model"] = async () => ({
    baseURL: `${this.#context.vaultUrl}/model`,
    grant: await this.#grants.of("model"),
  });

  readonly hands: HarnessSession["hands"] = async () => {
    const { handsDoor, lease } = this.#context;
    const url = handsDoor?.url();
    if (!handsDoor || url === undefined) throw new Error("This worker knows no gateway (MANYHANDS_GATEWAY_URL): nobody serves a session's hands.");
    const { id: session, fence } = lease;
    const { key } = await handsDoor.keys.mint({ session, fence, by: { type: "turn", fence } });
    return { url: `${url}/mcp/sessions/${session}`, key };
  };
}
