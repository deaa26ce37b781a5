// The names of every setting of every program: each reads its own and refuses a name that is nobody's, so that a misspelt one is not silently lost.

export const KNOWN_SETTINGS = [
  "MANYHANDS_ATTEMPTS_MAX",
  "MANYHANDS_CONCURRENCY",
  "MANYHANDS_DATA_DIR",
  "MANYHANDS_HANDS_PORT",
  "MANYHANDS_HANDS_URL",
  "MANYHANDS_HOST",
  "MANYHANDS_KEYS_DIR",
  "MANYHANDS_LEASE_MS",
  "MANYHANDS_LOG_LEVEL",
  "MANYHANDS_PARENT_PIPE",
  "MANYHANDS_PORT",
  "MANYHANDS_SANDBOX",
  "MANYHANDS_VAULT_PORT",
  "MANYHANDS_VAULT_URL",
] as const;

/** The MANYHANDS_* names in an environment that are no setting of any program. */
export function unknownSettings(environment: Readonly<Record<string, string | undefined>>): string[] {
  const known: ReadonlySet<string> = new Set(KNOWN_SETTINGS);
  return Object.keys(environment).filter((name) => name.startsWith("MANYHANDS_") && !known.has(name));
}
