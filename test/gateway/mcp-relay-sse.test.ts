// Hands of the older HTTP+SSE transport through their own door: any gateway, both eras, with credentials, and when a stream breaks.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../chaos/redis-server.ts";
import { API_KEY, newName, startApi } from "../support/api.ts";
import { type ClientEra, connectClient } from "../support/mcp/clients.ts";
import { makeServer } from "../support/mcp/full-old.ts";
import { FIRST, openRelayDoors, type RelayDoors } from "../support/mcp/relay-doors.ts";
import { EVERYTHING, file, type RunningRelay, startServerRelay } from "../support/mcp/server-relay.ts";
import { type SseServer, startSseServer } from "../support/mcp/sse-server.ts";
import { handshake, post, stateless } from "../support/mcp.ts";
import { proves } from "../support/proves.ts";
import { registerHand } from "../support/relay.ts";
import { type RoundRobin, startRoundRobin } from "../support/round-robin.ts";
import { until } from "../support/until.ts";

const TEST_MS = 30_000;
const TOKEN = "canary-token-of-an-old-hand-0123456789";
const seen: string[] = [];
let host: RunningRelay;
let doors: RelayDoors;
let balancer: RoundRobin;
let server: SseServer;
let everything: ChildProcess;

beforeAll(async () => {
  host = await startServerRelay({});
  doors = await openRelayDoors({ count: 2, handsUrl: host.origin });
  balancer = await startRoundRobin([0, 1].map((replica) => new URL(doors.url("", replica)).origin));
  server = await startSseServer(() => makeServer(seen, false));
  const port = await freePort();
  everything = spawn(process.execPath, [file(EVERYTHING[0]), "sse"], { env: { PORT: String(port) }, stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  everything.stderr?.on("data", (chunk) => {
    said += chunk;
  });
  await until(() => said.includes("is running"), { what: () => `server-everything: ${said}`, timeoutMs: 20_000 });
  await doors.register("everything", `http://127.0.0.1:${port}/sse`, "sse");
  await doors.register("shared", server.url, "sse", "shared");
  await doors.register("own", server.url, "sse", "session");
}, TEST_MS);
afterAll(async () => {
  const isOver = once(everything, "exit");
  everything.kill();
  await Promise.all([isOver, doors.close(), balancer.close()]);
  await Promise.all([host.close(), server.close()]);
});

const at = (hand: string) => `${balancer.url}/mcp/hands/${hand}`;
const textIn = (result: Readonly<Record<string, unknown>>): string => String((result.content as { text?: unknown }[])[0]?.text);
const streamsOf = async (count: number) => until(() => server.streams() === count, { what: () => `${server.streams()} streams, not ${count}` });

for (const era of ["handshake", "stateless"] satisfies ClientEra[])
  proves(
    "mcp:relay",
    `a client of the ${era} era uses server-everything over its older transport, each request at another gateway`,
    async () => {
      const client = await connectClient(era, at("everything"), { headers: FIRST });
      const any = client.old ?? client.new;
      expect((await any?.listTools())?.tools.map(({ name }) => name)).toContain("echo");
      expect(textIn(await client.call("echo", { message: "é 🖐" }))).toContain("é 🖐");
      const [resource] = (await any?.listResources())?.resources ?? [];
      expect((await any?.readResource({ uri: resource?.uri ?? "" }))?.contents).toHaveLength(1);
      const [prompt] = (await any?.listPrompts())?.prompts ?? [];
      expect((await any?.getPrompt({ name: prompt?.name ?? "" }))?.messages.length).toBeGreaterThan(0);
      const told: number[] = [];
      // The official client counts its own rounds of questions as progress, too; those have no total.
      const onprogress = ({ progress, total }: { progress: number; total?: number | undefined }) => void (total && told.push(progress));
      await client.call("trigger-long-running-operation", { duration: 0.4, steps: 4 }, { onprogress });
      expect(told).toEqual([1, 2, 3, 4]);
      expect(textIn(await client.call("trigger-sampling-request", { prompt: "p", maxTokens: 10 }))).toContain("well said");
      expect(JSON.stringify(await client.call("trigger-elicitation-request", {}))).toContain("Ada");
      expect(client.asked).toEqual(expect.arrayContaining(["sampling/createMessage", "elicitation/create"]));
      await client.close();
      expect(Math.min(...balancer.counts())).toBeGreaterThan(2);
    },
    TEST_MS,
  );

test("a stream that breaks is an error within two seconds; a shared hand has a new one once, another's client is told", async () => {
  for (const hand of ["shared", "own"]) {
    const { call, headers } = await handshake(at(hand), FIRST);
    const slow = call("slow", "tools/call", { name: "wait", arguments: {} });
    await until(() => seen.includes("call wait"));
    seen.length = 0;
    const broke = performance.now();
    server.cut();
    expect((await slow).messages.at(-1)?.error?.message).toContain("its stream broke off");
    expect(performance.now() - broke).toBeLessThan(2_000);
    const next = await call(1, "tools/call", { name: "add", arguments: { a: 2, b: 3 } });
    if (hand === "shared") {
      expect(next.messages.at(-1)?.result.structuredContent).toEqual({ sum: 5 });
      expect(server.streams()).toBe(1);
      await until(() => doors.logged.some((line) => line.includes("hand_session.reopened")));
    } else expect(next.status).toBe(404);
    await fetch(at(hand), { method: "DELETE", headers });
    await streamsOf(0);
  }
});

test("a client of the stateless era is told of a call that was lost, and has a new stream for the next one", async () => {
  const call = (id: string, name: string, args: object = {}) =>
    stateless(at("own"), FIRST, { id, method: "tools/call", params: { name, arguments: args } });
  const slow = call("slow", "wait");
  await until(() => seen.includes("call wait"));
  server.cut();
  expect((await slow).messages.at(-1)?.error?.message).toContain("its stream broke off");
  expect((await call("add", "add", { a: 1, b: 1 })).messages.at(-1)?.result.structuredContent).toEqual({ sum: 2 });
});

test("a call that hears nothing for too long is called off at the server, but not while its client has something to answer", async () => {
  await doors.registerTimed("hasty", server.url, 400);
  const { call, headers } = await handshake(at("hasty"), FIRST, { capabilities: { elicitation: {} } });
  seen.length = 0;
  expect((await call(1, "tools/call", { name: "wait", arguments: {} })).messages.at(-1)?.error?.message).toContain("was silent for too long");
  await until(() => seen.includes("cancelled wait"));
  const answered: Promise<unknown>[] = [];
  const asked = await call(2, "tools/call", { name: "ask", arguments: {} }, ({ id, method }) => {
    if (method !== "elicitation/create") return;
    const late = new Promise((resolve) => setTimeout(resolve, 900));
    answered.push(late.then(() => post(at("hasty"), { jsonrpc: "2.0", id, result: { action: "decline" } }, headers)));
  });
  expect(asked.messages.at(-1)?.result.content[0].text).toBe("decline null");
  expect(answered).toHaveLength(1);
});

test("what the server does not take is an error of that request alone", async () => {
  const { call, headers } = await handshake(at("own"), FIRST);
  server.refuse(503, 1);
  const refused = await call(1, "tools/call", { name: "add", arguments: { a: 1, b: 1 } });
  expect(refused.messages[0]?.error?.message).toBe("The server did not take the request: it answered with status 503. It may have had its effect.");
  expect((await call(2, "tools/call", { name: "add", arguments: { a: 1, b: 1 } })).messages[0]?.result.structuredContent).toEqual({ sum: 2 });
  await fetch(at("own"), { method: "DELETE", headers });
});

test("a hand that says nothing of this transport says so to its client, in words", async () => {
  await doors.register("gone", `http://127.0.0.1:${await freePort()}/sse`, "sse");
  await doors.register("odd", server.url.replace("/sse", "/none"), "sse");
  const hello = {
    jsonrpc: "2.0",
    id: 0,
    method: "initialize",
    params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } },
  };
  expect((await post(at("gone"), hello, FIRST)).messages[0]?.error?.message).toContain("ECONNREFUSED");
  expect((await post(at("odd"), hello, FIRST)).messages[0]?.error?.message).toContain("it answered with status 404");
  expect((await stateless(at("odd"), FIRST, { id: 1, method: "tools/list" })).messages[0]?.error?.message).toContain("status 404");
  const alone = await openRelayDoors();
  await alone.register("old", server.url, "sse");
  const refused = await post(alone.url("old"), hello, FIRST);
  expect([refused.status, refused.messages[0]?.error?.message]).toEqual([501, expect.stringContaining("a hand host keeps its connections")]);
  await alone.close();
});

