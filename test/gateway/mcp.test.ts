// The front door for MCP clients, as the official clients of both lines see it.

import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { API_KEY, type Api, makeAgent, makeEnvironment, makeSession, say, startApi } from "../support/api.ts";
import { handshake, stateless } from "../support/mcp.ts";
import { until } from "../support/until.ts";

let api: Api;
let door: string;
const KEY = { authorization: `Bearer ${API_KEY}` };

beforeAll(async () => {
  api = await startApi({ keepAliveMs: 200 });
  door = `${api.url}/mcp`;
});
afterAll(() => api.close());

async function connect(era: "v1" | "v2") {
  const requestInit = { headers: KEY };
  if (era === "v1") {
    const client = new Client({ name: "test", version: "1" }, { capabilities: {} });
    await client.connect(new StreamableHTTPClientTransport(new URL(door), { requestInit }) as never);
    return client;
  }
  const client = new ModernClient({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } });
  await client.connect(new ModernTransport(new URL(door), { requestInit }));
  return client;
}

describe.each(["v1", "v2"] as const)("with the official client %s", (era) => {
  test("a session is started, found, read and archived by tools", async () => {
    const client = await connect(era);
    const [agent, environment] = await Promise.all([makeAgent(api), makeEnvironment(api)]);
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual([
      "create_session",
      "find_sessions",
      "get_events",
      "archive_session",
      "send_message",
      "wait_for_session",
      "confirm_tool",
      "submit_tool_result",
      "interrupt_session",
      "list_agents",
      "list_environments",
      "list_harnesses",
      "list_hands",
      "get_hand",
      "register_hand",
      "remove_hand",
    ]);
    const call = async (name: string, args: Record<string, unknown> = {}) => {
      const result = await client.callTool({ name, arguments: args });
      expect(result.isError ?? false, JSON.stringify(result)).toBe(false);
      return result.structuredContent as Record<string, unknown>;
    };
    const made = await call("create_session", { agent_id: agent.id, environment_id: environment.id, title: "by MCP" });
    const { session_id } = made.session as { session_id: string };
    expect(made).toMatchObject({ is_over: true, reply: "", session: { status: "idle", title: "by MCP", agent: { id: agent.id } } });
    const found = await call("find_sessions", { agent_id: agent.id });
    expect(found).toMatchObject({ sessions: [{ session_id }], next_page: null });
    expect(await call("list_agents")).toMatchObject({ agents: expect.arrayContaining([expect.objectContaining({ id: agent.id })]) });
    expect(await call("list_environments")).toMatchObject({
      environments: expect.arrayContaining([expect.objectContaining({ id: environment.id })]),
    });
    expect(await call("list_harnesses")).toEqual({ harnesses: [{ name: "claude" }] });
    expect(await call("list_hands")).toMatchObject({ hands: [{ name: "sandbox" }] });
    const sent = await call("send_message", { session_id, message: "hello", wait_seconds: 0 });
    expect(sent).toMatchObject({ is_over: false, session: { status: "running", queued_messages: 1 } });
    expect(await call("get_events", { session_id })).toMatchObject({ events: [{ type: "user.message", processed_at: null }], next_page: null });
    const read = await client.readResource({ uri: `session://${session_id}` });
    expect(read.contents).toMatchObject([{ mimeType: "text/markdown", text: expect.stringContaining("## User (not read yet)\n\nhello") }]);
    expect((await client.listResources()).resources).toContainEqual(expect.objectContaining({ uri: `session://${session_id}`, title: "by MCP" }));
    expect((await client.listResourceTemplates()).resourceTemplates).toHaveLength(2);
    const completed = await client.complete({
      ref: { type: "ref/resource", uri: "session://{id}" },
      argument: { name: "id", value: session_id.slice(0, -3) },
    });
    expect(completed.completion.values).toContain(session_id);
    await client.close();
  });

  test("what is refused is an error result that says why, the same words as the HTTP API's", async () => {
    const client = await connect(era);
    const agent = await makeAgent(api);
    const cases: [string, Record<string, unknown>, string][] = [
      ["send_message", { session_id: "sesn_none", message: "hello" }, "There is no such session."],
      ["create_session", { agent_id: "agent_none", environment_id: "env_none" }, "There is no such agent."],
      ["create_session", { agent_id: agent.id, environment_id: "env_none" }, "There is no such environment."],
      ["find_sessions", { page: "page_nonsense" }, "page: is not a cursor of this list"],
      ["send_message", { session_id: "sesn_none" }, "message"],
    ];
    for (const [name, args, says] of cases) {
      const result = await client.callTool({ name, arguments: args });
      expect(result.isError, name).toBe(true);
      expect(JSON.stringify(result.content)).toContain(says);
    }
    await client.close();
  });
});

