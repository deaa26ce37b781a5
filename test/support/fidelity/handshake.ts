// A server of the handshake era that says everything the protocol can say, over the official package of that era.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import {
  CallToolRequestSchema,
  CompleteRequestSchema,
  CreateMessageResultSchema,
  ElicitResultSchema,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListResourcesRequestSchema,
  ListResourceTemplatesRequestSchema,
  ListRootsResultSchema,
  ListToolsRequestSchema,
  McpError,
  ReadResourceRequestSchema,
  type ServerNotification,
  SetLevelRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { COMPLETION, CONTENT, ERROR, PROMPT, PROMPTS, RESOURCE, RESOURCES, TEMPLATES, TOOLS } from "./said.ts";

export interface FidelityServer {
  readonly url: string;
  close(): Promise<void>;
}

const CAPABILITIES = {
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { listChanged: true, subscribe: true },
  completions: {},
  logging: {},
  experimental: { "vendor/thing": { on: true } },
};

export function makeServer(): Server {
  const server = new Server(
    { name: "everything", title: "Everything", version: "1.2.3" },
    { capabilities: CAPABILITIES, instructions: "Say it all." },
  );
  let cancelled = 0;
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) =>
    params?.cursor === undefined
      ? { tools: TOOLS.slice(0, 3), nextCursor: "é/+=\u0000 2", _meta: { "vendor/page": 1 } }
      : { tools: TOOLS.slice(3), _meta: { seen: params.cursor } },
  );
  server.setRequestHandler(ListPromptsRequestSchema, () => ({ prompts: PROMPTS }));
  server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: RESOURCES }));
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({ resourceTemplates: TEMPLATES }));
  server.setRequestHandler(ReadResourceRequestSchema, ({ params }) => {
    if (params.uri !== RESOURCE.contents[0]?.uri) throw new McpError(-32_002, "Resource not found", { uri: params.uri });
    return RESOURCE;
  });
  server.setRequestHandler(SubscribeRequestSchema, () => ({}));
  server.setRequestHandler(UnsubscribeRequestSchema, () => ({ _meta: { "vendor/bye": true } }));
  server.setRequestHandler(GetPromptRequestSchema, () => PROMPT);
  server.setRequestHandler(CompleteRequestSchema, () => COMPLETION);
  server.setRequestHandler(SetLevelRequestSchema, () => ({}));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, { sendNotification, sendRequest, signal, requestId }) => {
    const say = (notification: ServerNotification) => sendNotification(notification);
    const text = (said: unknown) => ({ content: [{ type: "text" as const, text: JSON.stringify(said) }] });
    switch (params.name) {
      case "content":
        return CONTENT;
      case "echo":
        return text({ arguments: params.arguments, meta: params._meta });
      case "steps": {
        const progressToken = params._meta?.progressToken ?? "none";
        await say({ method: "notifications/message", params: { level: "info", logger: "steps", data: { at: "start", _meta: { "vendor/a": 1 } } } });
        for (const progress of [0, 0.5, 1])
          await say({ method: "notifications/progress", params: { progressToken, progress, total: 1, message: `at ${progress}` } });
        return text("stepped");
      }
      case "ask": {
        const sampled = await sendRequest(
          {
            method: "sampling/createMessage",
            params: { messages: [{ role: "user", content: { type: "text", text: "2+2?" } }], maxTokens: 10, _meta: { "vendor/s": 1 } },
          },
          CreateMessageResultSchema,
        );
        const form = { type: "object" as const, properties: { name: { type: "string" as const, default: "x" } }, required: ["name"] };
        const elicited = await sendRequest({ method: "elicitation/create", params: { message: "Who?", requestedSchema: form } }, ElicitResultSchema);
        const roots = await sendRequest({ method: "roots/list" }, ListRootsResultSchema);
        return text({ sampled, elicited, roots });
      }
      case "slow":
        await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
        cancelled += 1;
        return text(`never seen ${requestId}`);
      case "cancelled":
        return text(cancelled);
      case "fails":
        return { ...text("it went wrong"), isError: true };
      case "changes":
        await server.sendToolListChanged();
        await server.sendPromptListChanged();
        await server.sendResourceListChanged();
        await server.sendResourceUpdated({ uri: "test://a" });
        await server.sendLoggingMessage({ level: "error", data: "aside" });
        return text("changed");
      default:
        throw new McpError(ERROR.code, ERROR.message, ERROR.data);
    }
  });
  return server;
}

export async function startHandshakeServer(): Promise<FidelityServer> {
  const transports = new Map<string, StreamableHTTPServerTransport>();
  const http = createServer(async (request, response) => {
    const id = request.headers["mcp-session-id"];
    const known = transports.get(String(id));
    if (id !== undefined && !known)
      return void response
        .writeHead(404, { "content-type": "application/json" })
        .end('{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}');
    if (known) return void known.handleRequest(request, response);
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (opened) => void transports.set(opened, transport),
      onsessionclosed: (closed) => void transports.delete(closed),
    });
    await makeServer().connect(transport as never);
    await transport.handleRequest(request, response);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    close: () => {
      http.closeAllConnections();
      return new Promise((resolve) => http.close(() => resolve()));
    },
  };
}
