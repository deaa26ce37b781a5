// C-08 and C-17 with the container in the place of the brain, or beside it: killed, paused, removed, at each point of a turn. Which death a point meets, and
// whether the brain dies as well, is drawn; the proof (test/proof/container-dies.test.ts) takes all of them.

import { afterAll, beforeAll, expect } from "vitest";
import { seeded } from "../../chaos/seed.ts";
import { proves } from "../../support/proves.ts";
import { needs } from "../../support/real-part.ts";
import { drawnDeaths, nameOfDeath, runDeath } from "./container-dies.ts";
import { ContainerStage } from "./containers.ts";

needs("docker")("a container", () => {
  const chance = seeded("container deaths");
  let contained: ContainerStage;
  beforeAll(async () => {
    contained = await ContainerStage.open();
  });
  afterAll(() => contained.close());

  for (const death of drawnDeaths(chance)) proves("hand:dies", nameOfDeath(death), async () => expect(await runDeath(contained, death)).toEqual([]));
});
