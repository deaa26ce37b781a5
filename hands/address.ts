// Which addresses the servers of agents and registered hands may be at: the guard of every connection that goes to one.
//
//   A1  Who may name a server's address is a client with a key, and this program stands inside of a network: loopback, private, link-local and other
//       addresses that are not the internet's are refused, unless the operator listed their host.
//   A2  What is checked is the address that is connected to, at the connection: a name that means something else a moment later gains nothing.
//   A3  Link-local addresses, where clouds keep credentials, are refused even where every internal host is allowed; only a host listed by name is not.

import { lookup } from "node:dns";
import { BlockList, isIP, type LookupFunction } from "node:net";
import { buildConnector } from "undici";

/** A server's address may not be reached; the message says so to whoever configured it. */
export class Unreachable extends Error {
  override readonly name = "Unreachable";
}

const INTERNAL = new BlockList();
const LINK_LOCAL = new BlockList();
for (const [net, bits] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 4],
  ["240.0.0.0", 4],
] as const)
  INTERNAL.addSubnet(net, bits, "ipv4");
for (const [net, bits] of [
  ["::", 96],
  ["64:ff9b::", 96],
  ["64:ff9b:1::", 48],
  ["100::", 64],
  ["2001::", 32],
  ["2001:db8::", 32],
  ["2002::", 16],
  ["fc00::", 7],
  ["fec0::", 10],
  ["ff00::", 8],
] as const)
  INTERNAL.addSubnet(net, bits, "ipv6");
LINK_LOCAL.addSubnet("169.254.0.0", 16, "ipv4");
LINK_LOCAL.addSubnet("fe80::", 10, "ipv6");

type Kind = "public" | "internal" | "link_local";

export function kindOf(address: string): Kind {
  const family = isIP(address) === 6 ? "ipv6" : "ipv4";
  if (LINK_LOCAL.check(address, family)) return "link_local";
  return INTERNAL.check(address, family) ? "internal" : "public";
}

/** How far connections to a host may go. */
type Leave = "public" | "internal" | "all";

/** Connects to what may be reached. `internalHosts`: "host" or "host:port" of internal addresses that may be reached all the same; "*" for all of them. A1 A2 A3 */
export function guardedConnector(internalHosts: readonly string[], timeout: number): buildConnector.connector {
  const hosts = new Set(internalHosts.map((host) => host.toLowerCase()));
  const leaveOf = (host: string, port: string): Leave => {
    if (hosts.has(host) || hosts.has(`${host}:${port}`)) return "all";
    return hosts.has("*") ? "internal" : "public";
  };
  const connectors = new Map(
    (["public", "internal", "all"] as const).map((leave) => [leave, buildConnector({ timeout, lookup: lookupWithin(leave) })]),
  );
  return (options: buildConnector.Options, callback: buildConnector.Callback) => {
    const host = options.hostname.replace(/^\[|\]$/g, "").toLowerCase();
    const leave = leaveOf(host, options.port || (options.protocol === "https:" ? "443" : "80"));
    const refused = isIP(host) === 0 ? null : refusal(host, host, leave);
    const connect = connectors.get(leave);
    if (refused !== null || connect === undefined) return callback(new Unreachable(refused ?? "it may not be reached"), null);
    connect(options, callback);
  };
}

/** Why a URL can't be a server's whatever it leads to; null: it may be. */
export function refusedUrl(url: URL): string | null {
  if (!/^https?:$/.test(url.protocol)) return `its address begins with ${url.protocol}`;
  if (url.username !== "" || url.password !== "") return "its address holds a user name or a password";
  return null;
}

/** Why an address may not be connected to; null: it may. A1 A3 */
function refusal(host: string, address: string, leave: Leave): string | null {
  const kind = kindOf(address);
  if (kind === "public" || leave === "all" || (leave === "internal" && kind === "internal")) return null;
  return `${host} is an internal address, and MANYHANDS_MCP_INTERNAL_HOSTS does not list it`;
}

function lookupWithin(leave: Leave): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, "", 0);
      const refused = addresses.map(({ address }) => refusal(hostname, address, leave)).find((says) => says !== null);
      const [first] = addresses;
      if (refused !== undefined || first === undefined) return callback(new Unreachable(refused ?? "its name has no address"), "", 0);
      if (options.all === true) callback(null, addresses);
      else callback(null, first.address, first.family);
    });
  };
}
