// Every setting of ours, by name: what any program of an installation may find in its environment. A program reads only its own; a name that
// begins with MANYHANDS_ and is not here is a mistake, and stops the program that finds it.

export const KNOWN_SETTINGS = [
  "MANYHANDS_PORT",
  "MANYHANDS_HOST",
  "MANYHANDS_DATA_DIR",
  "MANYHANDS_KEYS_DIR",
  "MANYHANDS_API_KEY",
  "MANYHANDS_SANDBOX",
  "MANYHANDS_MODEL_KEY_FILE",
  "MANYHANDS_LEASE_MS",
  "MANYHANDS_SESSIONS_MAX",
  "MANYHANDS_VAULT_PORT",
  "MANYHANDS_HANDS_PORT",
  "MANYHANDS_VAULT_URL",
  "MANYHANDS_HANDS_URL",
  "MANYHANDS_PARENT_PIPE",
  "MANYHANDS_LOG_LEVEL",
  "MANYHANDS_FAULT_POINT",
] as const;
