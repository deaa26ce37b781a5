// Doors for MCP clients in this process, over one real store: replicas that share nothing else.

import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { makeAuthenticate } from "../../gateway/authenticate.ts";
import { Bodies } from "../../gateway/http/body.ts";
import { McpDoor, type McpSettings } from "../../gateway/mcp/door.ts";
import type { Surface } from "../../gateway/mcp/surface.ts";
import { openEmbeddedStore } from "../../session-store/drivers/embedded/driver.ts";
import type { SessionStore } from "../../session-store/store.ts";

/** Two callers. */
const KEYS = ["key-of-the-first-caller", "key-of-the-second-caller"] as const;
export const [FIRST, SECOND] = KEYS.map((key) => ({ authorization: `Bearer ${key}` })) as [{ authorization: string }, { authorization: string }];

export interface Doors {
  /** The URL of each replica's door. */
  readonly urls: readonly string[];
  readonly store: SessionStore;
  readonly logged: readonly string[];
  /** Ends a replica as a stop does, and puts a new one at a new address in its place. */
  restart(index: number): Promise<string>;
  close(): Promise<void>;
}

export async function openDoors(
  surface: () => Surface,
  { count = 1, keepAliveMs = 1_000, ...settings }: Partial<McpSettings> & { count?: number; keepAliveMs?: number } = {},
): Promise<Doors> {
  const dir = await mkdtemp(join(tmpdir(), "manyhands-mcp-"));
  const store = await openEmbeddedStore({ dir, leaseMs: 30_000 });
  const logged: string[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => void logged.push(line) });
  const open = async () => {
    const own = { url: "" };
    const door = new McpDoor({
      path: "/mcp",
      surface: surface(),
      store,
      log,
      authenticate: makeAuthenticate(KEYS),
      bodies: new Bodies(),
      keepAliveMs,
      publicUrl: null,
      ownUrl: () => own.url,
      isLoopback: true,
      issuer: null,
      isOpen: false,
      stateKey: Buffer.alloc(32, 5),
      ...settings,
    });
    const server = createServer((request, response) => void door.serve(request, response));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    own.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return { door, server, url: `${own.url}/mcp` };
  };
  const replicas = await Promise.all(Array.from({ length: count }, open));
  const end = async ({ door, server }: { door: McpDoor; server: Server }) => {
    await door.close();
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return {
    get urls() {
      return replicas.map(({ url }) => url);
    },
    store,
    logged,
    async restart(index) {
      const old = replicas[index];
      if (old) await end(old);
      const replica = await open();
      replicas[index] = replica;
      return replica.url;
    },
    async close() {
      await Promise.all(replicas.map(end));
      await store.close();
      await rm(dir, { recursive: true });
    },
  };
}
