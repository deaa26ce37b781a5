// The HTTP door of a gateway over the store and the hands of a node in this process.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import type { McpSettings } from "../../gateway/mcp/door.ts";
import { makeServer } from "../../gateway/server.ts";
import type { VaultProxy } from "../../gateway/vault-proxy.ts";
import type { Hands } from "../../hands/hand.ts";
import { noFault } from "../../session-store/fault-point.ts";
import type { SessionStore } from "../../session-store/store.ts";

export const API_KEY = "test-key-1";

interface Answer {
  readonly status: number;
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came back.
  readonly body: any;
}

export interface RegistryDoor {
  readonly url: string;
  readonly logged: readonly Record<string, unknown>[];
  call(method: string, path: string, body?: unknown): Promise<Answer>;
  /** Registers a hand; fails unless that worked. */
  register(fields: { readonly name: string; readonly [field: string]: unknown }): Promise<Answer["body"]>;
  close(): Promise<void>;
}

export async function openRegistry(
  { store, hands, vaultProxy = null }: { readonly store: SessionStore; readonly hands: Hands | null; readonly vaultProxy?: VaultProxy | null },
  { handCheckMs = 0, ...settings }: Partial<McpSettings> & { readonly handCheckMs?: number } = {},
): Promise<RegistryDoor> {
  const logged: Record<string, unknown>[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => void logged.push(JSON.parse(line) as Record<string, unknown>) });
  let url = "";
  const mcp = { publicUrl: null, ownUrl: () => url, isLoopback: true, issuer: null, isOpen: false, stateKey: Buffer.alloc(32, 1), ...settings };
  const server = makeServer({ store, hands, vaultProxy, apiKeys: [API_KEY], log, fault: noFault, ready: () => true, mcp, handCheckMs });
  const http = createServer(server.app);
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const call = async (method: string, path: string, body?: unknown): Promise<Answer> => {
    const answer = await fetch(`${url}${path}`, {
      method,
      headers: { "x-api-key": API_KEY },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    return { status: answer.status, body: await answer.json() };
  };
  return {
    url,
    logged,
    call,
    async register(fields) {
      const { status, body } = await call("POST", "/v1/hands", fields);
      if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`);
      return body;
    },
    async close() {
      server.close();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}
