// Agents that use registered hands: what they share, what limits hold, and what is known of a hand whose server is down.

import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { servers, TOOLSET } from "../harnesses/agents.ts";
import { type Asked, RawServer, says, tool } from "../support/mcp/raw.ts";
import { openRegistry, type RegistryDoor } from "../support/registry.ts";
import { startNode, type TestNode, type TestSession, until } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const PROGRAM = fileURLToPath(new URL("../../dist/test/support/mcp/stdio.js", import.meta.url));
const STEP_MS = 200;

let node: TestNode;
let registry: RegistryDoor;
const started: RawServer[] = [];
beforeAll(async () => {
  const local = { type: "command" as const, command: { command: process.execPath, args: [PROGRAM, "plain"], env: {}, cwd: null } };
  const times = { connectMs: 5_000, idleMs: 5_000, totalMs: 20_000 };
  node = await startNode({ servers: { configured: new Map([["local", local]]), times } });
  registry = await openRegistry(node);
});
beforeEach(async () => {
  await node.work();
});
afterEach(async () => {
  await node.rest();
  await Promise.all(started.splice(0).map((server) => server.close()));
});
afterAll(async () => {
  await registry.close();
  await node.close();
});

async function serve(options: Parameters<typeof RawServer.start>[0] = {}): Promise<RawServer> {
  const server = await RawServer.start({ hasSessions: true, ...options });
  started.push(server);
  return server;
}
const http = (url: string) => ({ type: "http" as const, url });

/** A session whose agent has one registered hand. */
async function openWith(hand: string, policy: "always_allow" | "always_ask" = "always_allow"): Promise<TestSession> {
  const { tools, mcp_servers } = servers({ s: `hand:${hand}` }, policy);
  return await node.open([TOOLSET, ...tools], { mcp_servers });
}
const texts = async (session: TestSession) => (await session.results()).map(({ text }) => text);

test("a shared hand is one connection for all sessions, and the others keep it when one is gone", async () => {
  const server = await serve();
  await registry.register({ name: "one", transport: http(server.url), sharing: "shared" });
  const before = server.count("initialize");
  const [first, second, third] = [await openWith("one"), await openWith("one"), await openWith("one")];
  const sessions = [first, second, third];
  await Promise.all(sessions.map((session, n) => session.say(`call mcp__s__echo: {"text":"${n}"}\necho: got`)));
  for (const [n, session] of sessions.entries()) {
    await session.idle();
    expect(await texts(session)).toEqual([`echo: ${n}`]);
  }
  expect(server.count("initialize") - before).toBe(1);
  const bound = await first.has("log.hand");
  if (bound.entry.type !== "log.hand") throw new Error("unreachable");
  await node.hands.release(first.id, bound.entry.host, AbortSignal.timeout(5_000));
  await second.say('call mcp__s__echo: {"text":"still"}\necho: got');
  await second.idle();
  expect(await texts(second)).toEqual(["echo: 1", "echo: still"]);
  expect(server.count("initialize") - before).toBe(1);
});

test("a hand of each session's own is a connection for each", async () => {
  const server = await serve();
  await registry.register({ name: "own", transport: http(server.url), sharing: "session" });
  const before = server.count("initialize");
  for (const session of [await openWith("own"), await openWith("own")]) {
    await session.say("call mcp__s__echo: {}\necho: got");
    await session.idle();
    expect(await texts(session)).toEqual(["echo: "]);
  }
  expect(server.count("initialize") - before).toBe(2);
});

test("a program of the operator's file is one child for all when it is shared, and one for each session otherwise", async () => {
  const transport = { type: "stdio", server: "local" };
  await registry.register({ name: "child-shared", transport, sharing: "shared" });
  await registry.register({ name: "child-own", transport, sharing: "session" });
  const pidsOf = async (hand: string) => {
    const pids = new Set<string>();
    for (const session of [await openWith(hand), await openWith(hand)]) {
      await session.say("call mcp__s__pid: {}\necho: got");
      await session.idle();
      for (const text of await texts(session)) pids.add(text);
    }
    return [...pids];
  };
  const [shared, own] = [await pidsOf("child-shared"), await pidsOf("child-own")];
  expect([shared.length, own.length]).toEqual([1, 2]);
  for (const pid of [...shared, ...own]) expect(pid).toMatch(/^\d+$/);
});

test("a session of a shared hand that is interrupted ends its own call and no other's", async () => {
  const server = await serve({ call: (_name, input) => (input.text === "hang" ? undefined : says("fine")) });
  await registry.register({ name: "busy", transport: http(server.url), sharing: "shared" });
  const [hanging, waiting, good] = [await openWith("busy"), await openWith("busy"), await openWith("busy")];
  await Promise.all([hanging, waiting].map((session) => session.say('call mcp__s__echo: {"text":"hang"}\necho: got')));
  await until(() => server.count("tools/call") === 2, "both calls at the server");
  await hanging.interrupt();
  await hanging.idle();
  await good.say('call mcp__s__echo: {"text":"x"}\necho: got');
  await good.idle();
  expect([await texts(good), await waiting.status()]).toEqual([["fine"], "running"]);
  expect(server.count("notifications/cancelled")).toBe(1);
  await waiting.interrupt();
  await waiting.idle();
});

