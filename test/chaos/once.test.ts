// A side effect happens once, and its true result is told as long as anyone knows it: the three places where a kill can cut a call in two.

import { expect } from "vitest";
import { proves } from "../support/proves.ts";
import { expectSurvived, useInstallation } from "./use-installation.ts";

const KILL_MS = 180_000;

const inUse = useInstallation("embedded");

proves(
  "tool:at-most-once",
  "a worker that dies while a tool runs: the next one waits for the same run and tells its true result",
  async () => {
    const { told, effects } = await expectSurvived(inUse(), { point: "tool-running", victim: "node", again: false });
    expect(effects).toBe(1);
    expect(told).toContain("written");
    expect(told).not.toContain("error");
  },
  KILL_MS,
);

proves(
  "tool:at-most-once",
  "a worker that dies after the result was stored: the tool does not run again",
  async () => {
    const { told, effects } = await expectSurvived(inUse(), { point: "result-stored", victim: "node", again: false });
    expect(effects).toBe(1);
    expect(told).toContain("written");
  },
  KILL_MS,
);

proves(
  "tool:at-most-once",
  "a hand host that dies after the tool did its work: the model is told that it may have run, and nothing runs it again",
  async () => {
    const { told, effects } = await expectSurvived(inUse(), { point: "tool-running", victim: "hands", again: false });
    expect(effects).toBe(1);
    expect(told).toContain("error");
    expect(told).toContain("may have run");
  },
  KILL_MS,
);
