// The proof of hands that die: a container killed, paused and removed at each point of a turn, alone and together with the brain.

import { afterAll, beforeAll, expect, test } from "vitest";
import { ALL_DEATHS, nameOfDeath, runDeath } from "../e2e/cases/container-dies.ts";
import { ContainerStage } from "../e2e/cases/containers.ts";
import { needs } from "../support/real-part.ts";

needs("docker")("a container", () => {
  let contained: ContainerStage;
  beforeAll(async () => {
    contained = await ContainerStage.open();
  });
  afterAll(() => contained.close());

  for (const death of ALL_DEATHS) test(nameOfDeath(death), async () => expect(await runDeath(contained, death)).toEqual([]));
});
