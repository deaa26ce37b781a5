// What a leased session may reach through others, and by which short-lived paper: the model and its servers through the vault proxy, its own hands
// through their door.

import type { Lease } from "../session-store/due.ts";
import type { HarnessSession } from "./harness.ts";
import type { HostContext } from "./host-context.ts";
import { LeaseGrants } from "./lease-grants.ts";
import type { LogView } from "./view.ts";
import { LeaseWayOut } from "./way-out.ts";

export class Reach implements Pick<HarnessSession, "model" | "hands"> {
  readonly grants: LeaseGrants;
  readonly wayOut: LeaseWayOut;
  readonly #context: HostContext;
  readonly #lease: Lease;

  constructor(context: HostContext, lease: Lease, view: () => LogView) {
    this.grants = new LeaseGrants(context.mintGrant, lease, view);
    this.wayOut = new LeaseWayOut({ ...context, lease }, view);
    this.#context = context;
    this.#lease = lease;
  }

  readonly model: HarnessSession["model"] = async () => {
    return { baseURL: `${this.#context.vaultUrl}/model`, grant: await this.grants.of("model") };
  };

  readonly hands: HarnessSession["hands"] = async () => {
    const { handsDoor } = this.#context;
    const url = handsDoor?.url();
    if (!handsDoor || url === undefined) throw new Error("This worker knows no gateway (MANYHANDS_GATEWAY_URL): nobody serves a session's hands.");
    const { id: session, fence } = this.#lease;
    const { key } = await handsDoor.keys.mint({ session, fence, by: { type: "turn", fence } });
    return { url: `${url}/mcp/sessions/${session}`, key };
  };
}
