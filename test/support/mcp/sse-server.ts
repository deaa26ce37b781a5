// A server of the older HTTP+SSE transport, by the official 1.x package: each stream has a server of its own.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";

export interface SseServer {
  readonly url: string;
  readonly port: number;
  /** Headers of all requests, in order. */
  readonly seen: readonly IncomingMessage["headers"][];
  /** How many streams there are. */
  streams(): number;
  /** Breaks off all streams. */
  cut(): void;
  /** Answers this many posts with this status, without taking them. */
  refuse(status: number, count: number): void;
  close(): Promise<void>;
}

export async function startSseServer(makeServer: () => Server, secret?: string): Promise<SseServer> {
  const transports = new Map<string, { readonly transport: SSEServerTransport; readonly response: ServerResponse }>();
  const seen: IncomingMessage["headers"][] = [];
  const refused = { status: 0, count: 0 };
  const http = createServer(async (request, response) => {
    seen.push(request.headers);
    if (secret !== undefined && request.headers.authorization !== `Bearer ${secret}`) return void response.writeHead(401).end();
    const url = new URL(request.url ?? "/", "http://none");
    if (request.method === "GET" && url.pathname === "/sse") {
      const transport = new SSEServerTransport("/messages", response);
      transports.set(transport.sessionId, { transport, response });
      response.once("close", () => transports.delete(transport.sessionId));
      return void (await makeServer().connect(transport as Transport));
    }
    const known = request.method === "POST" && url.pathname === "/messages" ? transports.get(url.searchParams.get("sessionId") ?? "") : undefined;
    if (refused.count > 0) {
      refused.count -= 1;
      return void response.writeHead(refused.status).end();
    }
    if (!known) return void response.writeHead(404).end();
    await known.transport.handlePostMessage(request, response);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const { port } = http.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/sse`,
    port,
    seen,
    streams: () => transports.size,
    cut: () => {
      for (const { response } of transports.values()) response.destroy();
    },
    refuse: (status, count) => Object.assign(refused, { status, count }),
    async close() {
      http.closeAllConnections();
      await new Promise<void>((resolve) => http.close(() => resolve()));
    },
  };
}
