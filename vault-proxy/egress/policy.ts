// Where a session's hands may go: its environment's networking, as the worker resolved it.
//
//   U1  `limited` opens what it names and nothing else. A host without a port is that host's web, ports 80 and 443; `*.host` is every name below it, and
//       not that name itself; a rule that can't be read opens nothing.
//   U2  `unrestricted` opens every place. Whether an address is somebody's own is judged for every place alike, where it is connected to (way.ts).
//   U3  A grant names the hash of its policy, so that a caller can't show another one.

import { createHash } from "node:crypto";
import { z } from "zod";
import { PACKAGE_HOSTS } from "./packages.ts";
import { type Place, placeOf } from "./place.ts";

export const POLICY_BYTES_MAX = 512 * 1024;
const RULES_MAX = 2_000;
const WEB_PORTS: readonly number[] = [80, 443];

const Network = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("unrestricted") }),
  z.strictObject({ type: z.literal("limited"), hosts: z.array(z.string().max(300)).max(RULES_MAX), package_managers: z.boolean() }),
]);

const hashOfPolicy = (text: string): string => createHash("sha256").update(text).digest("base64url");

export class Policy {
  readonly #isUnrestricted: boolean;
  /** Host → its ports. */
  readonly #exact = new Map<string, Set<number>>();
  /** What follows the star, with its dot → ports. */
  readonly #below = new Map<string, Set<number>>();

  private constructor(network: z.infer<typeof Network>) {
    this.#isUnrestricted = network.type === "unrestricted";
    if (network.type === "unrestricted") return;
    for (const rule of [...network.hosts, ...(network.package_managers ? PACKAGE_HOSTS : [])]) this.#add(rule);
  }

  /** Null: it is none, or not the one that the grant names. U3 */
  static read(text: string, hash: string): Policy | null {
    if (hashOfPolicy(text) !== hash) return null;
    const network = Network.safeParse(parsed(text));
    return network.success ? new Policy(network.data) : null;
  }

  allows({ host, port }: Place): boolean {
    if (this.#isUnrestricted || this.#exact.get(host)?.has(port)) return true;
    for (let dot = host.indexOf("."); dot > 0; dot = host.indexOf(".", dot + 1)) if (this.#below.get(host.slice(dot))?.has(port)) return true;
    return false;
  }

  /** U1 */
  #add(rule: string): void {
    const [, scheme, star, rest = ""] = /^(?:(https?):\/\/)?(\*\.)?([^/]*)\/?$/i.exec(rule.trim()) ?? [];
    const implied = scheme === undefined ? null : scheme.toLowerCase() === "https" ? 443 : 80;
    const given = placeOf(rest, implied);
    const place = given ?? placeOf(rest, WEB_PORTS[0] ?? 80);
    if (place === null) return;
    const [rules, key] = star === undefined ? [this.#exact, place.host] : [this.#below, `.${place.host}`];
    const ports = rules.get(key) ?? new Set<number>();
    for (const port of given === null ? WEB_PORTS : [given.port]) ports.add(port);
    rules.set(key, ports);
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Whether a credential's own list has this host: exact names, and `*.host` for what is below one. Ports are the environment's to judge. */
export function hasHost(list: readonly string[], host: string): boolean {
  return list.some((each) => {
    const rule = each.toLowerCase();
    return rule.startsWith("*.") ? host.endsWith(rule.slice(1)) && host.length > rule.length - 1 : rule === host;
  });
}