describe("subscriptions", () => {
  test("a session's subscriber of the handshake era is told when events arrive", async () => {
    const client = await connect("v1");
    const told: string[] = [];
    client.fallbackNotificationHandler = async ({ method, params }) => void told.push(`${method} ${String(params?.uri)}`);
    const session = await makeSession(api);
    const uri = `session://${session.id}`;
    await (client as Client).subscribeResource({ uri });
    await until(async () => {
      await api.client.beta.sessions.update(session.id, { title: `title ${told.length} ${Date.now()}` });
      return told.length > 0;
    });
    expect(new Set(told)).toEqual(new Set([`notifications/resources/updated ${uri}`]));
    await client.close();
  });

  test("a listener of the stateless era is told of its sessions, and of no one else's", async () => {
    const session = await makeSession(api);
    const uri = `session://${session.id}`;
    const stop = new AbortController();
    const meta = {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
      "io.modelcontextprotocol/clientCapabilities": {},
    };
    const params = { notifications: { resourceSubscriptions: [uri, "session://sesn_unknown"] }, _meta: meta };
    const response = await fetch(door, {
      method: "POST",
      signal: stop.signal,
      headers: {
        ...KEY,
        accept: "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "subscriptions/listen",
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: "sub", method: "subscriptions/listen", params }),
    });
    let text = "";
    const reading = (async () => {
      for await (const chunk of response.body ?? []) text += Buffer.from(chunk).toString();
    })().catch((error: unknown) => String(error));
    await until(() => text.includes("acknowledged"));
    expect(text).toContain(uri);
    expect(text).not.toContain("sesn_unknown");
    await until(async () => {
      await api.client.beta.sessions.update(session.id, { title: `title ${Date.now()}` });
      return text.includes("notifications/resources/updated");
    });
    stop.abort();
    await reading;
  });
});

test("both eras say who they are, on one URL", async () => {
  const modern = await stateless(door, KEY, { id: 1, method: "server/discover" });
  expect(modern.messages[0]?.result).toMatchObject({
    supportedVersions: ["2026-07-28"],
    capabilities: { tools: {}, resources: { subscribe: true } },
  });
  for (const version of ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]) {
    const { call } = await handshake(door, KEY, { version });
    expect((await call(7, "ping")).messages).toEqual([{ jsonrpc: "2.0", id: 7, result: {} }]);
  }
});

test("a message is admitted as the HTTP API would, and its answer can be sent again under its key", async () => {
  const session = await makeSession(api, { initial_events: [say("first")] });
  const { call } = await handshake(door, KEY);
  const args = { session_id: session.id, message: "second", wait_seconds: 0, idempotency_key: "once" };
  for (const id of [1, 2])
    expect((await call(id, "tools/call", { name: "send_message", arguments: args })).messages.at(-1)?.result.isError).toBeUndefined();
  const events = await api.client.beta.sessions.events.list(session.id);
  expect(events.data.filter(({ type }) => type === "user.message")).toHaveLength(2);
});
