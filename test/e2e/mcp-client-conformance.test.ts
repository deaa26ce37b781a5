// The official conformance suite with our client: what agents reach servers with, and what a person connects one with.

import { expect, test } from "vitest";
import { runClientSuite } from "../conformance/suite.ts";

const SUITE_MS = 960_000;
const SCORED = { "2025-11-25": 18, "2026-07-28": 32 } as const;

for (const revision of ["2025-11-25", "2026-07-28"] as const)
  test(
    `every scored client scenario of ${revision} passes`,
    async () => {
      const { code, scored, said } = await runClientSuite(revision);
      expect(
        scored.filter(({ isPassed }) => !isPassed),
        said.slice(-4_000),
      ).toEqual([]);
      expect(scored).toHaveLength(SCORED[revision]);
      expect(code, said.slice(-4_000)).toBe(0);
    },
    SUITE_MS,
  );
