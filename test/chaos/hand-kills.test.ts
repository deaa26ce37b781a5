// Eight kills around containers, one of each kind, in an order and at moments that a seed decides; the proof (test/proof/hand-kills.test.ts) makes a hundred.

import { afterAll, beforeAll, expect } from "vitest";
import { ensureImage, IMAGE_MS } from "../support/docker.ts";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { HandStage, handKillsOf, KILLS } from "./hand-kills.ts";
import { seeded } from "./seed.ts";

const ROUND_MS = 400_000;

needs("docker")("hands in containers", () => {
  const chance = seeded("hand kills");
  let stage: HandStage;
  beforeAll(async () => {
    await ensureImage();
    stage = await HandStage.open(chance);
  }, IMAGE_MS);
  afterAll(() => stage.close());

  for (const kill of handKillsOf(KILLS.length, chance))
    proves("hand:reclaimed", `survive this kill: ${kill}`, async () => expect(await stage.round(kill)).toEqual([]), ROUND_MS);
});
