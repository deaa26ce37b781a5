// A server of the stateless era that uses the whole protocol, by the official 2.x package.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { toNodeHandler } from "@modelcontextprotocol/node";
import {
  acceptedContent,
  type CallToolResult,
  createMcpHandler,
  inputRequired,
  ProtocolError,
  ResourceNotFoundError,
  Server,
} from "@modelcontextprotocol/server";
import { FORM, PROMPT, RESOURCE, SAMPLE, TOOLS } from "./full.ts";
import type { FullServer } from "./full-old.ts";

const PRIVATE = { ttlMs: 0, cacheScope: "private" as const };

export async function startFullNew(): Promise<FullServer> {
  const seen: string[] = [];
  const capabilities = { tools: { listChanged: true }, prompts: {}, resources: { subscribe: true, listChanged: true }, completions: {}, logging: {} };
  const handler = createMcpHandler(
    () => {
      const server = new Server({ name: "full-new", version: "1" }, { capabilities, instructions: "Use it well." });
      server.setRequestHandler("tools/list", () => ({ tools: TOOLS, ...PRIVATE }));
      server.setRequestHandler("prompts/list", () => ({ prompts: [PROMPT], ...PRIVATE }));
      server.setRequestHandler("prompts/get", ({ params }) => ({
        messages: [{ role: "user" as const, content: { type: "text" as const, text: `About ${params.arguments?.topic}` } }],
      }));
      server.setRequestHandler("resources/list", () => ({ resources: [RESOURCE], ...PRIVATE }));
      server.setRequestHandler("resources/read", ({ params }) => {
        if (params.uri !== RESOURCE.uri) throw new ResourceNotFoundError(params.uri);
        return { contents: [{ uri: params.uri, text: "the words" }], ...PRIVATE };
      });
      server.setRequestHandler("completion/complete", ({ params }) => ({ completion: { values: [`${params.argument.value}!`], total: 1 } }));
      server.setRequestHandler("tools/call", async ({ params }, { mcpReq }) => {
        const { name, arguments: args = {} } = params;
        seen.push(`call ${name}`);
        const text = (said: string, more: object = {}): CallToolResult => ({ content: [{ type: "text", text: said }], ...more });
        const answers: Readonly<Record<string, unknown>> = mcpReq.inputResponses ?? {};
        switch (name) {
          case "add": {
            const sum = Number(args.a) + Number(args.b);
            return text(String(sum), {
              structuredContent: { sum },
              _meta: { "vendor.example/kept": { from: mcpReq._meta?.["vendor.example/sent"] ?? null } },
            });
          }
          case "steps":
            for (let progress = 1; progress <= 3; progress += 1) {
              const progressToken = mcpReq._meta?.progressToken;
              if (progressToken !== undefined)
                await mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: 3, message: `step ${progress}` } });
              await mcpReq.log(progress === 2 ? "error" : "info", `log ${progress}`);
            }
            return text("stepped");
          case "wait":
            await new Promise<void>((resolve) => mcpReq.signal.addEventListener("abort", () => resolve(), { once: true }));
            seen.push("cancelled wait");
            return text("never heard");
          case "fail":
            throw new ProtocolError(-32_050, "the machine is on fire", { floor: 3 });
          case "ask": {
            if (answers.who === undefined)
              return inputRequired({ inputRequests: { who: { method: "elicitation/create", params: FORM } }, requestState: "s1" });
            const { action } = answers.who as { action: string };
            return text(`${action} ${JSON.stringify(acceptedContent(mcpReq.inputResponses, "who") ?? null)} ${mcpReq.requestState<string>()}`);
          }
          case "sample": {
            if (answers.said === undefined) return inputRequired({ inputRequests: { said: { method: "sampling/createMessage", params: SAMPLE } } });
            return text(`sampled ${JSON.stringify((answers.said as { content: unknown }).content)}`);
          }
          case "roots": {
            if (answers.roots === undefined) return inputRequired({ inputRequests: { roots: { method: "roots/list" } } });
            return text((answers.roots as { roots: { uri: string }[] }).roots.map(({ uri }) => uri).join(" "));
          }
          case "both": {
            const state = mcpReq.requestState<string>();
            if (answers.who === undefined && state === undefined)
              return inputRequired({ inputRequests: { who: { method: "elicitation/create", params: FORM } }, requestState: "first" });
            if (state === "first") {
              const { action } = answers.who as { action: string };
              return inputRequired({ inputRequests: { said: { method: "sampling/createMessage", params: SAMPLE } }, requestState: action });
            }
            return text(`${state} then ${JSON.stringify((answers.said as { content: unknown }).content)}`);
          }
          case "change":
            handler.notify.toolsChanged();
            handler.notify.resourceUpdated(RESOURCE.uri);
            return text("changed");
          default:
            throw new ProtocolError(-32_602, "no such tool");
        }
      });
      return server;
    },
    { legacy: "reject" },
  );
  const serve = toNodeHandler(handler);
  const http = createServer((request, response) => {
    const { method = "GET", url = "/", headers } = request;
    void serve({ method, url, headers, [Symbol.asyncIterator]: () => request[Symbol.asyncIterator]() }, response);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    seen,
    sessions: () => 0,
    forget: () => {},
    async close() {
      await handler.close();
      http.closeAllConnections();
      await new Promise<void>((resolve) => http.close(() => resolve()));
    },
  };
}
