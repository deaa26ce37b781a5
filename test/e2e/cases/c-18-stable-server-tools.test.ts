// With servers whose starts are of any length and whose lists are shuffled: the tools of every request are the same, in the same order, after a restart
// of the worker too; what comes later stands at the end.
//
// openclaw/openclaw#58037, openai/codex#2611

import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { servers, TOOLSET } from "../../harnesses/agents.ts";
import { RawServer, tool } from "../../support/mcp/raw.ts";
import { startNode, type TestNode } from "../node.ts";

let node: TestNode;
const started: RawServer[] = [];
const extra: object[] = [];
beforeAll(async () => {
  node = await startNode();
  for (const name of ["a", "b", "c"])
    started.push(
      await RawServer.start({
        hasSessions: true,
        async script({ rpc, result }) {
          if (rpc.method === "initialize") await new Promise((resolve) => setTimeout(resolve, Math.random() * 200));
          if (rpc.method !== "tools/list") return false;
          const tools = ["one", "two", "three", "four"].map((each) => tool(`${each}_${name}`)).sort(() => Math.random() - 0.5);
          result({ tools: name === "a" ? [...extra, ...tools] : tools });
          return true;
        },
      }),
    );
});
afterAll(async () => {
  await node.close();
  await Promise.all(started.map((server) => server.close()));
});

const Body = z.object({ tools: z.array(z.looseObject({ name: z.string() })), system: z.unknown() });
const offered = (from: TestNode): string => {
  const { tools, system } = Body.parse(from.model.requests().at(-1)?.body);
  return JSON.stringify([tools.map(({ cache_control: _, ...rest }) => rest), system]);
};

test("ten turns, a lost session and a new worker are one list; a tool that is added stands behind all others", async () => {
  const [a, b, c] = started;
  const { tools, mcp_servers } = servers({ a: a?.url ?? "", b: b?.url ?? "", c: c?.url ?? "" });
  await node.work();
  const session = await node.open([...tools, TOOLSET], { mcp_servers });
  const seen = new Set<string>();
  for (let turn = 0; turn < 10; turn += 1) {
    if (turn === 4) b?.sessions.clear();
    if (turn === 7) {
      await node.rest();
      await node.work();
    }
    await session.say(turn % 3 === 0 ? "call mcp__b__one_b: {}\nsay: turn" : "say: turn");
    await session.idle();
    seen.add(offered(node));
  }
  expect(seen.size).toBe(1);
  expect((await session.log()).filter(({ entry }) => entry.type === "log.tools")).toHaveLength(3);
  const before = [...seen][0] ?? "";
  extra.push(tool("added"));
  await session.say("say: more");
  await session.idle();
  const names = (text: string) => (JSON.parse(text) as [{ name: string }[]])[0].map(({ name }) => name);
  expect(names(offered(node))).toEqual([...names(before), "mcp__a__added"]);
});
