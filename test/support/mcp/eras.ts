// The same small server in both eras of the protocol, by the official packages: 1.x for the handshake, 2.x for the stateless one.

import { randomUUID } from "node:crypto";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { Server as OldServer } from "@modelcontextprotocol/sdk/server/index.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { createMcpHandler, Server } from "@modelcontextprotocol/server";

export interface EraServer {
  readonly url: string;
  /** Names of tools that were called, and what became of those that were cancelled. */
  readonly calls: string[];
  readonly cancelled: string[];
  close(): Promise<void>;
}

const TOOLS = ["echo", "slow"].map((name) => ({
  name,
  description: `The tool ${name}.`,
  inputSchema: { type: "object" as const, properties: { text: { type: "string" } } },
}));

async function play(name: string, text: string, signal: AbortSignal, server: EraServer): Promise<{ content: { type: "text"; text: string }[] }> {
  server.calls.push(name);
  if (name === "slow") {
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    server.cancelled.push(name);
  }
  return { content: [{ type: "text", text: `${name}: ${text}` }] };
}

async function serve(make: (server: EraServer) => RequestListener): Promise<EraServer> {
  let listener: RequestListener = () => {};
  const http = createServer((request, response) => listener(request, response));
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const server: EraServer = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    calls: [],
    cancelled: [],
    async close() {
      const closed = new Promise<void>((resolve) => http.close(() => resolve()));
      http.closeAllConnections();
      await closed;
    },
  };
  listener = make(server);
  return server;
}

function oldServer(server: EraServer): OldServer {
  const old = new OldServer({ name: "old", version: "1" }, { capabilities: { tools: {} } });
  old.setRequestHandler(ListToolsRequestSchema, () => ({ tools: TOOLS }));
  old.setRequestHandler(CallToolRequestSchema, ({ params }, { signal }) => play(params.name, String(params.arguments?.text ?? ""), signal, server));
  return old;
}

/** Sessions, streams and a handshake. */
export function startHandshake(): Promise<EraServer> {
  const sessions = new Map<string, StreamableHTTPServerTransport>();
  return serve((server) => async (request, response) => {
    const known = sessions.get(String(request.headers["mcp-session-id"] ?? ""));
    if (known) return void known.handleRequest(request, response);
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (id) => void sessions.set(id, transport),
    });
    await oldServer(server).connect(transport as Transport);
    await transport.handleRequest(request, response);
  });
}

/** The kind before Streamable HTTP: a stream, and a path to post to. */
export function startOldSse(): Promise<EraServer> {
  const sessions = new Map<string, SSEServerTransport>();
  return serve((server) => async (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://none");
    if (request.method === "POST" && pathname === "/messages")
      return void sessions.get(searchParams.get("sessionId") ?? "")?.handlePostMessage(request, response);
    if (request.method !== "GET") return void response.writeHead(405).end();
    const transport = new SSEServerTransport("/messages", response);
    sessions.set(transport.sessionId, transport);
    await oldServer(server).connect(transport);
  });
}

/** No handshake, no sessions. */
export function startStateless(): Promise<EraServer> {
  return serve((server) => {
    const handler = createMcpHandler(
      () => {
        const made = new Server({ name: "new", version: "1" }, { capabilities: { tools: {} } });
        made.setRequestHandler("tools/list", () => ({ tools: TOOLS, ttlMs: 0, cacheScope: "private" as const }));
        made.setRequestHandler("tools/call", ({ params }, { mcpReq }) =>
          play(params.name, String(params.arguments?.text ?? ""), mcpReq.signal, server),
        );
        return made;
      },
      { legacy: "reject" },
    );
    const listener = toNodeHandler(handler);
    return (request, response) => {
      const { method = "GET", url = "/", headers } = request;
      void listener({ method, url, headers, [Symbol.asyncIterator]: () => request[Symbol.asyncIterator]() }, response);
    };
  });
}
