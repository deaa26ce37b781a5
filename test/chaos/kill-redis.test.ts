// Each point of a turn, each program killed there with -9, with Redis: see kill.test.ts. A file of its own, since each takes minutes.

import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { killsOf, nameOf } from "./kill.ts";
import { seeded } from "./seed.ts";
import { expectSurvived, useInstallation } from "./use-installation.ts";

const KILL_MS = 180_000;

needs("redis-server")("with Redis", () => {
  const inUse = useInstallation("redis");
  for (const kill of killsOf("redis", process.env.KILLS === "all", seeded("kills with redis")))
    proves("turn:any-death", nameOf(kill), async () => void (await expectSurvived(inUse(), kill)), KILL_MS);
});
