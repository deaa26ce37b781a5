// Servers over standard input and output, used by the official clients of both eras over HTTP.

import { Client as NewClient, StreamableHTTPClientTransport as NewTransport } from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { CreateMessageRequestSchema, ElicitRequestSchema, ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { afterEach, beforeEach, expect, test } from "vitest";
import { EVERYTHING, type RunningRelay, script, startServerRelay } from "../support/mcp/server-relay.ts";
import { until } from "../support/until.ts";

const STDIO = "dist/test/support/mcp/stdio.js";
let relay: RunningRelay;
const clients: { close(): Promise<void> }[] = [];
beforeEach(async () => {
  relay = await startServerRelay({
    everything: script(EVERYTHING[0], [EVERYTHING[1]]),
    plain: script(STDIO, ["plain"], { SECRET: "a-value-that-is-told-to-nobody" }),
    modern: script(STDIO, ["modern"]),
    exit: script(STDIO, ["exit"]),
    noisy: script(STDIO, ["noisy"]),
  });
});
afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.close()));
  await relay.close();
});

async function connect(server: string, query = "", capabilities: object = {}): Promise<{ client: Client; transport: StreamableHTTPClientTransport }> {
  const client = new Client({ name: "test", version: "1" }, { capabilities });
  const transport = new StreamableHTTPClientTransport(new URL(relay.url(server, query)));
  await client.connect(transport as Transport);
  clients.push(client);
  return { client, transport };
}
const textOf = (result: object): string => JSON.stringify("content" in result ? result.content : null);

test("a client of the handshake era uses all that server-everything has", async () => {
  const { client } = await connect("everything", "", { elicitation: {}, sampling: {} });
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: { name: "Ada" } }));
  client.setRequestHandler(CreateMessageRequestSchema, () => ({ role: "assistant", model: "m", content: { type: "text", text: "sampled words" } }));
  const names = (await client.listTools()).tools.map(({ name }) => name);
  expect(names).toContain("echo");
  expect(textOf(await client.callTool({ name: "echo", arguments: { message: "hello" } }))).toContain("hello");
  const progress: number[] = [];
  const long = { name: "trigger-long-running-operation", arguments: { duration: 0.4, steps: 4 } };
  await client.callTool(long, undefined, { onprogress: (told) => void progress.push(told.progress) });
  expect(progress).toEqual([1, 2, 3, 4]);
  expect(textOf(await client.callTool({ name: "trigger-sampling-request", arguments: { prompt: "p", maxTokens: 10 } }))).toContain("sampled words");
  expect(textOf(await client.callTool({ name: "trigger-elicitation-request", arguments: {} }))).toContain("Ada");
});

test("each client has a child of its own; with `sharing=shared` all have one, and their ids and progress never meet", async () => {
  const pid = async (query: string) => textOf(await (await connect("plain", query)).client.callTool({ name: "pid", arguments: {} }));
  expect(await pid("")).not.toBe(await pid(""));
  expect(await pid("?sharing=shared")).toBe(await pid("?sharing=shared"));
  const [one, other] = await Promise.all([connect("everything", "?sharing=shared"), connect("everything", "?sharing=shared")]);
  const told: string[] = [];
  const run = ({ client }: typeof one, who: string, steps: number) =>
    client.callTool({ name: "trigger-long-running-operation", arguments: { duration: 0.3, steps } }, undefined, {
      onprogress: ({ total }) => void told.push(`${who} of ${total}`),
    });
  await Promise.all([run(one, "one", 2), run(other, "other", 3)]);
  expect(told.sort()).toEqual(["one of 2", "one of 2", "other of 3", "other of 3", "other of 3"]);
});

test("updates of a resource reach the session that subscribed, by its listening stream", async () => {
  const { client } = await connect("everything");
  const updated: string[] = [];
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => void updated.push(params.uri));
  const [resource] = (await client.listResources()).resources;
  await client.subscribeResource({ uri: resource?.uri ?? "" });
  await client.callTool({ name: "toggle-subscriber-updates", arguments: {} });
  expect(await until(() => updated[0], { timeoutMs: 9_000 })).toBe(resource?.uri);
}, 20_000);

test("a child that dies fails its open requests within two seconds, and its session is unknown from then on", async () => {
  const { client, transport } = await connect("plain");
  const began = performance.now();
  await expect(client.callTool({ name: "exit", arguments: {} })).rejects.toThrow("it exited with code 7");
  expect(performance.now() - began).toBeLessThan(2_000);
  const again = await fetch(relay.url("plain"), {
    method: "POST",
    headers: { "mcp-session-id": String(transport.sessionId), "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" }),
  });
  expect(again.status).toBe(404);
});

test("a server that can't start says so, and leaves no session", async () => {
  await expect(connect("exit")).rejects.toThrow("it exited with code 3");
});

test("what stands on standard output beside the messages harms nothing", async () => {
  const { client } = await connect("noisy");
  expect(textOf(await client.callTool({ name: "echo", arguments: { text: "still here" } }))).toContain("still here");
});

test("a child's configured values are masked in what it says, and nothing of this process's environment is in its own", async () => {
  const { client } = await connect("plain");
  const said = textOf(await client.callTool({ name: "environment", arguments: {} }));
  expect(said).toContain("SECRET");
  expect(said).not.toContain("a-value-that-is-told-to-nobody");
  expect(said).not.toContain("VITEST");
});

test("a server of the stateless era is spoken to in it, and one of the other era says what it speaks", async () => {
  const modern = new NewClient({ name: "test", version: "1" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  await modern.connect(new NewTransport(new URL(relay.url("modern"))));
  clients.push(modern);
  expect(textOf(await modern.callTool({ name: "echo", arguments: { text: "of the new era" } }))).toContain("of the new era");
  const auto = new NewClient({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } });
  await auto.connect(new NewTransport(new URL(relay.url("plain"))));
  clients.push(auto);
  expect(auto.getProtocolEra()).toBe("legacy");
  expect(textOf(await auto.callTool({ name: "echo", arguments: { text: "of the old one" } }))).toContain("of the old one");
});
