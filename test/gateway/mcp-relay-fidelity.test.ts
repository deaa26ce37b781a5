// What a client gets through the door of a hand is what it gets from the hand itself, for every kind of message, in both eras.

import { request } from "undici";
import { afterAll, beforeAll, expect } from "vitest";
import { API_KEY, type Api, startApi } from "../support/api.ts";
import { ANSWERS, CALLS, CAPABILITIES } from "../support/fidelity/calls.ts";
import { type FidelityServer, makeServer, startHandshakeServer } from "../support/fidelity/handshake.ts";
import { straight, talk, through } from "../support/fidelity/heard.ts";
import { STATE, startStatelessServer } from "../support/fidelity/stateless.ts";
import { type RunningRelay, startServerRelay } from "../support/mcp/server-relay.ts";
import { type SseServer, startSseServer } from "../support/mcp/sse-server.ts";
import { handshake, post, type Reply, type RpcMessage, STATELESS, stateless } from "../support/mcp.ts";
import { proves } from "../support/proves.ts";
import { registerHand } from "../support/relay.ts";
import { until } from "../support/until.ts";

/** All that differs, and why. Everything else is compared as it is. */
const EXCEPTIONS: readonly { readonly why: string; readonly apply: (message: RpcMessage) => RpcMessage }[] = [
  {
    why: "Who sees a list is decided by a key at our door: no cache between may share it (stateless era).",
    apply: (message) => (message.result?.cacheScope === undefined ? message : { ...message, result: { ...message.result, cacheScope: "private" } }),
  },
];
const excepted = (message: RpcMessage) => EXCEPTIONS.reduce((each, { apply }) => apply(each), message);

type Step = readonly [name: string, reply: Pick<Reply, "status" | "messages">];
const TEST_MS = 60_000;

let api: Api;
let host: RunningRelay;
let sse: SseServer;
const servers: Partial<Record<"old" | "new", FidelityServer>> = {};

beforeAll(async () => {
  host = await startServerRelay({});
  api = await startApi({ relay: { handsUrl: host.origin } });
  sse = await startSseServer(makeServer);
  await registerHand(api.store, { name: "sse", url: sse.url, transport: "sse" });
  servers.old = await startHandshakeServer();
  servers.new = await startStatelessServer();
  await registerHand(api.store, { name: "old", url: servers.old.url });
  await registerHand(api.store, { name: "new", url: servers.new.url });
});
afterAll(async () => {
  await api.close();
  await Promise.all([host.close(), sse.close()]);
  await Promise.all(Object.values(servers).map((server) => server.close()));
});

/** Steps that came to something else than a result: so that equal is not equally broken. */
const oddOf = (steps: readonly Step[]) =>
  steps
    .filter(([, { status, messages }]) => status !== 200 || messages.at(-1)?.error)
    .map(([name, { status }]) => `${name} ${status === 200 ? "error" : status}`);

const KEY = { authorization: `Bearer ${API_KEY}` };
const seen = ({ status, messages }: Reply) => ({ status, messages });

