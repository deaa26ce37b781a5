// What a person at a terminal is told when an installation has started: where it is, what runs, and what only stands in for the real thing.

import { existsSync } from "node:fs";
import { type Config, isLoopback } from "./config.ts";

export interface Started {
  readonly url: string;
  readonly apiKey: string;
  readonly roles: readonly string[];
  /** The kind of sandbox that the hand host has. */
  readonly sandbox: string;
}

/** For a terminal only: it shows the API key. */
export function banner(config: Config, started: Started): string {
  const lines = [
    "",
    "  Manyhands is ready.",
    "",
    `  URL       ${started.url}`,
    `  MCP       ${started.url}/mcp`,
    `  API key   ${started.apiKey}`,
    `  programs  ${started.roles.join(", ")}`,
    `  store     ${config.redisUrl === undefined ? `embedded, in ${config.dataDir}` : "Redis"}`,
    `  keys      ${config.keysDir}`,
    "",
    ...standIns(config, started.sandbox).map((text) => `  ! ${text}`),
    "",
  ];
  return `${lines.join("\n")}\n`;
}

/** Each stand-in, and what follows from it; also a warning in the log. */
export function standIns(config: Config, sandbox: string): readonly string[] {
  const said: string[] = [];
  if (sandbox === "virtual")
    said.push(
      "virtual sandbox: no security boundary. Tools run in this machine's own processes; use it with agents that you trust. With Docker, npm run image.",
    );
  if (!config.hasModelKey && config.vaultUrl === undefined)
    said.push("no model key: turns will end with an error that names MANYHANDS_MODEL_KEY_FILE. Put the key into a file and name it there.");
  if (config.modelKeyFile !== undefined && !existsSync(config.modelKeyFile))
    said.push(`no model key yet: there is no file ${config.modelKeyFile}. Turns end with an error until it is there; no restart is needed.`);
  if (config.redisUrl === undefined) said.push("embedded store: one node only. REDIS_URL chooses Redis, for as many nodes as you like.");
  if (config.isMcpOpen) said.push("open MCP door: every program of this machine can start and steer sessions without a key (MANYHANDS_MCP_OPEN).");
  if (!isLoopback(config.host)) said.push(`listening on ${config.host} without TLS: put a proxy that speaks TLS in front of it.`);
  return said;
}
