// A few power cuts for every run of the tests; the proof (test/proof/power-cut.test.ts) does twenty of each. P1 P2

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { compileSyncmark, cutFile, cutPower, markedEnv } from "../proof/cut.ts";
import { type CutRow, type CutSetting, cutEmbedded, cutRedis, tableOf } from "../proof/power-cut.ts";
import { ROOT } from "../support/process.ts";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { seeded } from "./seed.ts";

const CUTS = 3;
const CUTS_MS = 300_000;

let work = "";
let shim = "";

beforeAll(async () => {
  work = await mkdtemp(join(tmpdir(), "manyhands-cut-"));
});
afterAll(() => rm(work, { recursive: true, force: true }));

/** A program that writes, says "done" and waits to be killed. */
async function runUntilDone(script: string, root: string, marks: string): Promise<void> {
  const child = spawn(process.execPath, ["--input-type=module", "-e", `${script}; console.log("done"); setInterval(() => {}, 1000);`], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...markedEnv(shim, root, marks) },
  });
  await once(child.stdout, "data");
  child.kill("SIGKILL");
  await once(child, "exit");
}

test("a block that was not synced may survive a cut, alone", () => {
  const [old, now] = [Buffer.alloc(3 * 4096, "o"), Buffer.alloc(3 * 4096, "n")];
  const coins = [true, false, true];
  const cut = cutFile(now, old.length, [[{ offset: 0, count: now.length, old }]], () => coins.shift() ?? true);
  expect(cut.equals(Buffer.concat([old.subarray(0, 4096), now.subarray(0, 4096), old.subarray(0, 4096)]))).toBe(true);
});

needs("gcc")("a power cut", () => {
  beforeAll(async () => {
    shim = await compileSyncmark(work);
  });

  test("keeps what was synced and loses what was not: appended, overwritten, cut off", async () => {
    const [root, marks] = [join(work, "shim-root"), join(work, "shim-marks")];
    await Promise.all([mkdir(root), mkdir(marks)]);
    await runUntilDone(
      `import fs from "node:fs";
       const file = (name) => fs.openSync("${root}/" + name, "w+");
       const [synced, appended, overwritten, shortened, never] = ["synced", "appended", "overwritten", "shortened", "never"].map(file);
       fs.writeSync(synced, "whole"); fs.fsyncSync(synced);
       fs.writeSync(appended, "kept"); fs.fdatasyncSync(appended); fs.writeSync(appended, " and lost");
       fs.writeSync(overwritten, "0123456789"); fs.fsyncSync(overwritten); fs.writeSync(overwritten, "abc", 2); fs.writeSync(overwritten, "ABCDEF", 3);
       fs.writeSync(shortened, "0123456789"); fs.fsyncSync(shortened); fs.ftruncateSync(shortened, 4);
       fs.writeSync(never, "nothing of this");`,
      root,
      marks,
    );
    expect(await readFile(join(root, "overwritten"), "utf8")).toBe("01aABCDEF9");
    await cutPower(root, marks, () => true);
    const left = await Promise.all(["synced", "appended", "overwritten", "shortened", "never"].map((name) => readFile(join(root, name), "utf8")));
    expect(left).toEqual(["whole", "kept", "0123456789", "0123456789", ""]);
  });

  const setting = (what: string): CutSetting => ({ chance: seeded(what), cuts: CUTS, shim, dist: join(ROOT, "dist"), work });
  const expectKept = (row: CutRow) => {
    process.stderr.write(`${tableOf([row])}\n`);
    expect(row.faults).toEqual([]);
    expect(row.acknowledged).toBeGreaterThan(0);
  };

  proves(
    "log:power-cut",
    "of the embedded store loses nothing that was acknowledged",
    async () => {
      expectKept(await cutEmbedded("full", setting("power cut, embedded")));
    },
    CUTS_MS,
  );

  needs("redis-server")("of Redis", () => {
    proves(
      "log:power-cut",
      "loses nothing that was acknowledged under appendfsync always",
      async () => {
        expectKept(await cutRedis("always", setting("power cut, redis")));
      },
      CUTS_MS,
    );
  });
});
