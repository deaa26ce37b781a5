// Every tool has a unique name of at most 64 letters, digits, `_` or `-`, the same after a restart, and its server is called with its own.
//
// docker/mcp-gateway#228, microsoft/vscode#243602, fr0ster/llm-agent#249, IBM/mcp-context-forge#2528

import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { servers, TOOLSET } from "../../harnesses/agents.ts";
import { RawServer, says, tool } from "../../support/mcp/raw.ts";
import { startNode, type TestNode } from "../node.ts";

const LONG = "n".repeat(70);
const NAMES = ["a:b", "a.b", "a/b", "_lead", "n".repeat(90), `${LONG}1`, `${LONG}2`, "search", "bash", "ünï"];

const Body = z.object({ tools: z.array(z.object({ name: z.string() })) });

let node: TestNode;
const started: RawServer[] = [];
beforeAll(async () => {
  node = await startNode();
  for (const which of ["one", "two"])
    started.push(
      await RawServer.start({
        hasSessions: true,
        tools: (which === "one" ? NAMES : ["search"]).map((name) => tool(name)),
        call: (name) => says(`${which} ${name}`),
      }),
    );
});
afterAll(async () => {
  await node.close();
  await Promise.all(started.map((server) => server.close()));
});

test("all are listed, all are callable, each reaches the right server, and a restart changes nothing", async () => {
  await node.work();
  const { tools, mcp_servers } = servers({ "first server": started[0]?.url ?? "", two: started[1]?.url ?? "" });
  const session = await node.open([TOOLSET, ...tools], { mcp_servers });
  await session.say("say: hello");
  await session.idle();
  const offeredIn = (at: number) => Body.parse(node.model.requests()[at]?.body).tools.map(({ name }) => name);
  const offered = offeredIn(0);
  const theirs = offered.filter((name) => name.startsWith("mcp__"));
  expect(theirs).toHaveLength(NAMES.length + 1);
  expect(new Set(offered).size).toBe(offered.length);
  for (const name of offered) expect(name).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
  await session.say(`${theirs.map((name) => `call ${name}: {}`).join("\n")}\nsay: over`);
  await session.idle();
  const log = await session.log();
  const uses = log.flatMap(({ entry }) => (entry.type === "agent.mcp_tool_use" ? [entry] : []));
  const results = new Map(log.flatMap(({ entry }) => (entry.type === "agent.mcp_tool_result" ? [[entry.mcp_tool_use_id, entry] as const] : [])));
  const reached = uses.map((use) => [use.mcp_server_name, use.name, results.get(use.id)?.content[0]]);
  expect(reached).toHaveLength(theirs.length);
  for (const [server, name, block] of reached) expect(block).toEqual({ type: "text", text: `${server === "two" ? "two" : "one"} ${String(name)}` });
  expect(reached.map(([, name]) => name).sort()).toEqual([...NAMES, "search"].sort());
  await node.rest();
  await node.work();
  await session.say("say: again");
  await session.idle();
  expect(offeredIn(0)).toEqual(offered);
});
