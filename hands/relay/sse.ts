// How servers of the older HTTP+SSE transport are reached for clients of the relay, and what a request says of one.
//
//   W1  The addresses and the way through the vault proxy are those of agents' servers (address.ts, vault-way.ts); the connections are not: each session
//       holds one for as long as it lasts.
//   W2  A server's address is in no log line but for its origin: it may itself be a secret.

import { createHash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { Trouble } from "../servers/connection.ts";
import { CONNECT_MS } from "../servers/limits.ts";
import { type Fetch, Reach } from "../servers/reach.ts";
import type { VaultWay } from "../servers/vault-way.ts";
import { TIMES, type Times } from "./link.ts";
import type { Brought } from "./session.ts";
import { SseLine } from "./sse-line.ts";

const CONNECTIONS_MAX = 2_048;
/** Until a server says where to post to: before whoever waits for its first answer gives up. */
const ENDPOINT_MS = CONNECT_MS - 5_000;
const URL_CHARS_MAX = 2_048;
/** Idle and total milliseconds, where a hand's record says them. */
const TIMES_FORM = /^(\d{1,9})?,(\d{1,9})?$/;

export class SseReach {
  readonly #reach: Reach;
  readonly #vault: VaultWay | null;

  constructor({ internalHosts, vault }: { readonly internalHosts: readonly string[]; readonly vault: VaultWay | null }) {
    this.#reach = new Reach(internalHosts, CONNECT_MS, CONNECTIONS_MAX);
    this.#vault = vault;
  }

  line(url: URL, brought: Brought, stray: (says: string) => void): SseLine {
    return new SseLine({ url, fetch: this.#fetchFor(url, brought), connectMs: ENDPOINT_MS, stray });
  }

  async close(): Promise<void> {
    await this.#reach.close();
  }

  /** W1 */
  #fetchFor(url: URL, brought: Brought): Fetch {
    const direct: Fetch = this.#reach.fetch;
    if (this.#vault !== null) return this.#vault.fetchFor(url, () => brought.grant, direct);
    return async (at, init) => {
      if (brought.grant !== null) throw new Trouble("its credential is in a vault, and this hand host has no way to a vault proxy");
      return await direct(at, init);
    };
  }
}

/** The address that a request names; null: none that can be used. */
export function targetIn(headers: IncomingHttpHeaders): URL | null {
  const text = headers["x-manyhands-target"];
  return typeof text === "string" && text.length <= URL_CHARS_MAX && URL.canParse(text) ? new URL(text) : null;
}

/** What a server is called where its address must not be said. W2 */
export const labelOf = (url: URL): string => `${url.origin}#${createHash("sha256").update(url.href).digest("hex").slice(0, 12)}`;

export function grantIn(headers: IncomingHttpHeaders): string | null {
  const text = headers["x-manyhands-grant"];
  return typeof text === "string" && text !== "" ? text : null;
}

export function timesIn(headers: IncomingHttpHeaders): Times {
  const [, idle, total] = TIMES_FORM.exec(String(headers["x-manyhands-times"] ?? "")) ?? [];
  return { idleMs: Number(idle ?? TIMES.idleMs), totalMs: Number(total ?? TIMES.totalMs) };
}
