// A session starts, and its healthy servers are usable at once, whatever the others do; who comes late joins by itself, and each that does not is named.
//
// agentgateway/agentgateway#1266, metatool-ai/metamcp#140, zai-org/feedback#643

import { afterAll, beforeAll, expect, test } from "vitest";
import { servers, TOOLSET } from "../../harnesses/agents.ts";
import { RawServer, says, tool } from "../../support/mcp/raw.ts";
import { startNode, type TestNode, until } from "../node.ts";

const SOON_MS = 2_000;
const CONNECT_MS = 5_000;
const LATE_MS = 3_000;

let node: TestNode;
const started: RawServer[] = [];
beforeAll(async () => {
  node = await startNode({ servers: { times: { connectMs: CONNECT_MS, idleMs: 10_000, totalMs: 20_000 } } });
  await node.work();
});
afterAll(async () => {
  await node.close();
  await Promise.all(started.map((server) => server.close()));
});

async function serve(options: Parameters<typeof RawServer.start>[0]): Promise<RawServer> {
  const server = await RawServer.start({ hasSessions: true, ...options });
  started.push(server);
  return server;
}

test("good, refusing, hanging and late: the good one at once, the late one by itself, the other two named once", async () => {
  const good = await serve({ call: () => says("fine"), tools: [tool("now")] });
  const refusing = await serve({});
  const { url: refused } = refusing;
  await refusing.close();
  started.pop();
  const hanging = await serve({ script: () => true });
  const late = await serve({
    tools: [tool("then")],
    async script({ rpc }) {
      if (rpc.method === "server/discover" || rpc.method === "initialize") await new Promise((resolve) => setTimeout(resolve, LATE_MS / 2));
      return false;
    },
  });
  const urls = { good: good.url, refusing: refused, hanging: hanging.url, late: late.url };
  const { tools, mcp_servers } = servers(urls);
  const session = await node.open([TOOLSET, ...tools], { mcp_servers });
  const waits = Array.from({ length: 7 }, () => 'call bash: {"command":"sleep 1"}\n---').join("\n");
  const from = performance.now();
  await session.say(`call mcp__good__now: {}\n---\n${waits}\nsay: over`);
  await session.has("agent.mcp_tool_result");
  expect(performance.now() - from).toBeLessThan(SOON_MS + 1_000);
  await until(async () => (await session.texts()).includes("over"), "the end of the turn", 40_000);
  const offered = node.model
    .requests()
    .map(({ body }) => (body as { tools: { name: string }[] }).tools.map(({ name }) => name).filter((name) => name.startsWith("mcp")));
  expect(offered[0]).toEqual(["mcp__good__now"]);
  expect(offered.at(-1)).toEqual(["mcp__good__now", "mcp__late__then"]);
  const errors = (await session.log()).flatMap(({ entry }) => (entry.type === "session.error" ? [entry.error] : []));
  expect(errors.map((error) => [error.type, error.mcp_server_name]).sort()).toEqual([
    ["mcp_connection_failed_error", "hanging"],
    ["mcp_connection_failed_error", "refusing"],
  ]);
  expect(errors.find((error) => error.mcp_server_name === "hanging")?.message).toContain(`${CONNECT_MS} ms`);
});
