// The relay of an operator's servers behind a plain HTTP server, with children of its own.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { pino } from "pino";
import { ServerRelay } from "../../../hands/relay/door.ts";
import { Children } from "../../../hands/servers/children.ts";
import type { ConfiguredServer } from "../../../hands/servers/configured.ts";
import { Reach } from "../../../hands/servers/reach.ts";

export const file = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));
export const EVERYTHING = ["node_modules/@modelcontextprotocol/server-everything/dist/index.js", "stdio"] as const;

export interface RunningRelay {
  /** The URL of a server, by its name. */
  url(server: string, query?: string): string;
  close(): Promise<void>;
}

/** A command of the operator's file: a script of this repository. */
export function script(path: string, args: readonly string[] = [], env: Readonly<Record<string, string>> = {}): ConfiguredServer {
  return { type: "command", command: { command: process.execPath, args: [file(path), ...args], env, cwd: null } };
}

export async function startServerRelay(
  servers: Readonly<Record<string, ConfiguredServer>>,
  limits: { readonly idleMs?: number; readonly sessionsMax?: number } = {},
): Promise<RunningRelay> {
  const reach = new Reach(["*"], 5_000);
  const children = new Children(`test-${process.pid}-${Math.random().toString(36).slice(2)}`, { PATH: process.env.PATH ?? "" });
  const log = pino({ level: "silent" });
  const relay = new ServerRelay({
    configured: new Map(Object.entries(servers)),
    children,
    reach,
    log,
    ...limits,
  });
  const http = createServer((request, response) => void relay.serve(request, response, new URL(request.url ?? "/", "http://none")));
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const base = `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp/servers`;
  return {
    url: (server, query = "") => `${base}/${encodeURIComponent(server)}${query}`,
    async close() {
      await relay.stop();
      http.closeAllConnections();
      await new Promise<void>((resolve) => http.close(() => resolve()));
      await reach.close();
    },
  };
}
