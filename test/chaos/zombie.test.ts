// A few zombies for every run of the tests; the proof (test/proof/zombie.test.ts) does a hundred. Z1–Z3

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished } from "vitest";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { seeded } from "./seed.ts";
import { setStage } from "./stage.ts";
import { freezeAgain } from "./zombie.ts";

const PAUSES = 5;
const ZOMBIES_MS = 300_000;

needs("redis-server")("a worker that is frozen past its lease", () => {
  proves(
    "lease:stale-worker",
    "writes nothing and runs nothing afterwards",
    async () => {
      const work = await mkdtemp(join(tmpdir(), "manyhands-zombie-"));
      onTestFinished(() => rm(work, { recursive: true, force: true }));
      const stage = await setStage({ work, chance: seeded("zombie") });
      onTestFinished(() => stage.dispose());

      const row = await freezeAgain(stage, PAUSES);
      expect(row.faults).toEqual([]);
      expect(row.pauses).toBe(PAUSES);
    },
    ZOMBIES_MS,
  );
});
