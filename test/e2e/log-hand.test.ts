// An agent that reads its own log (`hand:session`): the same path as every server's tools, without a hand.

import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import type { Hands } from "../../hands/hand.ts";
import { Refusal } from "../../session-store/refusal.ts";
import { servers, TOOLSET } from "../harnesses/agents.ts";
import { startNode, type TestNode, until } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let node: TestNode;
beforeAll(async () => {
  node = await startNode();
});
afterEach(() => node.rest());
afterAll(() => node.close());

/** Hands of a host that is not there. */
const away = async (): Promise<never> => {
  throw new Refusal("hand_lost");
};
const NO_HANDS: Hands = {
  provision: away,
  prepare: away,
  listTools: away,
  announce: away,
  execute: away,
  cancel: away,
  transfer: away,
  settled: away,
  release: away,
  instances: away,
  configured: away,
};

test("finds what it was told long ago, and what had been said before, with no hand host at all", async () => {
  await node.work({ hands: NO_HANDS });
  const { tools, mcp_servers } = servers({ session: "hand:session" });
  const session = await node.open(tools, { mcp_servers });
  await session.say("say: the word is heron");
  await session.idle();
  await session.say('call mcp__session__search_events: {"query":"IS HERON"}\ncall mcp__session__rewind: {"before":6}\n---\nsay: found');
  await session.idle();
  expect(await session.texts()).toEqual(["the word is heron", "found"]);
  // They only read: whichever is ready first stands first.
  const results = await session.results();
  expect(results.map(({ isError }) => isError)).toEqual([false, false]);
  const answers = results.map(({ text }) => JSON.parse(text) as { found?: object[] });
  const finds = expect.arrayContaining([
    expect.objectContaining({ type: "agent.message", around: expect.stringContaining("the word is heron") }),
    expect.objectContaining({ type: "user.message" }),
  ]);
  const rewound = { before: 6, transcript: "[2] User: say: the word is heron", earlier: null };
  expect(answers).toEqual(expect.arrayContaining([{ found: finds, next: null }, rewound]));
  const log = await session.log();
  expect(
    log.flatMap(({ entry }) => (entry.type === "agent.mcp_tool_use" ? [[entry.mcp_server_name, entry.name, entry.evaluated_permission]] : [])),
  ).toEqual([
    ["session", "search_events", "allow"],
    ["session", "rewind", "allow"],
  ]);
  expect(log.some(({ entry }) => entry.type === "log.hand" || entry.type === "session.error")).toBe(false);
  // The list is frozen once, and the same at each request.
  expect(log.filter(({ entry }) => entry.type === "log.tools")).toHaveLength(1);
});

test("asks first where its policy says so, and is shown nothing that the API does not show", async () => {
  await node.work();
  const { tools, mcp_servers } = servers({ memory: "hand:session" }, "always_ask");
  const session = await node.open([TOOLSET, ...tools], { mcp_servers });
  await session.say('call mcp__memory__get_events: {"limit":50}\necho: read');
  await session.idle();
  expect(await session.results()).toEqual([]);
  await session.send({ type: "user.tool_confirmation", tool_use_id: await session.callId(1), result: "allow" });
  await until(async () => (await session.texts()).length === 1, "the model's last words");
  const [read] = await session.results();
  expect(read?.isError).toBe(false);
  const { events } = JSON.parse(read?.text ?? "") as { events: { type: string; position: number }[] };
  expect(events.filter(({ type }) => type.startsWith("log."))).toEqual([]);
  expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining(["user.message", "agent.mcp_tool_use", "session.status_idle"]));
  expect(events.map(({ position }) => position)).toEqual(events.map(({ position }) => position).sort((one, other) => other - one));
});
