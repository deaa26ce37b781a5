// The parts that a relay is measured between, each a program of its own: a trivial server (over HTTP, or its standard input), and a byte relay, the
// least that a relay in this language can do.
//
//   node relay-parts.js hand | bytes <url> | stdio

import { Agent, createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";

const [role = "", target = ""] = process.argv.slice(2);
const INFO = { name: "trivial", version: "1" };
const TOOLS = [{ name: "echo", description: "Says what it was told", inputSchema: { type: "object", properties: { text: { type: "string" } } } }];

interface Message {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: { readonly protocolVersion?: string; readonly arguments?: { readonly text?: string } };
}

function resultOf({ method, params }: Message): object | null {
  switch (method) {
    case "initialize":
      return { protocolVersion: params?.protocolVersion ?? "2025-11-25", capabilities: { tools: {} }, serverInfo: INFO };
    case "server/discover":
      return {
        resultType: "complete",
        supportedVersions: ["2026-07-28"],
        capabilities: { tools: {} },
        serverInfo: INFO,
        ttlMs: 0,
        cacheScope: "private",
      };
    case "tools/list":
      return { tools: TOOLS };
    case "tools/call":
      return { content: [{ type: "text", text: params?.arguments?.text ?? "" }] };
    case "ping":
      return {};
    default:
      return null;
  }
}

function answerTo(text: string): { readonly reply: string | null; readonly isHello: boolean } {
  const message: Message = JSON.parse(text);
  if (message.id === undefined) return { reply: null, isHello: false };
  const result = resultOf(message);
  const told = result ? { result } : { error: { code: -32_601, message: "Method not found" } };
  return { reply: JSON.stringify({ jsonrpc: "2.0", id: message.id, ...told }), isHello: message.method === "initialize" };
}

function serveHand() {
  let sessions = 0;
  return createServer((incoming, answer) => {
    const chunks: Buffer[] = [];
    incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
    incoming.on("end", () => {
      if (incoming.method !== "POST") return void answer.writeHead(405).end();
      const { reply, isHello } = answerTo(Buffer.concat(chunks).toString("utf8"));
      if (reply === null) return void answer.writeHead(202).end();
      sessions += isHello ? 1 : 0;
      const session = isHello ? { "mcp-session-id": `session-${sessions}` } : {};
      answer.writeHead(200, { "content-type": "application/json", "content-length": Buffer.byteLength(reply), ...session }).end(reply);
    });
  });
}

function serveBytes(url: URL) {
  const agent = new Agent({ keepAlive: true, maxSockets: 512 });
  return createServer((incoming, answer) => {
    const { host: _, ...headers } = incoming.headers;
    const outgoing = request(url, { method: incoming.method, headers, agent }, (from) => {
      answer.writeHead(from.statusCode ?? 502, from.headers);
      from.pipe(answer);
    });
    outgoing.on("error", () => (answer.headersSent ? answer.destroy() : answer.writeHead(502).end()));
    incoming.pipe(outgoing);
  });
}

if (role === "stdio") {
  for await (const line of createInterface({ input: process.stdin })) {
    const { reply } = answerTo(line);
    if (reply !== null) process.stdout.write(`${reply}\n`);
  }
} else {
  const server = role === "hand" ? serveHand() : serveBytes(new URL(target));
  server.keepAliveTimeout = 60_000;
  server.listen(0, "127.0.0.1", () => {
    process.stdout.write(`${JSON.stringify({ msg: "process.listening", url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp` })}\n`);
  });
}
