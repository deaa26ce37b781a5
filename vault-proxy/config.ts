// What the vault proxy is told by its environment: read once, checked, frozen.
//
//   G1  A model key that came by the environment is taken out of it at once: no child and no later reader of `process.env` sees it.
//       The kernel keeps the first environment of a process, so /proc/<pid>/environ still shows it to the same user and to root;
//       MANYHANDS_MODEL_KEY_FILE has no such trace and is the better way.
//       The same holds for MANYHANDS_VAULT_KEY.
//   G2  A name of ours that nobody knows is refused: a misspelt setting must not look like a default.

import { join, resolve } from "node:path";
import { z } from "zod";
import { originOf } from "./git/hosts.ts";
import { OAUTH_TIMEOUT_MS } from "./oauth/refresh.ts";

/** Names of ours that other programs read; the launcher's whole environment may be passed on. */
const NAMES_OF_OTHERS = new Set([
  "MANYHANDS_PORT",
  "MANYHANDS_API_KEY",
  "MANYHANDS_SANDBOX",
  "MANYHANDS_SANDBOX_IDLE_MS",
  "MANYHANDS_DOCKER_IMAGE",
  "MANYHANDS_DOCKER_MEMORY_MB",
  "MANYHANDS_DOCKER_PIDS",
  "MANYHANDS_DOCKER_CPUS",
  "MANYHANDS_DOCKER_TMP_MB",
  "MANYHANDS_DOCKER_CONTAINERS_MAX",
  "MANYHANDS_LEASE_MS",
  "MANYHANDS_SESSIONS_MAX",
  "MANYHANDS_KEEP_ALIVE_MS",
  "MANYHANDS_HAND_CHECK_MS",
  "MANYHANDS_GATEWAY_URL",
  "MANYHANDS_MCP_ISSUER",
  "MANYHANDS_MCP_JWKS_URL",
  "MANYHANDS_MCP_OPEN",
  "MANYHANDS_MCP_INTERNAL_HOSTS",
  "MANYHANDS_MCP_SERVERS_FILE",
  "MANYHANDS_MCP_CONNECT_TIMEOUT_MS",
  "MANYHANDS_MCP_IDLE_TIMEOUT_MS",
  "MANYHANDS_MCP_TOTAL_TIMEOUT_MS",
  "MANYHANDS_HANDS_PORT",
  "MANYHANDS_HANDS_URL",
  "MANYHANDS_VAULT_URL",
  "MANYHANDS_FAULT_POINT",
]);

const port = z.coerce.number().int().min(0).max(65_535);
const path = z.string().min(1).optional();
const place = z.string().regex(/^[0-9A-Za-z_-]+(?:\/[0-9A-Za-z_-]+)*$/);
const READ_BY_ITS_OWN_NAME = new Set(["ANTHROPIC_BASE_URL", "VAULT_ADDR", "VAULT_NAMESPACE"]);
const hosts = z
  .string()
  .max(65_536)
  .regex(/^[\w.:[\], -]*$/)
  .default("");
const hostsIn = (text: string): string[] => text.split(/[\s,]+/).filter((host) => host !== "");
const hasOneSchemeEach = (origins: readonly string[]): boolean =>
  new Set(origins.map((origin) => new URL(origin).host)).size === origins.length && !origins.includes("http://github.com");

const gitHosts = z
  .string()
  .max(65_536)
  .default("")
  .transform((text) => text.split(/[\s,]+/).filter((host) => host !== ""))
  .refine((all) => all.every((host) => originOf(host) !== null), "must be hosts, or origins like http://127.0.0.1:3000, with commas between them")
  .transform((all) => [...new Set(all.flatMap((host) => originOf(host) ?? []))])
  // A hand names a repository without the scheme: of two, the wrong one would get the token.
  .refine(hasOneSchemeEach, "must name each host by one scheme, and github.com by HTTPS");
const ms = z.coerce.number().int().min(1).max(600_000);