test("the registration's limits end a call, and a word of progress starts the idle one anew", async () => {
  const call = async (name: string, _input: object, asked: Asked) => {
    if (name === "silent") return undefined;
    const tell = asked.stream();
    const meta = asked.rpc.params?._meta as { progressToken?: number } | undefined;
    for (let step = 1; step <= 8; step += 1) {
      await new Promise((resolve) => setTimeout(resolve, STEP_MS));
      tell({ method: "notifications/progress", params: { progressToken: meta?.progressToken, progress: step } });
    }
    return says("done");
  };
  const server = await serve({ call, tools: [tool("silent"), tool("long")] });
  await registry.register({ name: "limited", transport: http(server.url), timeouts: { idle_ms: 4 * STEP_MS, total_ms: 15_000 } });
  const session = await openWith("limited");
  await session.say("call mcp__s__silent: {}\ncall mcp__s__long: {}\necho: got");
  await session.idle();
  expect(await texts(session)).toEqual([expect.stringContaining("800 ms without a word of progress, the idle limit"), "done"]);
  const brief = await serve({ call: () => undefined });
  await registry.register({ name: "brief", transport: http(brief.url), timeouts: { total_ms: 500 } });
  const other = await openWith("brief");
  await other.say("call mcp__s__echo: {}\necho: got");
  await other.idle();
  expect(await texts(other)).toEqual([expect.stringContaining("500 ms, the limit of a call in all")]);
});

test("only allowed tools are offered, and a change of that counts from the next call on", async () => {
  const server = await serve({ tools: [tool("a"), tool("b")] });
  await registry.register({ name: "some", transport: http(server.url), allowed_tools: ["a"] });
  const session = await openWith("some", "always_ask");
  await session.say("call mcp__s__a: {}\necho: got");
  await session.idle();
  expect(offered().at(-1)).toEqual(["mcp__s__a"]);
  await registry.call("POST", "/v1/hands/some", { allowed_tools: ["b"] });
  await session.send({ type: "user.tool_confirmation", tool_use_id: await session.callId(1), result: "allow" });
  await until(async () => (await session.texts()).length > 0, "the model's last words");
  expect(await texts(session)).toEqual([expect.stringContaining("not among the tools that its registration allows; it was not run")]);
  expect(server.count("tools/call")).toBe(0);
  expect(offered().at(-1)).toEqual(["mcp__s__b"]);
});

const offered = () =>
  node.model
    .requests()
    .map(({ body }) => (body as { tools: { name: string }[] }).tools.map(({ name }) => name).filter((name) => name.startsWith("mcp")));

test.each(["dead", "hanging"])("a server that is %s when a session starts delays nothing: its tools are those that were approved", async (kind) => {
  const server = await serve({ tools: [tool("b"), tool("a")] });
  await registry.register({ name: kind, transport: http(server.url) });
  const { port } = server;
  if (kind === "dead") {
    await server.close();
    started.pop();
  } else server.options.script = () => true;
  const session = await openWith(kind);
  const from = performance.now();
  await session.say("say: hello");
  await session.has("span.model_request_start");
  const ms = performance.now() - from;
  await session.idle();
  expect(ms).toBeLessThan(1_000);
  expect(offered()).toEqual([["mcp__s__a", "mcp__s__b"]]);
  if (kind !== "dead") return;
  await session.say("call mcp__s__a: {}\necho: got");
  await session.idle();
  expect(await texts(session)).toEqual([expect.stringContaining("ECONNREFUSED")]);
  const back = await serve({ port, tools: [tool("a"), tool("b")] });
  await session.say('call mcp__s__a: {"text":"x"}\necho: got');
  await session.idle();
  expect([(await texts(session)).at(-1), back.count("tools/call")]).toEqual(["a: x", 1]);
  // The list that the model was told never changed: the prompt's prefix is the same in every request.
  expect(new Set(offered().map((names) => names.join()))).toEqual(new Set(["mcp__s__a,mcp__s__b"]));
  expect((await session.log()).filter(({ entry }) => entry.type === "log.tools")).toHaveLength(1);
});

test("a hand that moved is followed: the next run goes to the new address", async () => {
  const [one, other] = [await serve({ call: () => says("one") }), await serve({ call: () => says("other") })];
  await registry.register({ name: "moved", transport: http(one.url) });
  const session = await openWith("moved");
  for (const server of [one, other]) {
    await registry.call("POST", "/v1/hands/moved", { transport: http(server.url) });
    await session.say("call mcp__s__echo: {}\necho: got");
    await session.idle();
  }
  expect(await texts(session)).toEqual(["one", "other"]);
});
