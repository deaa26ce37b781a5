// Web tools on a server without a provider: the agent's settings hold, each call has its error result, and no hand is touched.

import { afterAll, beforeAll, expect, test } from "vitest";
import { Stage, TOOLSET } from "./cases/stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

test("a fetch of a blocked address names url_not_allowed, any other one the missing provider; one that asks waits for its answer", async () => {
  const session = await stage.session([
    {
      ...TOOLSET,
      configs: [
        { name: "web_fetch", blocked_domains: ["example.com"] },
        { name: "web_search", permission_policy: { type: "always_ask" } },
      ],
    },
  ]);
  const fetching = (url: string) => `call web_fetch: ${JSON.stringify({ url })}`;
  await session.say(`${fetching("https://docs.example.com/")}\n${fetching("https://example.org/")}\ncall web_search: {"query":"x"}\n---\nsay: well`);
  const { id } = await session.has("agent.tool_use", 3);
  await session.has("session.status_idle");
  await session.send({ type: "user.tool_confirmation", tool_use_id: id, result: "allow" });
  await session.has("agent.message");
  const events = await session.settled();
  const uses = events.filter(({ type }) => type === "agent.tool_use");
  expect(uses.map(({ evaluated_permission: evaluated }) => evaluated)).toEqual(["allow", "allow", "ask"]);
  expect(await session.results()).toEqual([
    { text: expect.stringContaining("url_not_allowed"), isError: true },
    { text: expect.stringContaining("no provider of web_fetch"), isError: true },
    { text: expect.stringContaining("no provider of web_search"), isError: true },
  ]);
  expect(session.requests().filter(({ rejected }) => rejected !== null)).toEqual([]);
  expect(await session.turn('call bash: {"command":"ls"}\necho: saw')).toMatch(/^saw/);
});
