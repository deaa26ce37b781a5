// Each point of a turn, each program killed there with -9: nothing acknowledged is lost, nothing is doubled, no tool that is not safe to repeat runs
// twice, and the session goes on. Here a drawn half of the kills; the proof (test/proof/kill.test.ts, or KILLS=all here) kills all
// of them, and every recovery too.

import { describe } from "vitest";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import type { StoreKind } from "./installation.ts";
import { killsOf, nameOf } from "./kill.ts";
import { seeded } from "./seed.ts";
import { expectSurvived, useInstallation } from "./use-installation.ts";

const KILL_MS = 180_000;
const chance = seeded("kills");

describe("with the embedded store", () => describeKills("embedded"));
needs("redis-server")("with Redis", () => describeKills("redis"));

function describeKills(store: StoreKind): void {
  const inUse = useInstallation(store);
  for (const kill of killsOf(store, process.env.KILLS === "all", chance))
    proves("turn:any-death", nameOf(kill), async () => void (await expectSurvived(inUse(), kill)), KILL_MS);
}
