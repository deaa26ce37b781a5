// The proof of reclaimed containers: a hundred kills of the hand host, of its line to the engine and of containers, one after the other on one installation.

import { afterAll, beforeAll, expect, test } from "vitest";
import { HandStage, handKillsOf } from "../chaos/hand-kills.ts";
import { seeded } from "../chaos/seed.ts";
import { ensureImage, IMAGE_MS } from "../support/docker.ts";
import { needs } from "../support/real-part.ts";

const KILLS = 100;

needs("docker")("hands in containers", () => {
  const chance = seeded("hand kills");
  let stage: HandStage;
  beforeAll(async () => {
    await ensureImage();
    stage = await HandStage.open(chance);
  }, IMAGE_MS);
  afterAll(() => stage.close());

  for (const [at, kill] of handKillsOf(KILLS, chance).entries())
    test(`kill ${at + 1} of ${KILLS}: ${kill}`, async () => expect(await stage.round(kill)).toEqual([]));
});