const Environment = z.strictObject({
  MANYHANDS_VAULT_PORT: port.default(0),
  MANYHANDS_HOST: z.string().min(1).default("127.0.0.1"),
  MANYHANDS_DATA_DIR: z.string().min(1).default("./.manyhands"),
  MANYHANDS_KEYS_DIR: z.string().min(1).optional(),
  MANYHANDS_MODEL_KEY_FILE: z.string().min(1).optional(),
  MANYHANDS_MODELS_FILE: z.string().min(1).optional(),
  MANYHANDS_MODEL_HEADERS_TIMEOUT_MS: ms.default(120_000),
  MANYHANDS_MODEL_IDLE_TIMEOUT_MS: ms.default(90_000),
  MANYHANDS_OAUTH_TIMEOUT_MS: ms.default(OAUTH_TIMEOUT_MS),
  MANYHANDS_VAULT_KEY_FILE: path,
  MANYHANDS_VAULT_KEY: z.string().optional(),
  MANYHANDS_VAULT_KEY_COMMAND: z.string().max(4_096).optional(),
  MANYHANDS_VAULT_MOUNT: place.default("secret"),
  MANYHANDS_VAULT_PREFIX: place.default("manyhands"),
  MANYHANDS_VAULT_TOKEN_FILE: path,
  MANYHANDS_VAULT_ROLE_ID_FILE: path,
  MANYHANDS_VAULT_SECRET_ID_FILE: path,
  MANYHANDS_VAULT_APPROLE_MOUNT: place.default("approle"),
  MANYHANDS_INTERNAL_HOSTS: hosts,
  MANYHANDS_EGRESS_INTERNAL_HOSTS: hosts,
  MANYHANDS_GIT_HOSTS: gitHosts,
  MANYHANDS_PUBLIC_URL: z
    .url({ protocol: /^https?$/ })
    .refine((text) => !hasCredentials(text), "must not carry a user name or a password")
    .optional(),
  VAULT_ADDR: z
    .url({ protocol: /^https?$/ })
    .refine((text) => !hasCredentials(text), "must not carry a user name or a password")
    .optional(),
  VAULT_NAMESPACE: z.string().max(1_024).optional(),
  MANYHANDS_PARENT_PIPE: z.enum(["0", "1"]).default("0"),
  MANYHANDS_LOG_LEVEL: z.enum(["fatal", "error", "warn", "info", "debug", "trace", "silent"]).default("info"),
  ANTHROPIC_BASE_URL: z
    .url({ protocol: /^https?$/ })
    .refine((text) => !hasCredentials(text), "must not carry a user name or a password")
    .default("https://api.anthropic.com"),
});

export interface Config {
  readonly host: string;
  readonly port: number;
  readonly grantKeyFile: string;
  readonly modelKeyFile: string | null;
  /** Where the model is; its path, if it has one, comes before `/v1/messages`. */
  readonly modelUrl: URL;
  /** Providers of models beside it, prices and a limit (models/providers.ts). */
  readonly modelsFile: string | null;
  readonly headersTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** How long an authorization server may take. */
  readonly oauthTimeoutMs: number;
  /** The vault proxy's own folder: the file vault, its key, the audit. */
  readonly vaultFolder: string;
  readonly vaultKey: VaultKeySource;
  /** Null: the file vault. */
  readonly server: ServerConfig | null;
  /** Hosts that may be internal, or spoken to without TLS. */
  readonly internalHosts: readonly string[];
  /** Hosts that hands may reach though they are internal, and at which a credential may be used without TLS. */
  readonly egressInternalHosts: readonly string[];
  /** Where repositories may be, beside GitHub. */
  readonly gitOrigins: readonly string[];
  /** The document that the gateway publishes about us as an OAuth client; null: no authorization server could fetch it. */
  readonly clientDocument: { readonly url: string; readonly redirectUri: string } | null;
  readonly isParentPiped: boolean;
  readonly logLevel: string;
}

type VaultKeySource =
  | { readonly type: "file"; readonly path: string; readonly isOwn: boolean }
  | { readonly type: "text"; readonly text: string; readonly name: string }
  | { readonly type: "command"; readonly command: string };

/** A Vault or OpenBao server. */
interface ServerConfig {
  readonly url: string;
  readonly namespace: string | null;
  readonly mount: string;
  readonly prefix: string;
  readonly login:
    | { readonly type: "token"; readonly file: string }
    | { readonly type: "approle"; readonly roleIdFile: string; readonly secretIdFile: string; readonly mount: string };
}

