// Each point of a turn, each program killed there with -9, with the embedded store; kill-redis.test.ts is the same with Redis. Nothing acknowledged is lost,
// nothing is doubled, no tool that is not safe to repeat runs twice, and the session goes on. Here a drawn third of the kills; the proof
// (test/proof/kill.test.ts, or KILLS=all here) kills all of them, and every recovery too.

import { describe } from "vitest";
import { proves } from "../support/proves.ts";
import { killsOf, nameOf } from "./kill.ts";
import { seeded } from "./seed.ts";
import { expectSurvived, useInstallation } from "./use-installation.ts";

const KILL_MS = 180_000;

describe("with the embedded store", () => {
  const inUse = useInstallation("embedded");
  for (const kill of killsOf("embedded", process.env.KILLS === "all", seeded("kills with embedded")))
    proves("turn:any-death", nameOf(kill), async () => void (await expectSurvived(inUse(), kill)), KILL_MS);
});
