// The relay of an operator's servers behind a plain HTTP server, with children of its own.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { pino } from "pino";
import { ServerRelay } from "../../../hands/relay/door.ts";
import { SseReach } from "../../../hands/relay/sse.ts";
import { Children } from "../../../hands/servers/children.ts";
import type { ConfiguredServer } from "../../../hands/servers/configured.ts";
import { Reach } from "../../../hands/servers/reach.ts";
import { VaultWay } from "../../../hands/servers/vault-way.ts";

export const file = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));
export const EVERYTHING = ["node_modules/@modelcontextprotocol/server-everything/dist/index.js", "stdio"] as const;

export interface RunningRelay {
  /** Where a gateway reaches it. */
  readonly origin: string;
  readonly logged: readonly string[];
  /** The URL of a server, by its name. */
  url(server: string, query?: string): string;
  close(): Promise<void>;
}

/** A command of the operator's file: a script of this repository. */
export function script(path: string, args: readonly string[] = [], env: Readonly<Record<string, string>> = {}): ConfiguredServer {
  return { type: "command", command: { command: process.execPath, args: [file(path), ...args], env, cwd: null } };
}

interface Options {
  readonly idleMs?: number;
  readonly awayMs?: number;
  readonly internalHosts?: readonly string[];
  readonly vaultUrl?: string;
  readonly port?: number;
  readonly sessionsMax?: number;
}

export async function startServerRelay(
  servers: Readonly<Record<string, ConfiguredServer>>,
  { internalHosts = ["*"], vaultUrl, port = 0, ...limits }: Options = {},
): Promise<RunningRelay> {
  const reach = new Reach(["*"], 5_000);
  const vault = vaultUrl === undefined ? null : new VaultWay(vaultUrl);
  const sse = new SseReach({ internalHosts, vault });
  const children = new Children(`test-${process.pid}-${Math.random().toString(36).slice(2)}`, { PATH: process.env.PATH ?? "" });
  const logged: string[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => void logged.push(line) });
  const relay = new ServerRelay({
    configured: new Map(Object.entries(servers)),
    children,
    reach,
    sse,
    log,
    ...limits,
  });
  const http = createServer((request, response) => void relay.serve(request, response, new URL(request.url ?? "/", "http://none")));
  await new Promise<void>((resolve) => http.listen(port, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  return {
    origin,
    logged,
    url: (server, query = "") => `${origin}/mcp/servers/${encodeURIComponent(server)}${query}`,
    async close() {
      await relay.stop();
      http.closeAllConnections();
      await new Promise<void>((resolve) => http.close(() => resolve()));
      await Promise.all([sse.close(), reach.close(), vault?.close()]);
    },
  };
}
