// The bridge as a command: where the door is, and with which key, by the settings that the gateway itself has.
//
//   The key in the keys folder is this installation's: it is sent to this installation's own address and to no other one. Elsewhere the key is the
//   one that whoever starts the bridge gives it.

import { join } from "node:path";
import { readConfig, SettingError } from "./config.ts";
import { reachable } from "./launch.ts";
import { runBridge } from "./mcp/bridge.ts";
import { keyIn } from "./own-door.ts";

export async function bridge(given?: string): Promise<void> {
  const config = readConfig();
  const own = `http://${reachable(config.host)}:${config.port}/mcp`;
  const url = given ?? own;
  const isOwn = isSameDoor(url, own) || (config.publicUrl !== undefined && isSameDoor(url, config.publicUrl));
  const key = config.apiKey ?? (isOwn ? await keyIn(join(config.keysDir, "api.key")) : null);
  if (key === null && !config.isMcpOpen)
    throw new SettingError(
      isOwn
        ? `There is no API key: neither MANYHANDS_API_KEY nor api.key in MANYHANDS_KEYS_DIR (${config.keysDir}).`
        : "MANYHANDS_API_KEY is missing: the key of this installation is not sent to another address. Set it to the key of that one.",
    );
  await runBridge({ url, key, input: process.stdin, output: process.stdout, say: (text) => void process.stderr.write(`${text}\n`) });
}

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** The same origin; the names of loopback are one. */
function isSameDoor(one: string, other: string): boolean {
  if (!URL.canParse(one)) return false;
  const [a, b] = [new URL(one), new URL(other)];
  const isSameHost = a.hostname === b.hostname || (LOOPBACK.has(a.hostname) && LOOPBACK.has(b.hostname));
  return a.protocol === b.protocol && a.port === b.port && isSameHost;
}
