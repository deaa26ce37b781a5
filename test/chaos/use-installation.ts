// An installation for the tests around the call: started before the first of them, ended after the last, whatever became of them.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect } from "vitest";
import { type ScriptedModel, startModel } from "../support/model/server.ts";
import { Api } from "./api.ts";
import { Installation, type StoreKind } from "./installation.ts";
import { type Kill, type Killed, runKill } from "./kill.ts";

/** Short, so that work is offered again soon. */
const LEASE_MS = 1_000;

export interface InUse {
  readonly installation: Installation;
  readonly api: Api;
  readonly model: ScriptedModel;
}

/** Call it in a `describe` or at the top of a file; what it gives is there once tests run. */
export function useInstallation(store: StoreKind): () => InUse {
  let inUse: InUse | null = null;
  let work = "";

  beforeAll(async () => {
    work = await mkdtemp(join(tmpdir(), "manyhands-chaos-"));
    const model = await startModel({ port: 0 });
    const installation = await Installation.make({ store, work, modelUrl: model.url, leaseMs: LEASE_MS });
    inUse = { installation, api: new Api(installation.url, installation.apiKey), model };
    await installation.startMissing();
  });
  afterAll(async () => {
    await inUse?.installation[Symbol.asyncDispose]();
    await inUse?.model.close();
    await rm(work, { recursive: true, force: true });
  });

  return () => {
    if (!inUse) throw new Error("The installation is used before it was started.");
    return inUse;
  };
}

/** Runs a kill and expects that nothing is wrong afterwards, and that the model was never asked with a history that it refuses. */
export async function expectSurvived({ installation, api, model }: InUse, kill: Kill): Promise<Killed> {
  const before = model.stats().rejected;
  const killed = await runKill(installation, api, kill);
  expect({ faults: killed.faults, refusedByTheModel: model.stats().rejected - before }).toEqual({ faults: [], refusedByTheModel: 0 });
  return killed;
}
