// A server of the handshake era that uses the whole protocol, by the official 1.x package, over Streamable HTTP with sessions.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import {
  CallToolRequestSchema,
  type CallToolResult,
  CompleteRequestSchema,
  CreateMessageResultSchema,
  ElicitResultSchema,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListResourcesRequestSchema,
  ListRootsResultSchema,
  ListToolsRequestSchema,
  McpError,
  ReadResourceRequestSchema,
  SetLevelRequestSchema,
  SubscribeRequestSchema,
  UnsubscribeRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { FORM, PROMPT, RESOURCE, SAMPLE, TOOLS } from "./full.ts";

export interface FullServer {
  readonly url: string;
  /** What it saw: calls, cancellations, refusals of questions. */
  readonly seen: string[];
  /** How many sessions there are. */
  sessions(): number;
  /** Forgets its sessions, as after a restart. */
  forget(): void;
  close(): Promise<void>;
}

/** `unrelated`: questions go by the session's own stream, as servers send them that don't say what request they belong to. */
export async function startFullOld({ unrelated = false } = {}): Promise<FullServer> {
  const transports = new Map<string, StreamableHTTPServerTransport>();
  const seen: string[] = [];
  const http = createServer(async (request, response) => {
    const id = request.headers["mcp-session-id"];
    const known = transports.get(String(id ?? ""));
    if (known) return void known.handleRequest(request, response);
    if (id !== undefined) return void response.writeHead(404).end();
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (opened) => void transports.set(opened, transport),
      onsessionclosed: (closed) => void transports.delete(closed),
    });
    await makeServer(seen, unrelated).connect(transport as Transport);
    await transport.handleRequest(request, response);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    seen,
    sessions: () => transports.size,
    forget: () => transports.clear(),
    async close() {
      http.closeAllConnections();
      await new Promise<void>((resolve) => http.close(() => resolve()));
    },
  };
}

/** What it saw is added to `seen`. */
export function makeServer(seen: string[], unrelated: boolean): Server {
  const capabilities = {
    tools: { listChanged: true },
    prompts: {},
    resources: { subscribe: true, listChanged: true },
    completions: {},
    logging: {},
  };
  const server = new Server({ name: "full-old", version: "1" }, { capabilities, instructions: "Use it well." });
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: TOOLS }));
  server.setRequestHandler(ListPromptsRequestSchema, () => ({ prompts: [PROMPT] }));
  server.setRequestHandler(GetPromptRequestSchema, ({ params }) => ({
    messages: [{ role: "user" as const, content: { type: "text" as const, text: `About ${params.arguments?.topic}` } }],
  }));
  server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: [RESOURCE] }));
  server.setRequestHandler(ReadResourceRequestSchema, ({ params }) => {
    if (params.uri !== RESOURCE.uri) throw new McpError(-32_002, "no such resource", { uri: params.uri });
    return { contents: [{ uri: params.uri, text: "the words" }] };
  });
  server.setRequestHandler(SubscribeRequestSchema, ({ params }) => {
    seen.push(`subscribe ${params.uri}`);
    return {};
  });
  server.setRequestHandler(UnsubscribeRequestSchema, () => ({}));
  server.setRequestHandler(SetLevelRequestSchema, ({ params }) => {
    seen.push(`level ${params.level}`);
    return {};
  });
  server.setRequestHandler(CompleteRequestSchema, ({ params }) => ({ completion: { values: [`${params.argument.value}!`], total: 1 } }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra): Promise<CallToolResult> => {
    const { name, arguments: args = {}, _meta } = params;
    seen.push(`call ${name}`);
    extra.signal.addEventListener("abort", () => void seen.push(`cancelled ${name}`), { once: true });
    const text = (said: string, more: object = {}): CallToolResult => ({ content: [{ type: "text", text: said }], ...more });
    const related = unrelated ? {} : { relatedRequestId: extra.requestId };
    switch (name) {
      case "add": {
        const sum = Number(args.a) + Number(args.b);
        return text(String(sum), { structuredContent: { sum }, _meta: { "vendor.example/kept": { from: _meta?.["vendor.example/sent"] ?? null } } });
      }
      case "steps":
        for (let progress = 1; progress <= 3; progress += 1) {
          const progressToken = extra._meta?.progressToken;
          if (progressToken !== undefined)
            await extra.sendNotification({
              method: "notifications/progress",
              params: { progressToken, progress, total: 3, message: `step ${progress}` },
            });
          await extra.sendNotification({
            method: "notifications/message",
            params: { level: progress === 2 ? "error" : "info", data: `log ${progress}` },
          });
        }
        return text("stepped");
      case "wait":
        await new Promise<void>((resolve) => extra.signal.addEventListener("abort", () => resolve(), { once: true }));
        return text("never heard");
      case "patient":
        await server.request({ method: "elicitation/create", params: FORM }, ElicitResultSchema, related);
        seen.push("answered patient");
        await new Promise<void>((resolve) => extra.signal.addEventListener("abort", () => resolve(), { once: true }));
        return text("never heard");
      case "fail":
        throw new McpError(-32_050, "the machine is on fire", { floor: 3 });
      case "ask": {
        const answer = await server.request({ method: "elicitation/create", params: FORM }, ElicitResultSchema, related);
        return text(`${answer.action} ${JSON.stringify(answer.content ?? null)}`);
      }
      case "sample": {
        const answer = await server.request({ method: "sampling/createMessage", params: SAMPLE }, CreateMessageResultSchema, related);
        return text(`sampled ${JSON.stringify(answer.content)}`);
      }
      case "roots": {
        const { roots } = await server.request({ method: "roots/list" }, ListRootsResultSchema, related);
        return text(roots.map(({ uri }) => uri).join(" "));
      }
      case "both": {
        const first = await server.request({ method: "elicitation/create", params: FORM }, ElicitResultSchema, related);
        const progressToken = extra._meta?.progressToken;
        if (progressToken !== undefined) await extra.sendNotification({ method: "notifications/progress", params: { progressToken, progress: 1 } });
        const second = await server.request({ method: "sampling/createMessage", params: SAMPLE }, CreateMessageResultSchema, related);
        return text(`${first.action} then ${JSON.stringify(second.content)}`);
      }
      case "change":
        await server.sendToolListChanged();
        await server.sendResourceUpdated({ uri: RESOURCE.uri });
        return text("changed");
      default:
        throw new McpError(-32_602, "no such tool");
    }
  });
  return server;
}
