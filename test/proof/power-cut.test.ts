// The proof of durability: twenty power cuts of each store lose nothing, and the same cuts of a store that only seems durable lose something. P1–P3

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Sabotage, sabotaged } from "../chaos/sabotage.ts";
import { chanceOf, seeded } from "../chaos/seed.ts";
import { ROOT } from "../support/process.ts";
import { needs } from "../support/real-part.ts";
import { compileSyncmark } from "./cut.ts";
import { type CutRow, type CutSetting, cutEmbedded, cutRedis, tableOf } from "./power-cut.ts";

const CUTS = 20;

/** What many an SQLite user takes for durable: in WAL mode it syncs at checkpoints alone. */
const NORMAL: Sabotage = {
  name: "synchronous=NORMAL",
  file: "session-store/drivers/embedded/driver.js",
  line: `synchronous = "FULL"`,
  instead: `synchronous = "NORMAL"`,
};

let work = "";
let shim = "";
const rows: CutRow[] = [];
const { seed } = seeded("power cut");
const setting = (dist = join(ROOT, "dist")): CutSetting => ({ chance: chanceOf(seed), cuts: CUTS, shim, dist, work });

beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), "manyhands-cut-"));
});
afterAll(async () => {
  process.stderr.write(`${tableOf(rows)}\n`);
  await rm(work, { recursive: true, force: true });
});

needs("gcc", "redis-server")("twenty power cuts", () => {
  beforeAll(async () => {
    shim = await compileSyncmark(work);
  });

  const measure = async (row: Promise<CutRow>) => {
    rows.push(await row);
    return row;
  };

  test("of the embedded store lose nothing that was acknowledged", async () => {
    expect((await measure(cutEmbedded("FULL", setting()))).faults).toEqual([]);
  });

  test("of an embedded store that is not durable lose something", async () => {
    expect((await measure(cutEmbedded("NORMAL (control)", setting(await sabotaged(work, NORMAL))))).cutsWithLoss).toBeGreaterThan(0);
  });

  test("of Redis under appendfsync always lose nothing that was acknowledged", async () => {
    expect((await measure(cutRedis("always", setting()))).faults).toEqual([]);
  });

  test("of Redis under appendfsync everysec lose something", async () => {
    expect((await measure(cutRedis("everysec", setting()))).cutsWithLoss).toBeGreaterThan(0);
  });
});
