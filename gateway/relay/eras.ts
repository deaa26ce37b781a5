// Which era a hand speaks: asked once, believed for a while, and no longer than nothing speaks against it.
//
//   E1  That a hand is of the stateless era it says itself (`server/discover`). That it is not shows in its not understanding the question: that
//       verdict is believed for a shorter time, because a hand that learns the newer era says so to nobody who does not ask.
//   E2  A hand that can't be reached is of no era; the next request asks again.
//   E3  A hand may speak both. A client's own era is passed wherever the hand speaks it.

import { readWhole } from "./answers.ts";
import { noMessage, refusedStatus } from "./failure.ts";
import { CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, STATELESS_VERSION } from "./inbound.ts";
import { HELLO_MS } from "./limits.ts";
import type { Address, Upstream } from "./upstream.ts";

const YES_MS = 600_000;
const NO_MS = 60_000;
const KNOWN_MAX = 10_000;

const QUESTION = JSON.stringify({
  jsonrpc: "2.0",
  id: "manyhands-discover",
  method: "server/discover",
  params: { _meta: { [PROTOCOL_VERSION]: STATELESS_VERSION, [CLIENT_INFO]: { name: "manyhands", version: "1" }, [CLIENT_CAPABILITIES]: {} } },
});
const HEADERS = {
  accept: "application/json, text/event-stream",
  "content-type": "application/json",
  "mcp-protocol-version": STATELESS_VERSION,
  "mcp-method": "server/discover",
};

interface Verdict {
  readonly isStateless: boolean;
  readonly at: number;
}

export class Eras {
  readonly #known = new Map<string, Verdict>();
  readonly #asking = new Map<string, Promise<boolean>>();

  /** Is this hand of the stateless era (too)? E1 */
  async isStateless(upstream: Upstream): Promise<boolean> {
    const { era } = upstream.address;
    if (era !== null) return era === "stateless";
    const key = keyOf(upstream);
    const known = this.#known.get(key);
    if (known && performance.now() - known.at < (known.isStateless ? YES_MS : NO_MS)) return known.isStateless;
    const asking = this.#asking.get(key) ?? this.#ask(key, upstream);
    return asking;
  }

  /** Something that it did does not fit the verdict. */
  forget(upstream: Upstream): void {
    this.#known.delete(keyOf(upstream));
  }

  #ask(key: string, upstream: Upstream): Promise<boolean> {
    const asking = discover(upstream)
      .then((isStateless) => {
        if (this.#known.size >= KNOWN_MAX) this.#known.clear();
        this.#known.set(key, { isStateless, at: performance.now() });
        return isStateless;
      })
      .finally(() => this.#asking.delete(key));
    this.#asking.set(key, asking);
    return asking;
  }
}

const keys = new WeakMap<Address, string>();

/** What is known of a hand is known by this. An address belongs to one record of one workspace, and is mostly the same object with each call. */
export function keyOf({ workspace, hand, address }: Upstream): string {
  const known = keys.get(address);
  if (known !== undefined) return known;
  const key = JSON.stringify([workspace, hand.name, address.target ?? address.url.href]);
  keys.set(address, key);
  return key;
}

/** E2 */
async function discover(upstream: Upstream): Promise<boolean> {
  const answer = await upstream.send({ method: "POST", headers: HEADERS, body: QUESTION, signal: AbortSignal.timeout(HELLO_MS) });
  const { message, status } = await readWhole(answer);
  const refused = refusedStatus(status);
  if (refused) throw refused;
  if (message === null && status >= 500) throw noMessage(status);
  return (supportedIn(message?.result, "supportedVersions") || supportedIn(dataOf(message?.error), "supported")) === true;
}

function supportedIn(value: unknown, name: string): boolean {
  const versions = typeof value === "object" && value !== null ? Object.entries(value).find(([key]) => key === name)?.[1] : null;
  return Array.isArray(versions) && versions.includes(STATELESS_VERSION);
}

const dataOf = (error: unknown): unknown => (typeof error === "object" && error !== null && "data" in error ? error.data : null);
