// Has every checker been seen red? One rule at a time is taken out of a copy of the product, and the kill that the rule is there for must be caught,
// by the checker that names the promise. (The fences are taken out in zombie.test.ts, durability in power-cut.test.ts.)

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Api } from "../chaos/api.ts";
import type { Faults } from "../chaos/checkers.ts";
import { Installation, type StoreKind } from "../chaos/installation.ts";
import { type Kill, type Killed, runKill } from "../chaos/kill.ts";
import { IDS_FORGOTTEN, LEASES_FOR_EVER, NO_LEDGER, NO_ROW_BEFORE_START, type Sabotage, SPANS_STAY_OPEN, sabotaged } from "../chaos/sabotage.ts";
import { startModel } from "../support/model/server.ts";
import { needs } from "../support/real-part.ts";

const LEASE_MS = 1_000;
/** A kill is not the same twice: a rule that is gone shows within so many. */
const TRIES = 5;

interface Case {
  readonly sabotage: Sabotage;
  readonly store: StoreKind;
  readonly kill: Pick<Kill, "point" | "victim">;
  /** What the right checker says. */
  readonly says: RegExp;
}

const CASES: readonly Case[] = [
  { sabotage: NO_LEDGER, store: "embedded", kill: { point: "tool-running", victim: "node" }, says: /the effect \S+ happened more than once/ },
  {
    sabotage: NO_ROW_BEFORE_START,
    store: "embedded",
    kill: { point: "tool-running", victim: "hands" },
    says: /the effect \S+ happened more than once/,
  },
  {
    sabotage: SPANS_STAY_OPEN,
    store: "embedded",
    kill: { point: "model-streaming", victim: "node" },
    says: /model request \S+ does not end exactly once/,
  },
  { sabotage: IDS_FORGOTTEN, store: "redis", kill: { point: "stored", victim: "gateway" }, says: /the message of \S+ is in the list 2 times/ },
  { sabotage: LEASES_FOR_EVER, store: "redis", kill: { point: "taken", victim: "worker" }, says: /Not within \d+ ms: session \S+ idle/ },
];

/** A session that never comes to rest is a fault as well. */
async function faultsOf(killed: Promise<Killed>): Promise<Faults> {
  try {
    return (await killed).faults;
  } catch (error) {
    return [String(error)];
  }
}

let work = "";
beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), "manyhands-sabotage-"));
});
afterAll(() => rm(work, { recursive: true, force: true }));

needs("redis-server")("a rule that is taken out is missed", () => {
  for (const { sabotage, store, kill, says } of CASES) {
    test(`${sabotage.name}: ${kill.victim} killed at ${kill.point}`, async () => {
      const model = await startModel({ port: 0 });
      const dist = await sabotaged(work, sabotage);
      const installation = await Installation.make({ store, work, modelUrl: model.url, leaseMs: LEASE_MS, dist });
      try {
        const api = new Api(installation.url, installation.apiKey);
        const said: string[] = [];
        for (let tries = 0; tries < TRIES && !said.some((fault) => says.test(fault)); tries += 1)
          said.push(...(await faultsOf(runKill(installation, api, { ...kill, again: false }))));
        expect(said).toContainEqual(expect.stringMatching(says));
      } finally {
        await installation[Symbol.asyncDispose]();
        await model.close();
      }
    });
  }
});