async function talkOld(url: string, headers: Record<string, string>): Promise<readonly Step[]> {
  const steps: Step[] = [];
  const hello = { protocolVersion: "2025-11-25", capabilities: CAPABILITIES, clientInfo: { name: "test", version: "1" } };
  steps.push(["initialize", seen(await post(url, { jsonrpc: "2.0", id: 0, method: "initialize", params: hello }, headers))]);
  const opened = await handshake(url, headers, { capabilities: CAPABILITIES });
  steps.push(["initialized", seen(await opened.notify("notifications/initialized"))]);
  const heard: RpcMessage[] = [];
  const stop = await listen(url, opened.headers, heard);
  for (const [index, [method, params]] of CALLS.entries()) steps.push([`${method} ${index}`, seen(await opened.call(index + 1, method, params))]);
  for (const [method, params] of [["ping"], ["logging/setLevel", { level: "info" }], ["resources/subscribe", { uri: "test://a" }]] as const)
    steps.push([method, seen(await opened.call(`s-${method}`, method, params))]);

  const answers: Promise<Reply>[] = [];
  const answer = (message: RpcMessage) => {
    const result = ANSWERS[message.method ?? ""];
    if (message.id !== undefined && result) answers.push(post(url, { jsonrpc: "2.0", id: message.id, result }, opened.headers));
  };
  steps.push(["ask", seen(await opened.call("ask", "tools/call", { name: "ask" }, answer))]);
  steps.push(["answers", { status: 0, messages: (await Promise.all(answers)).map(({ status }) => ({ status })) as never }]);

  const slow = opened.call("slow", "tools/call", { name: "slow" }).catch(() => null);
  await until(async () => {
    await opened.notify("notifications/cancelled", { requestId: "slow", reason: "enough" });
    const reply = await opened.call("n", "tools/call", { name: "cancelled" });
    return reply.messages.at(-1)?.result.content[0].text === "1";
  });
  heard.length = 0;
  steps.push(["changes", seen(await opened.call("changes", "tools/call", { name: "changes" }))]);
  await until(() => heard.length >= 5);
  steps.push(["heard", { status: 0, messages: heard.toSorted((one, other) => JSON.stringify(one).localeCompare(JSON.stringify(other))) }]);
  steps.push(["unsubscribe", seen(await opened.call("u", "resources/unsubscribe", { uri: "test://a" }))]);
  stop();
  const gone = await request(url, { method: "DELETE", headers: opened.headers });
  await gone.body.dump();
  void slow;
  return steps;
}

/** The stream of what the server says by itself. */
async function listen(url: string, headers: Record<string, string>, heard: RpcMessage[]): Promise<() => void> {
  const stop = new AbortController();
  const { statusCode, body } = await request(url, { method: "GET", headers: { ...headers, accept: "text/event-stream" }, signal: stop.signal });
  expect(statusCode).toBe(200);
  body.setEncoding("utf8");
  let text = "";
  body.on("error", () => {});
  body.on("data", (chunk: string) => {
    text += chunk;
    const events = text.split("\n\n");
    text = events.pop() ?? "";
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: {"));
      if (data) heard.push(JSON.parse(data.slice(6)));
    }
  });
  return () => stop.abort();
}