/** Reads the environment; throws an error whose message is one line that names what is wrong, never a value of it. */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const given: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value === undefined || value === "") continue;
    if (READ_BY_ITS_OWN_NAME.has(name) || (name.startsWith("MANYHANDS_") && !NAMES_OF_OTHERS.has(name))) given[name] = value;
  }
  delete env.MANYHANDS_VAULT_KEY; // G1
  const read = Environment.safeParse(given);
  if (!read.success) throw new Error(read.error.issues.map(tell).join("; "));
  const found = read.data;
  const vaultFolder = resolve(found.MANYHANDS_DATA_DIR, "vault");
  return Object.freeze({
    host: found.MANYHANDS_HOST,
    port: found.MANYHANDS_VAULT_PORT,
    grantKeyFile: resolve(found.MANYHANDS_KEYS_DIR ?? join(found.MANYHANDS_DATA_DIR, "keys"), "grant.public.jwk"),
    modelKeyFile: found.MANYHANDS_MODEL_KEY_FILE === undefined ? null : resolve(found.MANYHANDS_MODEL_KEY_FILE),
    modelUrl: new URL(found.ANTHROPIC_BASE_URL),
    modelsFile: found.MANYHANDS_MODELS_FILE === undefined ? null : resolve(found.MANYHANDS_MODELS_FILE),
    headersTimeoutMs: found.MANYHANDS_MODEL_HEADERS_TIMEOUT_MS,
    idleTimeoutMs: found.MANYHANDS_MODEL_IDLE_TIMEOUT_MS,
    oauthTimeoutMs: found.MANYHANDS_OAUTH_TIMEOUT_MS,
    vaultFolder,
    vaultKey: keySourceOf(found, vaultFolder),
    server: serverOf(found),
    internalHosts: hostsIn(found.MANYHANDS_INTERNAL_HOSTS),
    egressInternalHosts: hostsIn(found.MANYHANDS_EGRESS_INTERNAL_HOSTS),
    gitOrigins: found.MANYHANDS_GIT_HOSTS,
    clientDocument: clientDocumentOf(found.MANYHANDS_PUBLIC_URL),
    isParentPiped: found.MANYHANDS_PARENT_PIPE === "1",
    logLevel: found.MANYHANDS_LOG_LEVEL,
  });
}

/** As gateway/http/oauth-client.ts publishes it. */
function clientDocumentOf(publicUrl: string | undefined): Config["clientDocument"] {
  if (publicUrl === undefined || !publicUrl.startsWith("https://")) return null;
  return { url: `${publicUrl.replace(/\/+$/, "")}/oauth/client.json`, redirectUri: "http://127.0.0.1/callback" };
}

function keySourceOf(found: z.infer<typeof Environment>, vaultFolder: string): VaultKeySource {
  const { MANYHANDS_VAULT_KEY: text, MANYHANDS_VAULT_KEY_FILE: file, MANYHANDS_VAULT_KEY_COMMAND: command } = found;
  if ([text, file, command].filter((each) => each !== undefined).length > 1)
    throw new Error("MANYHANDS_VAULT_KEY_FILE: the vault's key comes from one place: set this, MANYHANDS_VAULT_KEY or MANYHANDS_VAULT_KEY_COMMAND");
  if (text !== undefined) return { type: "text", text, name: "MANYHANDS_VAULT_KEY" };
  if (command !== undefined) return { type: "command", command };
  return file === undefined
    ? { type: "file", path: join(vaultFolder, "master.key"), isOwn: true }
    : { type: "file", path: resolve(file), isOwn: false };
}

function serverOf(found: z.infer<typeof Environment>): ServerConfig | null {
  if (found.VAULT_ADDR === undefined) return null;
  const [token, role, secret] = [found.MANYHANDS_VAULT_TOKEN_FILE, found.MANYHANDS_VAULT_ROLE_ID_FILE, found.MANYHANDS_VAULT_SECRET_ID_FILE];
  const isApprole = role !== undefined && secret !== undefined;
  if ((token === undefined) === !isApprole)
    throw new Error("VAULT_ADDR: needs MANYHANDS_VAULT_TOKEN_FILE, or MANYHANDS_VAULT_ROLE_ID_FILE and MANYHANDS_VAULT_SECRET_ID_FILE, and not both");
  return {
    url: found.VAULT_ADDR.replace(/\/+$/, ""),
    namespace: found.VAULT_NAMESPACE ?? null,
    mount: found.MANYHANDS_VAULT_MOUNT,
    prefix: found.MANYHANDS_VAULT_PREFIX,
    login: isApprole
      ? { type: "approle", roleIdFile: resolve(role), secretIdFile: resolve(secret), mount: found.MANYHANDS_VAULT_APPROLE_MOUNT }
      : { type: "token", file: resolve(token ?? "") },
  };
}

/** Takes the model key out of the environment; null if there is none. G1 */
export function takeModelKey(env: NodeJS.ProcessEnv = process.env): string | null {
  const key = env.ANTHROPIC_API_KEY?.trim();
  delete env.ANTHROPIC_API_KEY;
  return key === undefined || key === "" ? null : key;
}

function tell(issue: z.core.$ZodIssue): string {
  if (issue.code === "unrecognized_keys") return `unknown setting: ${issue.keys.join(", ")}`;
  return `${issue.path.join(".")}: ${issue.message}`;
}

function hasCredentials(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url !== null && (url.username !== "" || url.password !== "");
}
