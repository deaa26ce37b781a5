// How a session's sandbox may go out: its environment's networking, read once a lease, and a grant that names it.
//
//   O1  Nothing is read before a call needs the sandbox.
//   O2  The policy itself goes beside the grant, which holds its hash: a list of hosts may be longer than a token.
//   O3  A grant is nearly fresh with each call: it outlasts the longest command.
//   O4  Repositories are reached whatever the networking: its grant is for git alone where nothing else is let out.

import { createHash } from "node:crypto";
import { z } from "zod";
import type { WayOut } from "../hands/hand.ts";
import type { AgentSnapshot } from "../session-store/events/log.ts";
import type { GrantUse } from "./grant.ts";
import type { LeaseContext } from "./host-context.ts";
import { serversOf } from "./tools.ts";
import type { LogView } from "./view.ts";

const FRESH_MS = 20_000;

/** Of an environment's document, what is needed here. */
const Body = z.object({
  environment: z.object({
    config: z.object({
      networking: z.discriminatedUnion("type", [
        z.object({ type: z.literal("unrestricted") }),
        z.object({
          type: z.literal("limited"),
          allowed_hosts: z.array(z.string()),
          allow_mcp_servers: z.boolean(),
          allow_package_managers: z.boolean(),
        }),
      ]),
    }),
  }),
});
/** A policy that opens nothing. */
const NOTHING = JSON.stringify({ type: "limited", hosts: [], package_managers: false });

type Networking = z.infer<typeof Body>["environment"]["config"]["networking"];

export class LeaseWayOut {
  readonly #context: Pick<LeaseContext, "store" | "lease" | "mintGrant">;
  readonly #view: () => LogView;
  #networking: Promise<Networking | null> | null = null;
  #made: { readonly wayOut: Promise<WayOut>; readonly network: string; readonly until: number } | null = null;

  constructor(context: Pick<LeaseContext, "store" | "lease" | "mintGrant">, view: () => LogView) {
    this.#context = context;
    this.#view = view;
  }

  /** Undefined: the environment lets nothing out, and there are no repositories. O4 */
  async current(): Promise<WayOut | undefined> {
    this.#networking ??= this.#read();
    const networking = await this.#networking.catch((error: unknown) => {
      this.#networking = null;
      throw error;
    });
    const opened = networking && networkOf(networking, this.#view().agent);
    const hasRepositories = this.#view().repositories.all.length > 0;
    if (opened === null && !hasRepositories) return undefined;
    const network = opened ?? NOTHING;
    const use = [...(opened === null ? [] : ["egress" as const]), ...(hasRepositories ? ["git" as const] : [])];
    if (this.#made?.network !== network || this.#made.until < performance.now())
      this.#made = { wayOut: this.#grant(network, use), network, until: performance.now() + FRESH_MS };
    return await this.#made.wayOut;
  }

  async #read(): Promise<Networking | null> {
    const { workspace, environmentId } = this.#view();
    const document = await this.#context.store.get(workspace, "environment", environmentId);
    const body = Body.safeParse(document?.body);
    return body.success ? body.data.environment.config.networking : null;
  }

  async #grant(network: string, use: readonly GrantUse[]): Promise<WayOut> {
    const { lease, mintGrant } = this.#context;
    const { vaultIds: vaults, workspace } = this.#view();
    const hash = createHash("sha256").update(network).digest("base64url");
    const { text } = mintGrant({ session: lease.id, fence: lease.fence, vaults, workspace, use, network: hash });
    return { grant: await text, network };
  }
}

/** The policy as the vault proxy reads it; null: it lets nothing out. */
function networkOf(networking: Networking, agent: AgentSnapshot): string | null {
  if (networking.type === "unrestricted") return JSON.stringify({ type: "unrestricted" });
  const { allowed_hosts, allow_mcp_servers, allow_package_managers } = networking;
  const hosts = [...allowed_hosts, ...(allow_mcp_servers ? serversOf(agent).flatMap(({ url }) => placeIn(url)) : [])];
  if (hosts.length === 0 && !allow_package_managers) return null;
  return JSON.stringify({ type: "limited", hosts, package_managers: allow_package_managers });
}

/** The host and port of a server's address; none of one that is only a name. */
function placeIn(address: string): string[] {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (url === null || (url.protocol !== "https:" && url.protocol !== "http:")) return [];
  return [`${url.hostname}:${url.port || (url.protocol === "https:" ? 443 : 80)}`];
}
