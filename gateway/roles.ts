// The programs of an installation: where each one's entry is, and which settings it is given.
//
//   E1  A child's environment is made from nothing: a few names of the system's, and the settings of its own role. The model's key reaches the vault
//       proxy alone; the API key reaches the gateway alone.

import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Environment } from "./config.ts";

export type Role = "vault-proxy" | "hands" | "worker" | "gateway";

const SYSTEM = ["PATH", "HOME", "NODE_ENV", "LANG", "LC_ALL", "TZ", "TMPDIR", "SystemRoot"] as const;
const EVERYONE = ["MANYHANDS_DATA_DIR", "MANYHANDS_KEYS_DIR", "MANYHANDS_LOG_LEVEL", "MANYHANDS_PARENT_PIPE"] as const;
const BRAIN = [
  "REDIS_URL",
  "MANYHANDS_VAULT_URL",
  "MANYHANDS_HANDS_URL",
  "MANYHANDS_LEASE_MS",
  "MANYHANDS_SESSIONS_MAX",
  "MANYHANDS_FAULT_POINT",
] as const;

const ROLES: Readonly<Record<Role, { readonly room: string; readonly settings: readonly string[] }>> = {
  "vault-proxy": {
    room: "vault-proxy",
    settings: [
      "MANYHANDS_VAULT_PORT",
      "MANYHANDS_OAUTH_TIMEOUT_MS",
      "MANYHANDS_VAULT_KEY_FILE",
      "MANYHANDS_VAULT_KEY",
      "MANYHANDS_VAULT_KEY_COMMAND",
      "MANYHANDS_VAULT_MOUNT",
      "MANYHANDS_VAULT_PREFIX",
      "MANYHANDS_VAULT_TOKEN_FILE",
      "MANYHANDS_VAULT_ROLE_ID_FILE",
      "MANYHANDS_VAULT_SECRET_ID_FILE",
      "MANYHANDS_VAULT_APPROLE_MOUNT",
      "MANYHANDS_INTERNAL_HOSTS",
      "MANYHANDS_EGRESS_INTERNAL_HOSTS",
      "MANYHANDS_GIT_HOSTS",
      "MANYHANDS_PUBLIC_URL",
      "VAULT_ADDR",
      "VAULT_NAMESPACE",
      "MANYHANDS_MODEL_KEY_FILE",
      "MANYHANDS_MODELS_FILE",
      "MANYHANDS_MODEL_HEADERS_TIMEOUT_MS",
      "MANYHANDS_MODEL_IDLE_TIMEOUT_MS",
      "ANTHROPIC_API_KEY",
      "ANTHROPIC_BASE_URL",
      "NODE_EXTRA_CA_CERTS",
    ],
  },
  hands: {
    room: "hands",
    settings: [
      "MANYHANDS_HANDS_PORT",
      "MANYHANDS_VAULT_URL",
      "MANYHANDS_SANDBOX",
      "MANYHANDS_SANDBOX_IDLE_MS",
      "MANYHANDS_DOCKER_IMAGE",
      "MANYHANDS_DOCKER_MEMORY_MB",
      "MANYHANDS_DOCKER_PIDS",
      "MANYHANDS_DOCKER_CPUS",
      "MANYHANDS_DOCKER_TMP_MB",
      "MANYHANDS_DOCKER_CONTAINERS_MAX",
      "MANYHANDS_MCP_INTERNAL_HOSTS",
      "MANYHANDS_MCP_SERVERS_FILE",
      "MANYHANDS_MCP_CONNECT_TIMEOUT_MS",
      "MANYHANDS_MCP_IDLE_TIMEOUT_MS",
      "MANYHANDS_MCP_TOTAL_TIMEOUT_MS",
      "DOCKER_HOST",
    ],
  },
  worker: { room: "harnesses", settings: [...BRAIN, "MANYHANDS_GATEWAY_URL"] },
  gateway: {
    room: "gateway",
    settings: [
      ...BRAIN,
      "MANYHANDS_PORT",
      "MANYHANDS_HOST",
      "MANYHANDS_API_KEY",
      "MANYHANDS_KEEP_ALIVE_MS",
      "MANYHANDS_HAND_CHECK_MS",
      "MANYHANDS_PUBLIC_URL",
      "MANYHANDS_MCP_ISSUER",
      "MANYHANDS_MCP_JWKS_URL",
      "MANYHANDS_MCP_OPEN",
      "MANYHANDS_MCP_INTERNAL_HOSTS",
      "MANYHANDS_MCP_CONNECT_TIMEOUT_MS",
      "MANYHANDS_MCP_IDLE_TIMEOUT_MS",
      "MANYHANDS_MCP_TOTAL_TIMEOUT_MS",
    ],
  },
};

export const isRole = (word: string): word is Role => Object.hasOwn(ROLES, word);

/** The path of a role's program, beside this file: built or source, as this one is. */
export const entryOf = (role: Role): string => besideOf(ROLES[role].room, "main");

/** The path of a room's program, built or source, as this file is. */
export function besideOf(room: string, program: string): string {
  const here = fileURLToPath(import.meta.url);
  return join(dirname(here), "..", room, `${program}${extname(here)}`);
}

/** What a child of this role is given of `env`; `extra` wins over it, and only names that the role may have pass. E1 */
export function environmentFor(role: Role, env: Environment, extra: Readonly<Record<string, string>>): Record<string, string> {
  const given: Record<string, string> = {};
  for (const name of [...SYSTEM, ...EVERYONE, ...ROLES[role].settings]) {
    const value = extra[name] ?? env[name];
    if (value !== undefined && value !== "") given[name] = value;
  }
  return given;
}
