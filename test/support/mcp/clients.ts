// A client of either era, by the official packages, with one way to use both.

import { Client as NewClient, StreamableHTTPClientTransport as NewTransport } from "@modelcontextprotocol/client";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ResourceUpdatedNotificationSchema,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

export type ClientEra = "handshake" | "stateless";

export interface CallOptions {
  readonly signal?: AbortSignal;
  readonly onprogress?: (told: { progress: number; total?: number | undefined; message?: string | undefined }) => void;
  readonly meta?: Readonly<Record<string, unknown>>;
}

export interface TestClient {
  readonly era: ClientEra;
  readonly old: OldClient | null;
  readonly new: NewClient | null;
  /** What it heard by itself. */
  readonly heard: string[];
  readonly asked: string[];
  call(name: string, args?: Record<string, unknown>, options?: CallOptions): Promise<Readonly<Record<string, unknown>>>;
  /** Hears of changes of the tool list and of this resource from now on. */
  follow(uri: string): Promise<void>;
  close(): Promise<void>;
}

const ANSWER = { action: "accept" as const, content: { name: "Ada" } };
const SAID = { role: "assistant" as const, model: "m", content: { type: "text" as const, text: "well said" } };
const ROOTS = { roots: [{ uri: "file:///home/ada" }] };
const ALL = { elicitation: {}, sampling: {}, roots: {} };

export async function connectClient(
  era: ClientEra,
  url: string,
  { headers = {}, capabilities = ALL }: { readonly headers?: Record<string, string>; readonly capabilities?: object } = {},
): Promise<TestClient> {
  return era === "handshake" ? connectOld(url, headers, capabilities) : connectNew(url, headers, capabilities);
}

async function connectOld(url: string, headers: Record<string, string>, capabilities: object): Promise<TestClient> {
  const client = new OldClient({ name: "old", version: "1" }, { capabilities });
  const heard: string[] = [];
  const asked: string[] = [];
  const can = (name: string) => name in capabilities;
  const said =
    <T>(method: string, answer: T) =>
    () => {
      asked.push(method);
      return answer;
    };
  if (can("elicitation")) client.setRequestHandler(ElicitRequestSchema, said("elicitation/create", ANSWER));
  if (can("sampling")) client.setRequestHandler(CreateMessageRequestSchema, said("sampling/createMessage", SAID));
  if (can("roots")) client.setRequestHandler(ListRootsRequestSchema, said("roots/list", ROOTS));
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => void heard.push("tools"));
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => void heard.push(params.uri));
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => void heard.push(`${params.level} ${String(params.data)}`));
  await client.connect(new OldTransport(new URL(url), { requestInit: { headers } }) as Transport);
  return {
    era: "handshake",
    old: client,
    new: null,
    heard,
    asked,
    call: (name, args = {}, { meta, ...options } = {}) =>
      client.callTool({ name, arguments: args, ...(meta && { _meta: { ...meta } }) }, undefined, { ...options, timeout: 20_000 } as never),
    async follow(uri) {
      await client.subscribeResource({ uri });
    },
    close: () => client.close(),
  };
}

async function connectNew(url: string, headers: Record<string, string>, capabilities: object): Promise<TestClient> {
  const client = new NewClient({ name: "new", version: "1" }, { capabilities, versionNegotiation: { mode: { pin: "2026-07-28" } } });
  const heard: string[] = [];
  const asked: string[] = [];
  const can = (name: string) => name in capabilities;
  const said =
    <T>(method: string, answer: T) =>
    () => {
      asked.push(method);
      return answer;
    };
  if (can("elicitation")) client.setRequestHandler("elicitation/create", said("elicitation/create", ANSWER));
  if (can("sampling")) client.setRequestHandler("sampling/createMessage", said("sampling/createMessage", SAID));
  if (can("roots")) client.setRequestHandler("roots/list", said("roots/list", ROOTS));
  client.setNotificationHandler("notifications/tools/list_changed", () => void heard.push("tools"));
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => void heard.push(params.uri));
  client.setNotificationHandler("notifications/message", ({ params }) => void heard.push(`${params.level} ${String(params.data)}`));
  await client.connect(new NewTransport(new URL(url), { requestInit: { headers } }));
  return {
    era: "stateless",
    old: null,
    new: client,
    heard,
    asked,
    call: (name, args = {}, { meta, ...options } = {}) =>
      client.callTool({ name, arguments: args, ...(meta && { _meta: { ...meta } }) }, { ...options, timeout: 20_000 } as never),
    async follow(uri) {
      await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] });
    },
    close: () => client.close(),
  };
}
