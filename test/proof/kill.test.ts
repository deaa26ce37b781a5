// The proof of recovery: every point of a turn, every program killed there, and wherever the one that drives the turn dies, the next one dies as well,
// while it recovers.

import { describe, test } from "vitest";
import type { StoreKind } from "../chaos/installation.ts";
import { killsOf, nameOf } from "../chaos/kill.ts";
import { seeded } from "../chaos/seed.ts";
import { expectSurvived, useInstallation } from "../chaos/use-installation.ts";
import { needs } from "../support/real-part.ts";

const chance = seeded("kills");

describe("with the embedded store", () => describeKills("embedded"));
needs("redis-server")("with Redis", () => describeKills("redis"));

function describeKills(store: StoreKind): void {
  const inUse = useInstallation(store);
  for (const kill of killsOf(store, true, chance)) test(nameOf(kill), async () => void (await expectSurvived(inUse(), kill)));
}
