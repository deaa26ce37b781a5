// The official conformance suite against our door: two replicas as real processes on one Redis, and every request to the next one of them.

import { afterAll, beforeAll, expect } from "vitest";
import { runSuite } from "../conformance/suite.ts";
import { startProgram } from "../support/process.ts";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { startRedis } from "../support/redis.ts";
import { startRoundRobin } from "../support/round-robin.ts";

const SUITE_MS = 240_000;
const SCORED = { "2025-11-25": 30, "2026-07-28": 37 } as const;

needs("redis-server")("the official conformance suite, over two replicas", () => {
  const undo: (() => Promise<unknown>)[] = [];
  let url = "";

  beforeAll(async () => {
    const redis = await startRedis();
    undo.push(() => redis.stop());
    const replicas = [1, 2].map(() => startProgram("test/conformance/fixture-server", { env: { REDIS_URL: redis.url } }));
    for (const replica of replicas) undo.push(() => replica[Symbol.asyncDispose]());
    const balancer = await startRoundRobin(await Promise.all(replicas.map((replica) => replica.listening())));
    undo.push(() => balancer.close());
    // The suite looks for a door that is on this machine by its name only.
    url = `${balancer.url.replace("127.0.0.1", "localhost")}/mcp`;
  });
  afterAll(async () => {
    for (const end of undo.reverse()) await end();
  });

  for (const revision of ["2025-11-25", "2026-07-28"] as const)
    proves(
      "mcp:both-eras",
      `every scored scenario of ${revision} passes`,
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