proves("mcp:relay", "a hand of the older transport whose credential is in a vault is reached with it, and nobody else sees it", async () => {
  const sealed = await startSseServer(() => makeServer([], false), TOKEN);
  const port = await freePort();
  const api = await startApi({ vaults: true, internalHosts: ["127.0.0.1"], relay: { handsUrl: `http://127.0.0.1:${port}` } });
  const own = await startServerRelay({}, { port, vaultUrl: api.vaultUrl ?? "" });
  try {
    const { vaults } = api.client.beta;
    const { id } = await vaults.create({ display_name: newName() });
    await registerHand(api.store, { name: "sealed", url: sealed.url, transport: "sse", vault_ids: [id] });
    const door = `${api.url}/mcp/hands/sealed`;
    const key = { authorization: `Bearer ${API_KEY}` };
    const add = { name: "add", arguments: { a: 2, b: 3 } };
    const without = await stateless(door, key, { id: 1, method: "tools/call", params: add });
    expect(without.messages[0]?.error?.message).toContain("it refused the credentials it was given, or wants some (401)");
    const before = sealed.seen.length;
    await vaults.credentials.create(id, { auth: { type: "static_bearer", mcp_server_url: sealed.url, token: TOKEN } });
    const modern = await stateless(door, key, { id: 1, method: "tools/call", params: add });
    expect(modern.messages.at(-1)?.result.structuredContent).toEqual({ sum: 5 });
    const { call } = await handshake(door, key);
    const old = await call(1, "tools/call", add);
    expect(old.messages[0]?.result.structuredContent).toEqual({ sum: 5 });
    expect(new Set(sealed.seen.slice(before).map(({ authorization }) => authorization))).toEqual(new Set([`Bearer ${TOKEN}`]));
    for (const text of [modern.text, old.text, ...api.logged, ...own.logged]) expect(text).not.toContain(TOKEN);
    expect(JSON.stringify(sealed.seen)).not.toContain(API_KEY);
    expect(own.logged.join("\n")).not.toContain(sealed.url);
  } finally {
    await Promise.all([api.close(), own.close(), sealed.close()]);
  }
});
