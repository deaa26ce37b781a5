// Gateways in the test's process, over one real store: replicas that serve the doors of sessions' hands. And clients of both eras for them.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { pino } from "pino";
import { z } from "zod";
import { makeServer } from "../../gateway/server.ts";
import { type HandsKeys, openHandsKeys } from "../../harnesses/hands-key.ts";
import { noFault } from "../../session-store/fault-point.ts";
import type { SessionStore } from "../../session-store/store.ts";

export const API_KEY = "the-key-of-the-workspace";

export interface Gateways {
  /** Where each replica is. */
  readonly urls: readonly string[];
  readonly keys: HandsKeys;
  readonly logged: readonly string[];
  close(): Promise<void>;
}

export async function openGateways({ store, keyFile }: { readonly store: SessionStore; readonly keyFile: string }, count = 1): Promise<Gateways> {
  const keys = await openHandsKeys(keyFile);
  const logged: string[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => void logged.push(line) });
  const open = async () => {
    let url = "";
    const mcp = { publicUrl: null, ownUrl: () => url, isLoopback: true, issuer: null, isOpen: false, stateKey: Buffer.alloc(32, 7) };
    const sessionHands = { keys, url: () => url };
    const gateway = makeServer({ store, apiKeys: [API_KEY], log, fault: noFault, ready: () => true, mcp, sessionHands, keepAliveMs: 1_000 });
    const server = createServer(gateway.app);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return { gateway, server, url };
  };
  const replicas = await Promise.all(Array.from({ length: count }, open));
  return {
    urls: replicas.map(({ url }) => url),
    keys,
    logged,
    async close() {
      for (const { gateway, server } of replicas) {
        gateway.close();
        server.closeAllConnections();
        await new Promise<void>((resolve) => server.close(() => resolve()));
      }
    },
  };
}

export type Era = "v1" | "v2";

const Part = z.looseObject({ type: z.string(), text: z.string().optional() });
const Result = z.looseObject({ content: z.array(Part), isError: z.boolean().optional(), structuredContent: z.unknown().optional() });

export interface HandsClientOptions {
  /** What a person says to a question; null: there is none. */
  readonly person?: ((message: string) => "allow" | "deny") | null;
}

export interface Called {
  readonly text: string;
  readonly isError: boolean;
  readonly content: readonly z.infer<typeof Part>[];
  readonly structured: unknown;
}

/** An official client of either line at a session's door. */
export async function connectHands(era: Era, url: string, key: string, { person = null }: HandsClientOptions = {}) {
  const requestInit = { headers: { authorization: `Bearer ${key}` } };
  const capabilities = person ? { elicitation: {} } : {};
  const said = (message: string) => ({ action: "accept" as const, content: { decision: person?.(message) ?? "deny" } });
  const options = { timeout: 60_000, resetTimeoutOnProgress: true };
  const client =
    era === "v1"
      ? new Client({ name: "t", version: "1" }, { capabilities })
      : new ModernClient({ name: "t", version: "1" }, { capabilities, versionNegotiation: { mode: "auto" } });
  if (client instanceof Client) {
    if (person) client.setRequestHandler(ElicitRequestSchema, async ({ params }) => said(params.message));
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }) as never);
  } else {
    if (person) client.setRequestHandler("elicitation/create", async ({ params }) => said(params.message));
    await client.connect(new ModernTransport(new URL(url), { requestInit }));
  }
  return {
    async tools() {
      return (await client.listTools()).tools;
    },
    async call(
      name: string,
      args: Record<string, unknown> = {},
      more: { signal?: AbortSignal; meta?: Record<string, unknown> } = {},
    ): Promise<Called> {
      const params = { name, arguments: args, ...(more.meta && { _meta: more.meta }) };
      const signal = more.signal ? { signal: more.signal } : {};
      const given =
        client instanceof Client
          ? await client.callTool(params, undefined, { ...options, ...signal })
          : await client.callTool(params, { ...options, ...signal });
      const { content, isError = false, structuredContent } = Result.parse(given);
      return { content, isError, structured: structuredContent, text: content.map(({ type, text = `[${type}]` }) => text).join("") };
    },
    close: () => client.close(),
  };
}
