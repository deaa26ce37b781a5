// What an environment is made from (contract §4). What is saved is whole; an update merges into it, list by list.

import { z } from "zod";
import { invalid } from "../answer.ts";
import { Metadata, MetadataPatch } from "./metadata.ts";
import { flag, limit, page } from "./query.ts";

const HOSTS_MAX = 1000;
const PACKAGES_MAX = 1000;
const MANAGERS = ["apt", "cargo", "gem", "go", "npm", "pip"] as const;

const packageList = z.array(z.string().min(1).max(255)).max(PACKAGES_MAX).nullish();
const packages = z
  .strictObject({
    type: z.literal("packages").nullish(),
    apt: packageList,
    cargo: packageList,
    gem: packageList,
    go: packageList,
    npm: packageList,
    pip: packageList,
  })
  .nullish();
const networking = z
  .discriminatedUnion("type", [
    z.strictObject({ type: z.literal("unrestricted") }),
    z.strictObject({
      type: z.literal("limited"),
      allowed_hosts: z.array(z.string().min(1).max(255)).max(HOSTS_MAX).nullish(),
      allow_mcp_servers: z.boolean().nullish(),
      allow_package_managers: z.boolean().nullish(),
    }),
  ])
  .nullish();
const config = z
  .discriminatedUnion("type", [
    z.strictObject({ type: z.literal("cloud"), networking, packages }),
    z.strictObject({ type: z.literal("self_hosted") }),
  ])
  .nullish();
type ConfigGiven = z.infer<typeof config>;

const name = z.string().min(1).max(256);
const common = { description: z.string().max(2048).nullish(), config, scope: z.literal("organization").nullish() };
export const EnvironmentCreate = z.strictObject({ name, ...common, metadata: Metadata.nullish() });
export const EnvironmentUpdate = z.strictObject({ name: name.optional(), ...common, metadata: MetadataPatch.nullish() });
export const EnvironmentList = z.strictObject({ include_archived: flag, limit: limit(100, 20), page });

type Networking =
  | { readonly type: "unrestricted" }
  | {
      readonly type: "limited";
      readonly allowed_hosts: readonly string[];
      readonly allow_mcp_servers: boolean;
      readonly allow_package_managers: boolean;
    };
type Packages = { readonly type: "packages" } & Readonly<Record<(typeof MANAGERS)[number], readonly string[]>>;
export type EnvironmentConfig =
  | { readonly type: "cloud"; readonly networking: Networking; readonly packages: Packages }
  | { readonly type: "self_hosted" };

/** What is kept of an environment: everything but its times. */
export interface EnvironmentFields {
  readonly name: string;
  readonly description: string | null;
  readonly config: EnvironmentConfig;
  readonly metadata: Readonly<Record<string, string>>;
}

const NO_PACKAGES: Packages = { type: "packages", apt: [], cargo: [], gem: [], go: [], npm: [], pip: [] };
const OPEN: EnvironmentConfig = { type: "cloud", networking: { type: "unrestricted" }, packages: NO_PACKAGES };

/** The whole configuration: what was given over what was there. The type never changes. */
export function configOf(given: ConfigGiven, before?: EnvironmentConfig): EnvironmentConfig {
  if (!given) return before ?? OPEN;
  if (before && before.type !== given.type) throw invalid("config.type: can't be changed", { error_code: "invalid_config_type_change" });
  if (given.type === "self_hosted") return { type: "self_hosted" };
  const base = before?.type === "cloud" ? before : OPEN;
  if (base.type !== "cloud") throw new Error("the usual configuration is a cloud one");
  const networking = networkingOf(given.networking, base.networking);
  const packages: Packages = { ...base.packages, ...listsOf(given.packages) };
  if (networking.type === "limited" && !networking.allow_package_managers && MANAGERS.some((manager) => packages[manager].length > 0))
    throw invalid("config.packages: needs `networking.allow_package_managers` where networking is limited");
  return { type: "cloud", networking, packages };
}

function networkingOf(given: z.infer<typeof networking>, before: Networking): Networking {
  if (!given) return before;
  if (given.type === "unrestricted") return { type: "unrestricted" };
  const base = before.type === "limited" ? before : { allowed_hosts: [], allow_mcp_servers: false, allow_package_managers: false };
  return {
    type: "limited",
    allowed_hosts: given.allowed_hosts ?? base.allowed_hosts,
    allow_mcp_servers: given.allow_mcp_servers ?? base.allow_mcp_servers,
    allow_package_managers: given.allow_package_managers ?? base.allow_package_managers,
  };
}

function listsOf(given: z.infer<typeof packages>): Partial<Packages> {
  return Object.fromEntries(MANAGERS.flatMap((manager) => (given?.[manager] ? [[manager, given[manager]]] : [])));
}
