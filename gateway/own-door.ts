// Where the API is that a command speaks to, and with which key, by the settings that the gateway itself has.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { readConfig, SettingError } from "./config.ts";
import { reachable } from "./launch.ts";

/** This installation's own gateway, on this machine. */
export async function ownDoor(): Promise<{ readonly url: string; readonly key: string }> {
  const config = readConfig();
  const key = config.apiKey ?? (await keyIn(join(config.keysDir, "api.key")));
  if (key === null) throw new SettingError(`There is no API key: neither MANYHANDS_API_KEY nor api.key in MANYHANDS_KEYS_DIR (${config.keysDir}).`);
  return { url: `http://${reachable(config.host)}:${config.port}`, key };
}

export async function keyIn(path: string): Promise<string | null> {
  try {
    return (await readFile(path, "utf8")).trim();
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw error;
  }
}
