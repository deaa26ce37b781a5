// Other people's servers as an operator names them for the hand host.

import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "../process.ts";

const CHROMIUM = "/usr/bin/chromium";
const entry = (name: string, file: string): string => join(ROOT, "node_modules", name, file);
const node = (args: readonly string[], env: Readonly<Record<string, string>> = {}) => ({ command: process.execPath, args, env });

/** Writes a MANYHANDS_MCP_SERVERS_FILE into `folder`, which is also what the server of files serves; gives its path. */
export async function peoplesServers(folder: string): Promise<string> {
  const browser = ["--headless", "--no-sandbox", "--isolated", "--executable-path", CHROMIUM];
  const mcpServers = {
    everything: node([entry("@modelcontextprotocol/server-everything", "dist/index.js"), "stdio"]),
    files: node([entry("@modelcontextprotocol/server-filesystem", "dist/index.js"), folder]),
    memory: node([entry("@modelcontextprotocol/server-memory", "dist/index.js")], { MEMORY_FILE_PATH: join(folder, "memory.json") }),
    browser: node([entry("@playwright/mcp", "cli.js"), ...browser], { HOME: folder }),
  };
  const path = join(folder, "servers.json");
  await writeFile(path, JSON.stringify({ mcpServers }));
  return path;
}
