// Hands in the registry, as a test wants them.

import { mkdtemp } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pino from "pino";
import { HAND_KIND, RegisteredHand } from "../../hands/registry.ts";
import type { Documents } from "../../session-store/documents.ts";
import { openStore } from "../../session-store/open.ts";

export type HandFields = Partial<Omit<RegisteredHand, "transport">> & {
  readonly name: string;
  readonly url: string;
  readonly transport?: "http" | "sse";
};

function handOf({ url, transport = "http", ...fields }: HandFields): RegisteredHand {
  return RegisteredHand.parse({
    description: "",
    transport: { type: transport, url },
    sharing: "shared",
    vault_ids: [],
    allowed_tools: null,
    timeouts: { connect_ms: null, idle_ms: null, total_ms: null },
    tools: null,
    held_back: [],
    health: { status: "unknown", checked_at: null, error: null, server: null, protocol_version: null },
    ...fields,
  });
}

/** Registers a hand, or changes one. */
export async function registerHand(documents: Documents, fields: HandFields, workspace = "default"): Promise<void> {
  const before = await documents.get(workspace, HAND_KIND, fields.name);
  await documents.put(workspace, [{ kind: HAND_KIND, id: fields.name, body: handOf(fields), replaces: before?.revision ?? 0 }]);
}

/** The same in a store that other processes use. */
export async function putHand({ redisUrl }: { redisUrl: string }, fields: HandFields): Promise<void> {
  const dataDir = await mkdtemp(join(tmpdir(), "manyhands-hand-"));
  const store = await openStore({ redisUrl, dataDir, leaseMs: 30_000, log: pino({ level: "silent" }) });
  await registerHand(store, fields);
  await store.close();
}

interface Seen {
  readonly method: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

export interface ScriptedHand {
  readonly url: string;
  readonly port: number;
  /** All requests, in order. */
  readonly seen: readonly Seen[];
  /** The last one of this JSON-RPC method. */
  last(method: string): Seen | undefined;
  answer(answer: Answering): void;
  close(): Promise<void>;
}

type Answering = (seen: Seen, response: ServerResponse) => void;

export const json = (response: ServerResponse, message: unknown, status = 200, headers: Readonly<Record<string, string>> = {}): void => {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(typeof message === "string" ? message : JSON.stringify(message));
};

/** A server of either era whose answers a test writes itself; until it does, it initializes, is discovered, and answers everything with `{}`. */
export async function startScriptedHand({ eras }: { eras: readonly ("handshake" | "stateless")[] }): Promise<ScriptedHand> {
  const seen: Seen[] = [];
  let sessions = 0;
  let answering: Answering | null = null;
  const http = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const one: Seen = { method: request.method ?? "", headers: request.headers, body: Buffer.concat(chunks).toString("utf8") };
      seen.push(one);
      const { id, method } = one.body === "" ? { id: null, method: "" } : JSON.parse(one.body);
      if (method === "server/discover") {
        if (eras.includes("stateless"))
          return json(response, { jsonrpc: "2.0", id, result: { supportedVersions: ["2026-07-28"], capabilities: {}, serverInfo: INFO } });
        return json(response, { jsonrpc: "2.0", id: null, error: { code: -32_000, message: "Bad Request: Server not initialized" } }, 400);
      }
      if (method === "initialize" && eras.includes("handshake")) {
        sessions += 1;
        return json(response, { jsonrpc: "2.0", id, result: { protocolVersion: "2025-11-25", capabilities: {}, serverInfo: INFO } }, 200, {
          "mcp-session-id": `theirs-${sessions}`,
        });
      }
      if (method === "initialize")
        return json(response, { jsonrpc: "2.0", id, error: { code: -32_022, message: "no", data: { supported: ["2026-07-28"] } } }, 400);
      if (answering) return answering(one, response);
      if (id === undefined || request.method !== "POST") return void response.writeHead(202).end();
      json(response, { jsonrpc: "2.0", id, result: {} });
    });
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const { port } = http.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    port,
    seen,
    last: (method) => seen.findLast(({ body }) => body.includes(`"${method}"`)),
    answer: (next) => {
      answering = next;
    },
    close: () => {
      http.closeAllConnections();
      return new Promise((resolve) => http.close(() => resolve()));
    },
  };
}

const INFO = { name: "scripted", version: "1" };
