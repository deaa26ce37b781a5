// Where the requests for a hand go, and with which headers of ours.
//
//   O1  A session goes where it was opened, or nowhere: its id at the hand is for that hand alone, and our key for programs of ours alone.

import type { RegisteredHand } from "../../hands/registry.ts";
import { mintFrom } from "../../session-store/ids.ts";
import type { Caller } from "../mcp/caller.ts";
import { RpcError } from "../mcp/rpc.ts";
import type { Address, RelaySession, Times } from "./upstream.ts";

const NOT_SERVED = -32_000;

export interface Ways {
  /** The hand host that runs the servers of the operator's file; null: this gateway has none. */
  readonly handsUrl: string | null;
  readonly handKey: string;
  readonly times: Times;
  /** The way through the vault proxy; null: this installation has none. */
  readonly vault: { readonly url: string; grant(hand: string, workspace: string, vaults: readonly string[]): Promise<string> } | null;
}

/** The one place that knows. Refuses a hand that can't be reached by this door. */
export async function upstreamOf(hand: RegisteredHand, caller: Caller, { handsUrl, handKey, vault, times }: Ways): Promise<Address> {
  const { transport } = hand;
  switch (transport.type) {
    case "http": {
      if (hand.vault_ids.length === 0) return plainOf(hand, transport.url);
      const url = urlOf(transport.url);
      if (vault === null) throw refused("Its credential is in a vault, and this installation has none.");
      const grant = await vault.grant(hand.name, caller.workspace, hand.vault_ids);
      const headers = { authorization: `Bearer ${grant}`, "x-manyhands-target": url.href };
      return { url: new URL("/mcp", vault.url), headers, isOwn: true, target: url.href, era: null };
    }
    case "sse": {
      // Its connection is one that must stay: a hand host keeps it, and any gateway reaches that.
      if (handsUrl === null) throw refused("It speaks the older HTTP+SSE transport: a hand host keeps its connections, and this gateway has none.");
      const target = urlOf(transport.url).href;
      const headers = { authorization: `Bearer ${handKey}`, "x-manyhands-target": target, ...timesOf(hand, times) };
      const address = { url: new URL(SSE_PATH, handsUrl), isOwn: true, target, era: "handshake" } as const;
      if (hand.vault_ids.length === 0) return { ...address, headers };
      if (vault === null) throw refused("Its credential is in a vault, and this installation has none.");
      return { ...address, headers: { ...headers, "x-manyhands-grant": await vault.grant(hand.name, caller.workspace, hand.vault_ids) } };
    }
    case "stdio": {
      if (handsUrl === null) throw refused("It runs in a hand host, and this gateway has none.");
      const url = new URL(`/mcp/servers/${encodeURIComponent(transport.server)}`, handsUrl);
      if (hand.sharing === "shared") url.searchParams.set("sharing", "shared");
      // A server without sessions has a child for each of its users, unless it is shared: the host knows them by a name that says nothing.
      const owner = hand.sharing === "shared" ? "" : mintFrom("owner", caller.workspace, caller.name);
      const headers = { authorization: `Bearer ${handKey}`, "x-manyhands-owner": owner, ...timesOf(hand, times) };
      return { url, headers, isOwn: true, target: null, era: null };
    }
  }
}

const plain = new WeakMap<RegisteredHand, Address>();

/** Read once for each record. */
function plainOf(hand: RegisteredHand, text: string): Address {
  const known = plain.get(hand);
  if (known) return known;
  const address = { url: urlOf(text), headers: {}, isOwn: false, target: null, era: null };
  plain.set(hand, address);
  return address;
}

const OWN = "own:";
const VAULT = "vault:";
const SSE = "sse:";
const SSE_PATH = "/mcp/sse";

/** How a session remembers where it was opened. O1 */
export function placeOf({ url, isOwn, target }: Address): string {
  if (url.pathname === SSE_PATH && target !== null) return `${SSE}${url.href} ${target}`;
  return target === null ? `${isOwn ? OWN : ""}${url.href}` : `${VAULT}${target}`;
}

/** Where the requests of a session go; null: the hand is not what it was. A hand host keeps its sessions: of several, it must be the same. O1 */
export function addressOf({ url }: Pick<RelaySession, "url">, now: Address): Address | null {
  if (url.startsWith(SSE)) {
    const [host, target] = url.slice(SSE.length).split(" ");
    return host !== undefined && target === now.target && now.url.pathname === SSE_PATH ? { ...now, url: new URL(host) } : null;
  }
  if (!now.isOwn || now.target !== null) return url === placeOf(now) ? now : null;
  if (!url.startsWith(OWN)) return null;
  const then = new URL(url.slice(OWN.length));
  return then.pathname === now.url.pathname ? { ...now, url: then } : null;
}

/** How long a call may be silent, and take: who keeps the connection knows whether it is the server that is slow. */
function timesOf({ timeouts: { idle_ms, total_ms } }: RegisteredHand, { idleMs, totalMs }: Times): Readonly<Record<string, string>> {
  return { "x-manyhands-times": `${idle_ms ?? idleMs},${total_ms ?? totalMs}` };
}

function urlOf(text: string): URL {
  if (!URL.canParse(text)) throw refused("Its address is no URL.");
  return new URL(text);
}

const refused = (why: string): RpcError => new RpcError(NOT_SERVED, `This hand can't be used here. ${why}`, { status: 501 });
