// The bridge as a command: where the door is, and with which key, by the settings that the gateway itself has.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { readConfig, SettingError } from "./config.ts";
import { reachable } from "./launch.ts";
import { runBridge } from "./mcp/bridge.ts";

export async function bridge(given?: string): Promise<void> {
  const config = readConfig();
  const url = given ?? `http://${reachable(config.host)}:${config.port}/mcp`;
  const key = config.apiKey ?? (await keyIn(join(config.keysDir, "api.key")));
  if (key === null && !config.isMcpOpen)
    throw new SettingError(`There is no API key: neither MANYHANDS_API_KEY nor api.key in MANYHANDS_KEYS_DIR (${config.keysDir}).`);
  await runBridge({ url, key, input: process.stdin, output: process.stdout, say: (text) => void process.stderr.write(`${text}\n`) });
}

async function keyIn(path: string): Promise<string | null> {
  try {
    return (await readFile(path, "utf8")).trim();
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw error;
  }
}
