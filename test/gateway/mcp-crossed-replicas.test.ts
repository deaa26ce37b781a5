// Crossed relaying over two replicas that share one Redis: sessions, answers, cancellations and changes are the same at both.

import { afterAll, beforeAll, expect, test } from "vitest";
import { connectClient } from "../support/mcp/clients.ts";
import { RESOURCE } from "../support/mcp/full.ts";
import { startFullNew } from "../support/mcp/full-new.ts";
import { type FullServer, startFullOld } from "../support/mcp/full-old.ts";
import { askRaw } from "../support/mcp/raw-stateless.ts";
import { FIRST, openRelayDoors, type RelayDoors, SECOND } from "../support/mcp/relay-doors.ts";
import { startRedis, type TestRedis } from "../support/redis.ts";
import { until } from "../support/until.ts";

let redis: TestRedis;
let doors: RelayDoors;
const servers: Record<string, FullServer> = {};
beforeAll(async () => {
  redis = await startRedis();
  doors = await openRelayDoors({ count: 2, redisUrl: redis.url });
  servers.aside = await startFullOld({ unrelated: true });
  servers.new = await startFullNew();
  for (const [name, { url }] of Object.entries(servers)) await doors.register(name, url);
});
afterAll(async () => {
  await doors.close();
  await Promise.all(Object.values(servers).map((server) => server.close()));
  await redis.stop();
});

/** A client of the handshake era by hand: each request at the replica that the test says. */
class OldClient {
  session = "";
  readonly #headers: Record<string, string>;

  constructor(headers: Record<string, string> = FIRST) {
    this.#headers = headers;
  }

  async send(replica: number, message: object): Promise<Response> {
    const response = await fetch(doors.url("new", replica), {
      method: "POST",
      headers: {
        accept: "application/json, text/event-stream",
        "content-type": "application/json",
        ...(this.session !== "" && { "mcp-session-id": this.session, "mcp-protocol-version": "2025-06-18" }),
        ...this.#headers,
      },
      body: JSON.stringify({ jsonrpc: "2.0", ...message }),
    });
    this.session = response.headers.get("mcp-session-id") ?? this.session;
    return response;
  }

  async open(): Promise<void> {
    const params = { protocolVersion: "2025-06-18", capabilities: { elicitation: {}, sampling: {} }, clientInfo: { name: "raw", version: "1" } };
    expect((await this.send(0, { id: 0, method: "initialize", params })).status).toBe(200);
    expect((await this.send(1, { method: "notifications/initialized" })).status).toBe(202);
  }
}

/** Reads messages of a stream one by one. */
async function* messagesIn(response: Response): AsyncGenerator<Record<string, unknown>> {
  let rest = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    rest += decoder.decode(chunk as Uint8Array, { stream: true });
    const events = rest.split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) for (const [, data] of event.matchAll(/^data: (\{.*)$/gm)) yield JSON.parse(data ?? "") as Record<string, unknown>;
  }
}

test("a question of a stateless hand is answered at the other replica, and the call ends at the first", async () => {
  const client = new OldClient();
  await client.open();
  const stream = messagesIn(await client.send(0, { id: 1, method: "tools/call", params: { name: "ask", arguments: {} } }));
  const question = (await stream.next()).value as { id: string; method: string };
  expect(question.method).toBe("elicitation/create");
  const other = new OldClient(SECOND);
  other.session = client.session;
  const answer = { id: question.id, result: { action: "accept", content: { name: "Ada" } } };
  expect((await other.send(1, answer)).status).toBe(404);
  expect((await client.send(1, answer)).status).toBe(202);
  expect((await stream.next()).value).toMatchObject({ id: 1, result: { content: [{ text: 'accept {"name":"Ada"} s1' }] } });
});

test("a call is called off by a notice at the other replica", async () => {
  const client = new OldClient();
  await client.open();
  const before = servers.new?.seen.filter((said) => said === "cancelled wait").length ?? 0;
  const call = await client.send(0, { id: 7, method: "tools/call", params: { name: "wait", arguments: {} } });
  await until(() => servers.new?.seen.at(-1) === "call wait");
  expect((await client.send(1, { method: "notifications/cancelled", params: { requestId: 7 } })).status).toBe(202);
  await until(() => (servers.new?.seen.filter((said) => said === "cancelled wait").length ?? 0) > before);
  expect((await call.text()).includes('"result"')).toBe(false);
});

test("a session lives on through the restart of a replica, and ends at both", async () => {
  const client = new OldClient();
  await client.open();
  await doors.restart(1);
  const sum = { id: 2, method: "tools/call", params: { name: "add", arguments: { a: 1, b: 2 } } };
  expect(await (await client.send(1, sum)).text()).toContain('"sum":3');
  const ended = await fetch(doors.url("new", 1), { method: "DELETE", headers: { "mcp-session-id": client.session, ...FIRST } });
  expect(ended.status).toBe(204);
  await until(async () => (await client.send(0, sum)).status === 404);
});

test("a question that comes by the stream of the session is found by the replica that runs its call", async () => {
  const options = { headers: FIRST, capabilities: { elicitation: {} } };
  const call = (replica: number, params: object) => askRaw(doors.url("aside", replica), "tools/call", { arguments: {}, ...params }, options);
  // The first request makes the first replica hold the session's stream.
  await call(0, { name: "add" });
  const asked = await call(1, { name: "ask" });
  expect(asked.last.result?.inputRequests).toMatchObject({ question_1: { method: "elicitation/create" } });
  const answers = { question_1: { action: "decline" } };
  const done = await call(0, { name: "ask", requestState: asked.last.result?.requestState, inputResponses: answers });
  expect(done.last.result?.content).toEqual([{ type: "text", text: "decline null" }]);
});

test("changes that one replica hears of reach those who listen at the other", async () => {
  const one = await connectClient("stateless", doors.url("aside", 0), { headers: FIRST });
  const other = await connectClient("stateless", doors.url("aside", 1), { headers: FIRST });
  try {
    await one.call("add", { a: 1, b: 1 });
    await other.follow(RESOURCE.uri);
    await one.call("change");
    await until(() => other.heard.includes("tools") && other.heard.includes(RESOURCE.uri));
    expect(one.heard).toEqual([]);
  } finally {
    await Promise.all([one.close(), other.close()]);
  }
});
