// The proof of the fence: a hundred workers are frozen past their lease and thawed, and nothing of theirs is taken by the store or by the hand host.
// To leave the fence alone to keep the promise, most of them can't tell the time; with the fence taken out as well, the proof is red.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { BLIND_TO_TIME, NO_FENCE_IN_HAND, NO_FENCE_IN_STORE, type Sabotage, sabotaged } from "../chaos/sabotage.ts";
import { chanceOf, seeded } from "../chaos/seed.ts";
import { setStage } from "../chaos/stage.ts";
import { freezeAgain, type ZombieRow } from "../chaos/zombie.ts";
import { needs } from "../support/real-part.ts";

const PAUSES = 100;
const PAUSES_AS_IS = 20;
/** A rule that is taken out shows within so many. */
const PAUSES_SABOTAGED = 12;

let work = "";
const { seed } = seeded("zombies");
const rows: (ZombieRow & { readonly what: string })[] = [];

beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), "manyhands-zombie-"));
});
afterAll(async () => {
  for (const { what, pauses, staleEntries, staleCallsAsked, staleCallsTaken } of rows)
    process.stderr.write(
      `${what}: ${pauses} pauses, ${staleEntries} stale entries, ${staleCallsTaken} stale calls taken of ${staleCallsAsked} asked\n`,
    );
  await rm(work, { recursive: true, force: true });
});

async function freeze(what: string, pauses: number, ...sabotages: readonly Sabotage[]): Promise<ZombieRow> {
  const stage = await setStage({ work, chance: chanceOf(seed), ...(sabotages.length === 0 ? {} : { dist: await sabotaged(work, ...sabotages) }) });
  try {
    const row = await freezeAgain(stage, pauses);
    rows.push({ what, ...row });
    return row;
  } finally {
    await stage.dispose();
  }
}

needs("redis-server")("a worker that is frozen past its lease", () => {
  test("writes nothing and runs nothing afterwards", async () => {
    expect((await freeze("as it is", PAUSES_AS_IS)).faults).toEqual([]);
  });

  test("writes nothing and runs nothing afterwards, though it can't tell the time", async () => {
    const row = await freeze("blind to time", PAUSES, ...BLIND_TO_TIME);
    expect(row.faults).toEqual([]);
    expect(row.staleCallsAsked).toBeGreaterThan(0);
  });

  test("is seen to write when the store does not look at the fence", async () => {
    expect((await freeze("blind, no fence in the store", PAUSES_SABOTAGED, ...BLIND_TO_TIME, NO_FENCE_IN_STORE)).staleEntries).toBeGreaterThan(0);
  });

  test("is seen to call when the hand host does not look at the fence", async () => {
    expect((await freeze("blind, no fence in the hand host", PAUSES_SABOTAGED, ...BLIND_TO_TIME, NO_FENCE_IN_HAND)).staleCallsTaken).toBeGreaterThan(
      0,
    );
  });
});
