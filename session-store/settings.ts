// Every setting of ours, by name: what any program of an installation may find in its environment. A program reads only its own; a name that
// begins with MANYHANDS_ and is not here is a mistake, and stops the program that finds it.

export const KNOWN_SETTINGS = [
  "MANYHANDS_PORT",
  "MANYHANDS_HOST",
  "MANYHANDS_DATA_DIR",
  "MANYHANDS_KEYS_DIR",
  "MANYHANDS_API_KEY",
  "MANYHANDS_SANDBOX",
  "MANYHANDS_SANDBOX_IDLE_MS",
  "MANYHANDS_DOCKER_IMAGE",
  "MANYHANDS_DOCKER_MEMORY_MB",
  "MANYHANDS_DOCKER_PIDS",
  "MANYHANDS_DOCKER_CPUS",
  "MANYHANDS_DOCKER_TMP_MB",
  "MANYHANDS_DOCKER_CONTAINERS_MAX",
  "MANYHANDS_MODEL_KEY_FILE",
  "MANYHANDS_MODEL_HEADERS_TIMEOUT_MS",
  "MANYHANDS_MODEL_IDLE_TIMEOUT_MS",
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
  "MANYHANDS_LEASE_MS",
  "MANYHANDS_SESSIONS_MAX",
  "MANYHANDS_KEEP_ALIVE_MS",
  "MANYHANDS_PUBLIC_URL",
  "MANYHANDS_MCP_ISSUER",
  "MANYHANDS_MCP_JWKS_URL",
  "MANYHANDS_MCP_OPEN",
  "MANYHANDS_VAULT_PORT",
  "MANYHANDS_HANDS_PORT",
  "MANYHANDS_VAULT_URL",
  "MANYHANDS_HANDS_URL",
  "MANYHANDS_PARENT_PIPE",
  "MANYHANDS_LOG_LEVEL",
  "MANYHANDS_FAULT_POINT",
] as const;

/** The MANYHANDS_* names in an environment that are no setting of any program. */
export function unknownSettings(environment: Readonly<Record<string, string | undefined>>): string[] {
  const known: ReadonlySet<string> = new Set(KNOWN_SETTINGS);
  return Object.keys(environment).filter((name) => name.startsWith("MANYHANDS_") && !known.has(name));
}
