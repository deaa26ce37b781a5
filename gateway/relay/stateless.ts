// A client of the stateless era at a hand of the stateless era: every request by itself.
//
//   T1  Closing a request's stream closes the hand's: that calls it off.
//   T2  State, cursors and handles are the hand's: they pass byte for byte, both ways, and are never read.
//   T3  Headers that repeat a tool's arguments are held against them where the tool's approved definition says which; the hand does it in any case.

import { headersOf } from "../../hands/servers/param-headers.ts";
import { RpcError } from "../mcp/rpc.ts";
import type { Eras } from "./eras.ts";
import { CLIENT_CAPABILITIES, decoded, HEADER_MISMATCH, UNSUPPORTED_VERSION } from "./inbound.ts";
import { MessageLooker } from "./looks.ts";
import { pass } from "./passing.ts";
import type { Pool } from "./pool.ts";
import { passedHeaders, type Visit } from "./visit.ts";

const LISTEN = "subscriptions/listen";

export interface StatelessOptions {
  readonly pool: Pool;
  readonly eras: Eras;
  readonly keepAliveMs: number;
  readonly stopped: AbortSignal;
  /** Anonymous calls are taken: what a list shows depends on nobody. */
  readonly isOpen: boolean;
}

export class StatelessRelay {
  readonly #options: StatelessOptions;

  constructor(options: StatelessOptions) {
    this.#options = options;
  }

  async post(visit: Visit): Promise<void> {
    const { request, response, upstream, inbound } = visit;
    if (!inbound || inbound.message.kind === "response") throw new Error("a response came as far as the hand");
    const { message, body } = inbound;
    const { method, params } = message;
    const id = message.kind === "request" ? message.id : null;
    if (method === "tools/call") refuseOtherArguments(visit, params);
    const looker = new MessageLooker({
      era: "stateless",
      id,
      method,
      policy: upstream.policy,
      caching: this.#cachingOf(visit),
      capabilities: () =>
        typeof params._meta === "object" && params._meta !== null
          ? Object.entries(params._meta).find(([key]) => key === CLIENT_CAPABILITIES)?.[1]
          : {},
      refuse: () => {},
    });
    visit.seen = looker;
    const { pool, eras, keepAliveMs, stopped } = this.#options;
    await pass(
      pool,
      upstream.address,
      { method: "POST", headers: passedHeaders(request.headers, true), body },
      {
        response,
        id,
        times: method === LISTEN ? null : upstream.times,
        keepAliveMs,
        looker,
        isCollected: looker.isCollected,
        statusOf: (status) => looker.statusOf(status),
        hasSession: false,
        stopped,
      },
    );
    if (looker.errorCode === String(UNSUPPORTED_VERSION)) eras.forget(upstream);
  }

  #cachingOf({ upstream }: Visit): "as-is" | "private" | "none" {
    if (upstream.hand.vault_ids.length > 0 || !upstream.policy.isOpen) return "none";
    return this.#options.isOpen ? "as-is" : "private";
  }
}

/** T3 */
function refuseOtherArguments({ request, upstream }: Visit, params: Readonly<Record<string, unknown>>): void {
  const schema = upstream.hand.tools?.find(({ name }) => name === params.name)?.input_schema;
  for (const [name, value] of Object.entries(headersOf(schema, params.arguments))) {
    const said = request.headers[name.toLowerCase()];
    if (typeof said !== "string" || decoded(said.trim()) !== decoded(value))
      throw new RpcError(HEADER_MISMATCH, `Header mismatch: the ${name} header and the argument that it repeats differ`);
  }
}
