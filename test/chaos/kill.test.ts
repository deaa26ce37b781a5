// Each point of a turn, each program killed there with -9: nothing acknowledged is lost, nothing is doubled, no tool that is not safe to repeat runs
// twice, and the session goes on. KILLS=all runs the whole matrix, recoveries that are killed too for every victim.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { type ScriptedModel, startModel } from "../support/model/server.ts";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { Api } from "./api.ts";
import { Installation, type StoreKind } from "./installation.ts";
import { killsOf, nameOf, runKill } from "./kill.ts";
import { seeded } from "./seed.ts";

const LEASE_MS = 1_000;
const KILL_MS = 180_000;
const chance = seeded("kills");
const isWhole = process.env.KILLS === "all";

describe("with the embedded store", () => describeKills("embedded"));
needs("redis-server")("with Redis", () => describeKills("redis"));

function describeKills(store: StoreKind): void {
  let work = "";
  let model: ScriptedModel;
  let installation: Installation;
  let api: Api;

  beforeAll(async () => {
    work = await mkdtemp(join(tmpdir(), "manyhands-kill-"));
    model = await startModel({ port: 0 });
    installation = await Installation.make({ store, work, modelUrl: model.url, leaseMs: LEASE_MS });
    await installation.startMissing();
    api = new Api(installation.url, installation.apiKey);
  });
  afterAll(async () => {
    await installation[Symbol.asyncDispose]();
    await model.close();
    await rm(work, { recursive: true, force: true });
  });

  for (const kill of killsOf(store, isWhole, chance)) {
    proves(
      "turn:any-death",
      nameOf(kill),
      async () => {
        const before = model.stats().rejected;
        const { faults } = await runKill(installation, api, kill);
        expect({ faults, refusedByTheModel: model.stats().rejected - before }).toEqual({ faults: [], refusedByTheModel: 0 });
      },
      KILL_MS,
    );
  }
}
