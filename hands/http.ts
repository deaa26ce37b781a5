// The hand host's HTTP door: who may come in, and how much they may bring.
//
//   O1  Every request but the health check carries the hand key; it is compared in constant time and never logged.
//   O2  On a loopback address only loopback names are taken as Host, and no foreign Origin: a web page can't reach in.

import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from "@modelcontextprotocol/node";
import type { Logger } from "pino";
import type { HandHost } from "./host.ts";
import { HAND_PATH, mcpHandler } from "./mcp.ts";
import { isRelayed } from "./relay/door.ts";

const BODY_BYTES_MAX = 32 * 1024 * 1024;
const REQUESTS_MAX = 2_048;
const HEADERS_TIMEOUT_MS = 10_000;
const BODY_TIMEOUT_MS = 60_000;
const IDLE_CONNECTION_MS = 60_000;
const PORT_WAIT_MS = 10_000;
const PORT_RETRY_MS = 100;

export interface DoorOptions {
  readonly host: HandHost;
  readonly handKey: string;
  readonly address: string;
  readonly port: number;
  readonly log: Logger;
}

export interface Door {
  readonly url: string;
  /** Takes no more connections; open requests go on. */
  close(): void;
  /** Cuts what is still open. */
  cut(): Promise<void>;
}

export async function openDoor({ host, handKey, address, port, log }: DoorOptions): Promise<Door> {
  const mcp = mcpHandler(host, (error) => log.warn({ reason: error.message.slice(0, 300) }, "request.refused"), BODY_BYTES_MAX);
  const serve = toNodeHandler(mcp, { maxRequestBodySize: BODY_BYTES_MAX, onerror: (error) => log.error({ err: error }, "request.failed") });
  const isLoopback = ["127.0.0.1", "localhost", "::1"].includes(address);
  const isHostGood = localhostHostValidation();
  const isOriginGood = localhostOriginValidation();
  const isKeyGood = keyCheck(handKey);
  let open = 0;
  let isClosed = false;

  const server = createServer(
    { headersTimeout: HEADERS_TIMEOUT_MS, requestTimeout: BODY_TIMEOUT_MS, keepAliveTimeout: IDLE_CONNECTION_MS },
    (request, response) => {
      if (isLoopback && !isHostGood(request, response)) return;
      if (!isOriginGood(request, response)) return;
      const url = new URL(request.url ?? "/", "http://none");
      const path = url.pathname;
      if (path === "/healthz") return answer(response, 200, { status: "ok", ...host.identity() });
      if (!isKeyGood(request)) return answer(response, 401, { error: "The hand key is missing or not valid." }, { "www-authenticate": "Bearer" });
      const isServer = isRelayed(path);
      if (path !== "/mcp" && !HAND_PATH.test(path) && !isServer) return answer(response, 404, { error: "There is no such path." });
      if (isClosed) return answer(response, 503, { error: "The hand host is shutting down." }, { "retry-after": "1" });
      if (open >= REQUESTS_MAX) return answer(response, 503, { error: "Too many requests are open." }, { "retry-after": "1" });
      open += 1;
      response.once("close", () => {
        open -= 1;
      });
      if (isServer) return void relayed(host.relay.serve(request, response, url), response, log);
      void serve(asMcp(request), response);
    },
  );

  await listen(server, address, port);
  const { port: taken } = server.address() as AddressInfo;
  return {
    url: `http://${address.includes(":") ? `[${address}]` : address}:${taken}`,
    close() {
      isClosed = true;
      server.close();
      server.closeIdleConnections();
    },
    async cut() {
      await mcp.close();
      server.closeAllConnections();
    },
  };
}

/** A request as the MCP adapter takes it: with a method, which every request of a server has. */
function asMcp(request: IncomingMessage) {
  const { method = "GET", url = "/", headers } = request;
  return { method, url, headers, [Symbol.asyncIterator]: () => request[Symbol.asyncIterator]() };
}

/** A client that went away is nobody's error. */
async function relayed(work: Promise<void>, response: ServerResponse, log: Logger): Promise<void> {
  try {
    await work;
  } catch (error) {
    log.error({ err: error }, "request.failed");
    if (response.headersSent) response.destroy();
    else answer(response, 500, { error: "Internal error" });
  }
}

/** O1 */
function keyCheck(handKey: string): (request: IncomingMessage) => boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  const wanted = digest(`Bearer ${handKey}`);
  return (request) => timingSafeEqual(digest(request.headers.authorization ?? ""), wanted);
}

function answer(response: ServerResponse, status: number, body: object, headers: Record<string, string> = {}): void {
  // A body that was not read must not be taken for the next request.
  response.writeHead(status, { "content-type": "application/json", ...(status >= 400 ? { connection: "close" } : {}), ...headers });
  response.end(JSON.stringify(body));
}

/** A port that a process before this one still holds is waited for. */
async function listen(server: Server, address: string, port: number): Promise<void> {
  const deadline = Date.now() + PORT_WAIT_MS;
  for (;;) {
    try {
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen(port, address, () => {
          server.off("error", reject);
          resolve();
        });
      });
      return;
    } catch (error) {
      const isTaken = error instanceof Error && "code" in error && error.code === "EADDRINUSE";
      if (!isTaken || Date.now() >= deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, PORT_RETRY_MS));
    }
  }
}
