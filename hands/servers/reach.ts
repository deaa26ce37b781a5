// Which addresses a server of an agent may be at, and the one fetch that goes there.
//
//   A1  Who may name a server's address is a client with a key, and the hand host stands inside of a network: loopback, private, link-local and other
//       addresses that are not the internet's are refused, unless the operator listed their host.
//   A2  What is checked is the address that is connected to, at the connection: a name that means something else a moment later gains nothing.
//   A3  Link-local addresses, where clouds keep credentials, are refused even where every internal host is allowed; only a host listed by name is not.
//   A4  A redirect is never followed to another origin.
//   A5  What a server sends is counted: past the limit its stream is an error.

import { lookup } from "node:dns";
import { BlockList, isIP, type LookupFunction } from "node:net";
import { Agent, buildConnector, fetch, type RequestInit, Response } from "undici";
import { ANSWER_BYTES_MAX } from "./limits.ts";
import { Flood, tooManyBytes } from "./too-much.ts";

const CONNECTIONS_MAX = 64;

/** As a server's transport takes it. */
export type Fetch = (url: string | URL, init?: globalThis.RequestInit) => Promise<globalThis.Response>;

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
  ["::", 127],
  ["64:ff9b::", 96],
  ["64:ff9b:1::", 48],
  ["100::", 64],
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

export class Reach {
  readonly #hosts: ReadonlySet<string>;
  readonly #agent: Agent;

  /** `internalHosts`: "host" or "host:port" of internal addresses that may be reached all the same; "*" for all of them. */
  constructor(internalHosts: readonly string[], connectMs: number) {
    this.#hosts = new Set(internalHosts.map((host) => host.toLowerCase()));
    this.#agent = new Agent({
      connections: CONNECTIONS_MAX,
      // A call's own limits end it; a silent answer is no error by itself.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: this.#connector(connectMs),
    });
  }

  readonly fetch: Fetch = async (url, init = {}) => {
    const at = new URL(url);
    if (!/^https?:$/.test(at.protocol)) throw new Unreachable(`its address begins with ${at.protocol}`);
    if (at.username !== "" || at.password !== "") throw new Unreachable("its address holds a user name or a password");
    const { headers, body, method, signal } = init;
    const request: RequestInit = {
      method: method ?? "GET",
      headers: [...new Headers(headers)],
      ...(typeof body === "string" ? { body } : {}),
      signal: signal ?? null,
      redirect: "manual", // A4
      dispatcher: this.#agent,
    };
    const answer = await fetch(at, request);
    // The two Response types are one at run time; the globals' declaration comes from an older release of the same package.
    return counted(answer, method === "GET") as unknown as globalThis.Response;
  };

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  #leaveOf(host: string, port: string): Leave {
    if (this.#hosts.has(host) || this.#hosts.has(`${host}:${port}`)) return "all";
    return this.#hosts.has("*") ? "internal" : "public";
  }

  /** A2 */
  #connector(timeout: number): buildConnector.connector {
    const connectors = new Map(
      (["public", "internal", "all"] as const).map((leave) => [leave, buildConnector({ timeout, lookup: lookupWithin(leave) })]),
    );
    return (options: buildConnector.Options, callback: buildConnector.Callback) => {
      const host = options.hostname.replace(/^\[|\]$/g, "").toLowerCase();
      const leave = this.#leaveOf(host, options.port || (options.protocol === "https:" ? "443" : "80"));
      const refused = isIP(host) === 0 ? null : refusal(host, host, leave);
      const connect = connectors.get(leave);
      if (refused !== null || connect === undefined) return callback(new Unreachable(refused ?? "it may not be reached"), null);
      connect(options, callback);
    };
  }
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

/** The same answer, its body an error past the limit. A stream that stays open is counted over a while. A5 */
function counted(answer: Response, isListening: boolean): Response {
  if (answer.body === null) return answer;
  let bytes = 0;
  const flood = new Flood(ANSWER_BYTES_MAX);
  const counter = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.byteLength;
      const isOver = isListening ? flood.isOver(chunk.byteLength) : bytes > ANSWER_BYTES_MAX;
      if (isOver) controller.error(tooManyBytes());
      else controller.enqueue(chunk);
    },
  });
  const { status, statusText, headers } = answer;
  return new Response(answer.body.pipeThrough(counter), { status, statusText, headers });
}
