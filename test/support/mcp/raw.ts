// An MCP server of the handshake era, written by hand so that it can misbehave: it answers what a test's script says, or dies, or says nothing.

import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";

export interface Rpc {
  readonly id?: number | string;
  readonly method: string;
  readonly params?: Record<string, unknown>;
}

/** One request as a script sees it. */
export interface Asked {
  readonly rpc: Rpc;
  readonly session: string | undefined;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Answers with this result. */
  result(result: unknown): void;
  error(code: number, message: string): void;
  /** The answer becomes a stream, to which messages go. */
  stream(): (message: object) => void;
}

/** True: it was answered, or is on its way to be. False: the usual answer. */
type Script = (asked: Asked) => boolean | Promise<boolean>;

export interface RawOptions {
  /** Gives out session ids, and answers 404 to those that it does not know. */
  readonly hasSessions?: boolean;
  readonly port?: number;
  readonly capabilities?: object;
  tools?: unknown[];
  call?(name: string, input: Record<string, unknown>, asked: Asked): unknown;
  script?: Script;
}

export class RawServer {
  readonly seen: Rpc[] = [];
  readonly headers: IncomingMessage["headers"][] = [];
  readonly sessions = new Set<string>();
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #streams = new Set<ServerResponse>();
  options: RawOptions;

  private constructor(options: RawOptions) {
    this.options = options;
    this.#server = createServer((request, response) => void this.#serve(request, response));
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
  }

  static async start(options: RawOptions = {}): Promise<RawServer> {
    const server = new RawServer(options);
    await new Promise<void>((resolve) => server.#server.listen(options.port ?? 0, "127.0.0.1", resolve));
    return server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/mcp`;
  }

  onConnection(heard: () => void): void {
    this.#server.on("connection", heard);
  }

  count(method: string): number {
    return this.seen.filter((rpc) => rpc.method === method).length;
  }

  /** Cuts every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** A notification to every listener. */
  tell(method: string, params: object = {}): void {
    for (const stream of this.#streams) stream.write(`event: message\ndata: ${JSON.stringify({ jsonrpc: "2.0", method, params })}\n\n`);
  }

  get listeners(): number {
    return this.#streams.size;
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.cut();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const session = String(request.headers["mcp-session-id"] ?? "") || undefined;
    const { hasSessions = false, script } = this.options;
    if (request.method === "GET") {
      if (!hasSessions) return void response.writeHead(405).end();
      response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
      this.#streams.add(response);
      request.once("close", () => this.#streams.delete(response));
      return;
    }
    if (request.method === "DELETE") {
      if (session !== undefined) this.sessions.delete(session);
      return void response.writeHead(200).end();
    }
    let text = "";
    for await (const chunk of request) text += String(chunk);
    const rpc = JSON.parse(text) as Rpc;
    this.seen.push(rpc);
    this.headers.push(request.headers);
    const asked = askedOf(rpc, session, request, response);
    if (script !== undefined && (await script(asked))) return;
    if (hasSessions && rpc.method !== "initialize" && (session === undefined || !this.sessions.has(session)))
      return void response.writeHead(404, { "content-type": "application/json" }).end('{"error":"Session not found"}');
    await this.#usual(asked, response);
  }

  async #usual(asked: Asked, response: ServerResponse): Promise<void> {
    const { rpc } = asked;
    if (rpc.id === undefined) return void response.writeHead(202).end();
    switch (rpc.method) {
      case "initialize": {
        if (this.options.hasSessions) {
          const id = randomUUID();
          this.sessions.add(id);
          response.setHeader("mcp-session-id", id);
        }
        const { capabilities = { tools: { listChanged: true } } } = this.options;
        return asked.result({ protocolVersion: "2025-06-18", capabilities, serverInfo: { name: "raw", version: "1" } });
      }
      case "tools/list":
        return asked.result({ tools: this.options.tools ?? [tool("echo")] });
      case "tools/call": {
        const { name, arguments: input } = rpc.params ?? {};
        const given = (typeof input === "object" && input !== null ? input : {}) as Record<string, unknown>;
        const result = await (this.options.call ?? echo)(String(name), given, asked);
        if (result !== undefined) asked.result(result);
        return;
      }
      default:
        return asked.error(-32_601, "Method not found");
    }
  }
}

function askedOf(rpc: Rpc, session: string | undefined, request: IncomingMessage, response: ServerResponse): Asked {
  const answer = (message: object) => {
    const text = JSON.stringify({ jsonrpc: "2.0", id: rpc.id ?? null, ...message });
    if (response.headersSent) response.end(`event: message\ndata: ${text}\n\n`);
    else response.writeHead(200, { "content-type": "application/json" }).end(text);
  };
  return {
    rpc,
    session,
    request,
    response,
    result: (result) => answer({ result }),
    error: (code, message) => answer({ error: { code, message } }),
    stream() {
      response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
      return (message) => response.write(`event: message\ndata: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`);
    },
  };
}

export const tool = (name: string, more: object = {}): object => ({
  name,
  description: `The tool ${name}.`,
  inputSchema: { type: "object", properties: { text: { type: "string" } } },
  ...more,
});
export const says = (text: string, isError = false): object => ({ content: [{ type: "text", text }], ...(isError ? { isError } : {}) });
const echo = (name: string, input: Record<string, unknown>): object => says(`${name}: ${String(input.text ?? "")}`);