async function talkNew(url: string, headers: Record<string, string>): Promise<readonly Step[]> {
  const steps: Step[] = [];
  const call = async (name: string, method: string, params: Record<string, unknown> = {}, capabilities = CAPABILITIES) => {
    steps.push([name, seen(await stateless(url, headers, { id: name, method, params }, capabilities))]);
  };
  await call("discover", "server/discover");
  for (const [index, [method, params]] of CALLS.entries()) await call(`${method} ${index}`, method, { ...params });
  await call("logged", "tools/call", { name: "steps", _meta: { "io.modelcontextprotocol/logLevel": "debug", progressToken: "p" } });
  await call("ask", "tools/call", { name: "ask" });
  const who = { action: "accept", content: { name: "é" } };
  const model = { role: "assistant", content: { type: "text", text: "4" }, model: "m" };
  const inputResponses = { who, model, roots: { roots: [{ uri: "file:///a" }] } };
  await call("answered", "tools/call", { name: "ask", inputResponses, requestState: STATE });

  const heard: RpcMessage[] = [];
  const meta = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": { name: "t", version: "1" },
    "io.modelcontextprotocol/clientCapabilities": {},
  };
  const notifications = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
  const stop = new AbortController();
  const own = { ...headers, "mcp-protocol-version": STATELESS, "content-type": "application/json", accept: "application/json, text/event-stream" };
  const open = await request(url, {
    method: "POST",
    signal: stop.signal,
    headers: { ...own, "mcp-method": "subscriptions/listen" },
    body: JSON.stringify({ jsonrpc: "2.0", id: "sub \u00e9", method: "subscriptions/listen", params: { notifications, _meta: meta } }),
  });
  let text = "";
  open.body.setEncoding("utf8");
  open.body.on("error", () => {});
  open.body.on("data", (chunk: string) => {
    text += chunk;
    for (const event of text.split("\n\n").slice(0, -1)) {
      const data = event.split("\n").find((line) => line.startsWith("data: {"));
      if (data) heard.push(JSON.parse(data.slice(6)));
    }
    text = text.slice(text.lastIndexOf("\n\n") + 2);
  });
  await until(() => heard.length === 1, { what: "the acknowledgement" });
  await call("changes", "tools/call", { name: "changes" });
  await until(() => heard.length === 4, { what: () => `the changes: ${JSON.stringify(heard)}` });
  steps.push(["heard", { status: open.statusCode, messages: [...heard] }]);
  stop.abort();

  const before = Number(
    (await stateless(url, headers, { id: 1, method: "tools/call", params: { name: "cancelled" } })).messages[0]?.result.content[0].text,
  );
  const slow = new AbortController();
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: "slow",
    method: "tools/call",
    params: { name: "slow", _meta: { ...meta, progressToken: "slow" } },
  });
  const left = await request(url, { method: "POST", signal: slow.signal, headers: { ...own, "mcp-method": "tools/call", "mcp-name": "slow" }, body });
  left.body.on("error", () => {});
  slow.abort();
  await until(async () => {
    const now = await stateless(url, headers, { id: 2, method: "tools/call", params: { name: "cancelled" } });
    return Number(now.messages[0]?.result.content[0].text) === before + 1;
  });
  return steps;
}

proves(
  "mcp:relay",
  "a client of the handshake era gets from a hand what the hand says, whole",
  async () => {
    const direct = await talkOld(servers.old?.url ?? "", {});
    const relayed = await talkOld(`${api.url}/mcp/hands/old`, KEY);
    expect(oddOf(direct)).toEqual(["initialized 202", "tools/call 7 error", "resources/read 11 error", "no/such 15 error", "answers 0", "heard 0"]);
    for (const [index, [name, reply]] of direct.entries()) expect([name, relayed[index]?.[1]]).toEqual([name, reply]);
    expect(relayed).toHaveLength(direct.length);
  },
  TEST_MS,
);

proves(
  "mcp:relay",
  "a client of the stateless era gets from a hand what the hand says, whole but for the listed exceptions",
  async () => {
    const direct = await talkNew(servers.new?.url ?? "", {});
    const relayed = await talkNew(`${api.url}/mcp/hands/new`, KEY);
    expect(oddOf(direct)).toEqual(["tools/call 7 error", "resources/read 11 error", "no/such 15 404"]);
    for (const [index, [name, reply]] of direct.entries())
      expect([name, relayed[index]?.[1]]).toEqual([name, { ...reply, messages: reply.messages.map(excepted) }]);
    expect(relayed).toHaveLength(direct.length);
    const changedByException = direct.flatMap(([, { messages }]) => messages).filter((message) => excepted(message) !== message);
    expect(changedByException.length).toBeGreaterThan(0);
  },
  TEST_MS,
);

proves(
  "mcp:relay",
  "a client gets from a hand of the older transport what the hand says, whole",
  async () => {
    const direct = await talk(await straight(sse.url));
    const relayed = await talk(await through(`${api.url}/mcp/hands/sse`, KEY));
    const failed = direct.filter(([, messages]) => messages.some(({ error }) => error)).map(([name]) => name);
    expect(failed).toEqual(["tools/call 7", "resources/read 11", "no/such 15"]);
    for (const [index, step] of direct.entries()) expect(relayed[index]).toEqual(step);
    expect(relayed).toHaveLength(direct.length);
  },
  TEST_MS,
);
