// The official conformance suite against a server that is reached through the door of its hand: two gateways as real processes on one Redis, every
// request to the next one of them.

import { afterAll, beforeAll, expect } from "vitest";
import { runSuite } from "../conformance/suite.ts";
import { startProgram } from "../support/process.ts";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { startRedis } from "../support/redis.ts";
import { putHand } from "../support/relay.ts";
import { startRoundRobin } from "../support/round-robin.ts";

const SUITE_MS = 240_000;
const SCORED = { "2025-11-25": 30, "2026-07-28": 37 } as const;

needs("redis-server")("the official conformance suite, through the relay of two gateways", () => {
  const undo: (() => Promise<unknown>)[] = [];
  let url = "";

  beforeAll(async () => {
    const redis = await startRedis();
    undo.push(() => redis.stop());
    const fixture = startProgram("test/conformance/fixture-server", { env: { REDIS_URL: redis.url } });
    undo.push(() => fixture[Symbol.asyncDispose]());
    await putHand({ redisUrl: redis.url }, { name: "fixture", url: `${await fixture.listening()}/mcp` });
    const env = { REDIS_URL: redis.url, MANYHANDS_PORT: "0", MANYHANDS_MCP_OPEN: "1", MANYHANDS_MCP_INTERNAL_HOSTS: "localhost" };
    const gateways = [1, 2].map(() => startProgram("gateway/main", { env: { ...env, MANYHANDS_KEEP_ALIVE_MS: "1000" } }));
    for (const gateway of gateways) undo.push(() => gateway[Symbol.asyncDispose]());
    const balancer = await startRoundRobin(await Promise.all(gateways.map((gateway) => gateway.listening())));
    undo.push(() => balancer.close());
    // The suite looks for a door that is on this machine by its name only.
    url = `${balancer.url.replace("127.0.0.1", "localhost")}/mcp/hands/fixture`;
  });
  afterAll(async () => {
    for (const end of undo.reverse()) await end();
  });

  for (const revision of ["2025-11-25", "2026-07-28"] as const)
    proves(
      "mcp:relay",
      `every scored scenario of ${revision} passes through the door of a hand`,
      async () => {
        const { code, scored, said } = await runSuite(url, revision);
        expect(
          scored.filter(({ isPassed }) => !isPassed),
          said.slice(-4_000),
        ).toEqual([]);
        expect(scored).toHaveLength(SCORED[revision]);
        expect(code, said.slice(-4_000)).toBe(0);
      },
      SUITE_MS,
    );
});
