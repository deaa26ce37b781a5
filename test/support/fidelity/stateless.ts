// A server of the stateless era that says everything the protocol can say, over the official package of that era.

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler, InMemoryServerEventBus, inputRequired, ProtocolError, ResourceNotFoundError, Server } from "@modelcontextprotocol/server";
import type { FidelityServer } from "./handshake.ts";
import { COMPLETION, CONTENT, ERROR, PROMPT, PROMPTS, RESOURCE, RESOURCES, TEMPLATES, TOOLS } from "./said.ts";

/** Opaque on purpose: not base64, not JSON, and with what an encoder would touch. */
export const STATE = 'st\u00e4te/+=%20"\\\u2028 {"not":"json"';
const PUBLIC = { ttlMs: 5_000, cacheScope: "public" } as const;

function makeServer(counts: { cancelled: number }, ring: (list: string) => void): Server {
  const server = new Server(
    { name: "everything", title: "Everything", version: "1.2.3" },
    {
      capabilities: {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { listChanged: true, subscribe: true },
        completions: {},
        logging: {},
      },
      instructions: "Say it all.",
    },
  );
  const on = (method: string, run: (params: never, context: never) => unknown) =>
    server.setRequestHandler(method as "tools/list", (({ params }: { params: never }, context: never) => run(params, context)) as never);
  on("tools/list", ({ cursor }: { cursor?: string }) =>
    cursor === undefined
      ? { tools: TOOLS.slice(0, 3), nextCursor: "é/+= 2", ...PUBLIC, _meta: { "vendor/page": 1 } }
      : { tools: TOOLS.slice(3), ...PUBLIC, _meta: { seen: cursor } },
  );
  on("prompts/list", () => ({ prompts: PROMPTS, ...PUBLIC }));
  on("resources/list", () => ({ resources: RESOURCES, ttlMs: 0, cacheScope: "private" }));
  on("resources/templates/list", () => ({ resourceTemplates: TEMPLATES, ...PUBLIC }));
  on("resources/read", ({ uri }: { uri: string }) => {
    if (uri !== RESOURCE.contents[0]?.uri) throw new ResourceNotFoundError(uri);
    return { ...RESOURCE, ...PUBLIC };
  });
  on("prompts/get", () => PROMPT);
  on("completion/complete", () => COMPLETION);
  server.setRequestHandler("tools/call", (async ({ params }: { params: { name: string; arguments?: unknown } }, { mcpReq }: { mcpReq: Context }) => {
    const text = (said: unknown) => ({ content: [{ type: "text" as const, text: JSON.stringify(said) }] });
    switch (params.name) {
      case "content":
        return CONTENT;
      case "echo":
        return text({ arguments: params.arguments, vendor: mcpReq._meta?.["vendor/in"], trace: mcpReq._meta?.traceparent });
      case "steps": {
        await mcpReq.log("info", { at: "start" }, "steps");
        const progressToken = mcpReq._meta?.progressToken;
        for (const progress of [0, 0.5, 1])
          await mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: 1, message: `at ${progress}` } });
        return text("stepped");
      }
      case "ask": {
        if (mcpReq.inputResponses !== undefined) return text({ answers: mcpReq.inputResponses, isState: mcpReq.requestState() === STATE });
        return inputRequired({
          inputRequests: {
            who: {
              method: "elicitation/create",
              params: { message: "Who?", requestedSchema: { type: "object", properties: { name: { type: "string" } } } },
            },
            model: {
              method: "sampling/createMessage",
              params: { messages: [{ role: "user", content: { type: "text", text: "2+2?" } }], maxTokens: 10 },
            },
            roots: { method: "roots/list" },
          } as never,
          requestState: STATE,
        });
      }
      case "slow":
        // The answer begins, so that whoever waits for it knows that the call is under way.
        await mcpReq.notify({ method: "notifications/progress", params: { progressToken: mcpReq._meta?.progressToken, progress: 0 } });
        await new Promise<void>((resolve) => mcpReq.signal.addEventListener("abort", () => resolve(), { once: true }));
        counts.cancelled += 1;
        return text("never seen");
      case "cancelled":
        return text(counts.cancelled);
      case "fails":
        return { ...text("it went wrong"), isError: true };
      case "changes":
        for (const list of ["tools", "prompts", "resources"]) ring(list);
        return text("changed");
      default:
        throw new ProtocolError(ERROR.code, ERROR.message, ERROR.data);
    }
  }) as never);
  return server;
}

interface Context {
  readonly _meta?: Readonly<Record<string, unknown>>;
  readonly signal: AbortSignal;
  readonly inputResponses?: unknown;
  requestState(): unknown;
  log(level: string, data: unknown, logger: string): Promise<void>;
  notify(notification: object): Promise<void>;
}

export async function startStatelessServer(): Promise<FidelityServer> {
  const counts = { cancelled: 0 };
  const bus = new InMemoryServerEventBus();
  const ring = (list: string) => bus.publish({ kind: `${list}_list_changed` as "tools_list_changed" });
  const handler = createMcpHandler(() => makeServer(counts, ring), { legacy: "reject", bus });
  const serve = toNodeHandler(handler);
  const http = createServer((request, response) => {
    const { method = "POST", url = "/", headers } = request;
    void serve({ method, url, headers, [Symbol.asyncIterator]: () => request[Symbol.asyncIterator]() }, response);
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}/mcp`,
    close: async () => {
      await handler.close();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}
