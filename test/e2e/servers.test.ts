// Agents that use MCP servers: what the model is told, what it calls, what the log says (contract §9.2).

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { mintEvent } from "../../session-store/ids.ts";
import { servers, TOOLSET } from "../harnesses/agents.ts";
import { RawServer, says, tool } from "../support/mcp/raw.ts";
import { startNode, type TestNode, until } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let node: TestNode;
const started: RawServer[] = [];
beforeAll(async () => {
  node = await startNode({ servers: { times: { connectMs: 3_000, idleMs: 5_000, totalMs: 20_000 } } });
});
beforeEach(async () => {
  await node.work();
});
afterEach(async () => {
  await node.rest();
  await Promise.all(started.splice(0).map((server) => server.close()));
});
afterAll(() => node.close());

async function serve(options: Parameters<typeof RawServer.start>[0] = {}): Promise<RawServer> {
  const server = await RawServer.start({ hasSessions: true, ...options });
  started.push(server);
  return server;
}

describe("a server's tool", () => {
  test("is offered under its server's name, called by its own, and shown as the contract says", async () => {
    const server = await serve({ tools: [tool("search"), tool("add")] });
    const { tools, mcp_servers } = servers({ docs: server.url });
    const session = await node.open([...tools, TOOLSET], { mcp_servers });
    await session.say('call mcp__docs__search: {"text":"x"}\necho: found');
    await session.idle();
    expect(await session.texts()).toEqual(["found search: x"]);
    const log = await session.log();
    expect(log.flatMap(({ entry }) => (entry.type === "agent.mcp_tool_use" ? [entry] : []))).toEqual([
      expect.objectContaining({ mcp_server_name: "docs", name: "search", input: { text: "x" }, evaluated_permission: "allow" }),
    ]);
    const offered = node.model.requests()[0]?.body as { tools: { name: string }[] };
    expect(offered.tools.map(({ name }) => name).slice(-2)).toEqual(["mcp__docs__add", "mcp__docs__search"]);
    expect(offered.tools.map(({ name }) => name)[0]).toBe("bash");
  });

  test("asks first unless its policy allows it, and a denied one is not run", async () => {
    const server = await serve();
    const { tools, mcp_servers } = servers({ docs: server.url }, "always_ask");
    const session = await node.open(tools, { mcp_servers });
    await session.say('call mcp__docs__echo: {"text":"a"}\ncall mcp__docs__echo: {"text":"b"}\necho: got');
    await session.idle();
    expect(server.count("tools/call")).toBe(0);
    const confirm = async (n: number, result: "allow" | "deny") =>
      session.send({ type: "user.tool_confirmation", tool_use_id: await session.callId(n), result });
    await confirm(1, "allow");
    await confirm(2, "deny");
    await until(async () => (await session.texts()).length > 0, "the model's last words");
    expect((await session.results()).map(({ text, isError }) => [text, isError])).toEqual(
      expect.arrayContaining([
        ["echo: a", false],
        ["The user denied this call.", true],
      ]),
    );
    expect(server.count("tools/call")).toBe(1);
  });

  test("is not run when its server was taken away while it waited for a confirmation", async () => {
    const server = await serve();
    const { tools, mcp_servers } = servers({ docs: server.url }, "always_ask");
    const session = await node.open(tools, { mcp_servers });
    await session.say("call mcp__docs__echo: {}\necho: got");
    await session.idle();
    const created = (await session.log())[0]?.entry;
    if (created?.type !== "log.created") throw new Error("The log begins with something else.");
    const agent = { ...created.agent, tools: [TOOLSET], mcp_servers: [] };
    await node.store.receive(session.id, [{ id: mintEvent(), type: "session.updated", agent }], {});
    await session.send({ type: "user.tool_confirmation", tool_use_id: await session.callId(1), result: "allow" });
    await until(async () => (await session.texts()).length > 0, "the model's last words");
    expect(await session.results()).toEqual([{ text: expect.stringContaining('no MCP server "docs" any more'), isError: true }]);
    expect(server.count("tools/call")).toBe(0);
  });

  test("that runs is cancelled by an interrupt, and its server is told", async () => {
    const server = await serve({ call: () => undefined });
    const { tools, mcp_servers } = servers({ docs: server.url });
    const session = await node.open(tools, { mcp_servers });
    await session.say("call mcp__docs__echo: {}\n---\nsay: never");
    await until(() => server.count("tools/call") === 1, "the call at the server");
    await session.interrupt();
    await session.idle();
    await until(() => server.count("notifications/cancelled") === 1, "the cancel at the server");
    expect(await session.results()).toEqual([{ text: expect.stringContaining("interrupted"), isError: true }]);
  });
});

describe("a server that can't be used", () => {
  test("is said once, delays nobody, and a call of it says that it is down", async () => {
    const good = await serve({ call: () => says("fine") });
    const dead = await serve();
    const url = dead.url;
    await dead.close();
    started.splice(started.indexOf(dead), 1);
    const { tools, mcp_servers } = servers({ good: good.url, dead: url });
    const session = await node.open(tools, { mcp_servers });
    const from = performance.now();
    await session.say("call mcp__dead__echo: {}\ncall mcp__good__echo: {}\necho: got");
    await session.idle();
    expect(performance.now() - from).toBeLessThan(6_000);
    expect((await session.results()).map(({ text }) => text)).toEqual([expect.stringContaining('MCP server "dead" can\'t be reached'), "fine"]);
    const errors = (await session.log()).flatMap(({ entry }) => (entry.type === "session.error" ? [entry.error] : []));
    expect(errors).toEqual([expect.objectContaining({ type: "mcp_connection_failed_error", mcp_server_name: "dead" })]);
  });

  test("for want of credentials is said to be that", async () => {
    const server = await serve({
      script: ({ response }) => {
        response.writeHead(401, { "www-authenticate": "Bearer" }).end();
        return true;
      },
    });
    const { tools, mcp_servers } = servers({ docs: server.url });
    const session = await node.open(tools, { mcp_servers });
    await session.say("say: hello");
    await session.idle();
    const errors = (await session.log()).flatMap(({ entry }) => (entry.type === "session.error" ? [entry.error] : []));
    expect(errors).toEqual([expect.objectContaining({ type: "mcp_authentication_failed_error", mcp_server_name: "docs" })]);
    expect(await session.texts()).toEqual(["hello"]);
  });
});

test("a huge result is shown in parts, and kept whole in the sandbox", async () => {
  const text = `head${"x".repeat(300_000)}tail`;
  const server = await serve({ call: () => says(text) });
  const { tools, mcp_servers } = servers({ docs: server.url });
  const session = await node.open([TOOLSET, ...tools], { mcp_servers });
  await session.say('call mcp__docs__echo: {}\n---\ncall bash: {"command":"wc -c .manyhands/*"}\necho: got');
  await session.idle();
  const [big, counted] = (await session.results()).map((result) => result.text);
  expect(big?.length).toBeLessThan(30_000);
  expect(big).toMatch(/^head[\s\S]*All of it is in \/workspace\/\.manyhands\/output-[\s\S]*tail$/);
  expect(counted).toContain("300008");
});
