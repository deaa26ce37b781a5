// A side effect happens once, and its true result is told as long as anyone knows it: the three places where a kill can cut a call in two.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect } from "vitest";
import { type ScriptedModel, startModel } from "../support/model/server.ts";
import { proves } from "../support/proves.ts";
import { Api } from "./api.ts";
import { Installation } from "./installation.ts";
import { runKill } from "./kill.ts";

const LEASE_MS = 1_000;
const KILL_MS = 180_000;

let work = "";
let model: ScriptedModel;
let installation: Installation;
let api: Api;

beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), "manyhands-once-"));
  model = await startModel({ port: 0 });
  installation = await Installation.make({ store: "embedded", work, modelUrl: model.url, leaseMs: LEASE_MS });
  await installation.startMissing();
  api = new Api(installation.url, installation.apiKey);
});
afterAll(async () => {
  await installation[Symbol.asyncDispose]();
  await model.close();
  await rm(work, { recursive: true, force: true });
});

proves(
  "tool:at-most-once",
  "a worker that dies while a tool runs: the next one waits for the same run and tells its true result",
  async () => {
    const { faults, told, effects } = await runKill(installation, api, { point: "tool-running", victim: "node", again: false });
    expect({ faults, effects }).toEqual({ faults: [], effects: 1 });
    expect(told).toContain("written");
    expect(told).not.toContain("error");
  },
  KILL_MS,
);

proves(
  "tool:at-most-once",
  "a worker that dies after the result was stored: the tool does not run again",
  async () => {
    const { faults, told, effects } = await runKill(installation, api, { point: "result-stored", victim: "node", again: false });
    expect({ faults, effects }).toEqual({ faults: [], effects: 1 });
    expect(told).toContain("written");
  },
  KILL_MS,
);

proves(
  "tool:at-most-once",
  "a hand host that dies after the tool did its work: the model is told that it may have run, and nothing runs it again",
  async () => {
    const { faults, told, effects } = await runKill(installation, api, { point: "tool-running", victim: "hands", again: false });
    expect({ faults, effects }).toEqual({ faults: [], effects: 1 });
    expect(told).toContain("error");
    expect(told).toContain("may have run");
  },
  KILL_MS,
);
