// The launcher's children (gateway/child.ts), with small programs in their place.

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { banner, standIns } from "../../gateway/banner.ts";
import { BACKOFF_MAX_MS, BACKOFF_MIN_MS, backoffMs, Child } from "../../gateway/child.ts";
import { readConfig } from "../../gateway/config.ts";
import { isAlive, ROOT, startNode } from "../support/process.ts";
import { until } from "../support/until.ts";

let folder: string;
let children: Child[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-launch-"));
  children = [];
});
afterEach(async () => {
  for (const child of children) {
    child.kill();
    await child.stop(5_000);
  }
  await rm(folder, { recursive: true, force: true });
});

interface Death {
  readonly code: number | null;
  readonly againMs: number | null;
}

/** A child that runs `source`, and what was heard of it. */
async function childOf(source: string) {
  const entry = join(folder, `program-${children.length}.mjs`);
  await writeFile(entry, source);
  const heard = { pids: [] as number[], lines: [] as string[], deaths: [] as Death[] };
  const hear = {
    started: (_role: string, pid: number) => void heard.pids.push(pid),
    said: (_role: string, line: string) => void heard.lines.push(line),
    died: (_role: string, code: number | null, _signal: string | null, againMs: number | null) => void heard.deaths.push({ code, againMs }),
  };
  const child = new Child({ role: "hands", entry, env: { PATH: process.env.PATH ?? "" }, hear });
  children.push(child);
  child.start();
  return { child, ...heard };
}

const STAYS = "process.stdin.resume(); setInterval(() => {}, 1000); process.on('SIGTERM', () => process.exit(0)); console.log('up');";

describe("a child", () => {
  test("that dies is started again, later each time", async () => {
    const { pids, deaths } = await childOf("process.exit(7)");
    await until(() => pids.length === 3);
    expect(deaths.slice(0, 2)).toEqual([
      { code: 7, againMs: BACKOFF_MIN_MS },
      { code: 7, againMs: BACKOFF_MIN_MS * 2 },
    ]);
    expect(new Set(pids).size).toBe(3);
  });

  test("that says configuration is not started again", async () => {
    const { child, pids, deaths } = await childOf("process.exit(2)");
    await until(() => deaths.length === 1);
    expect({ pids: pids.length, deaths, isRunning: child.isRunning }).toEqual({ pids: 1, deaths: [{ code: 2, againMs: null }], isRunning: false });
  });

  test("that is stopped ends by itself and stays down; its lines were passed on", async () => {
    const { child, pids, lines, deaths } = await childOf(STAYS);
    await until(() => lines.includes("up"));
    await child.stop(5_000);
    expect({ pids: pids.length, deaths }).toEqual({ pids: 1, deaths: [{ code: 0, againMs: null }] });
  });

  test("that does not heed a stop can be killed", async () => {
    const { child, pids, lines } = await childOf("process.on('SIGTERM', () => console.log('no')); setInterval(() => {}, 1000); console.log('up');");
    await until(() => lines.includes("up"));
    await child.stop(200);
    expect({ isRunning: child.isRunning, lines }).toEqual({ isRunning: true, lines: ["up", "no"] });
    expect(child.kill()).toBe(true);
    await until(() => !child.isRunning && !isAlive(pids[0] ?? 0));
  });

  test("sees its standard input end when the launcher is killed", async () => {
    const mark = join(folder, "closed");
    const orphan = join(folder, "orphan.mjs");
    await writeFile(
      orphan,
      `import { writeFileSync } from "node:fs"; process.stdin.resume().on("end", () => { writeFileSync(${JSON.stringify(mark)}, "yes"); process.exit(0); }); console.log("up");`,
    );
    const parent = join(folder, "parent.mjs");
    const built = pathToFileURL(join(ROOT, "dist", "gateway", "child.js")).href;
    const hear = "{ started() {}, died() {}, said(role, line) { console.log(line); } }";
    await writeFile(
      parent,
      `import { Child } from ${JSON.stringify(built)};
       new Child({ role: "hands", entry: ${JSON.stringify(orphan)}, env: {}, hear: ${hear} }).start();`,
    );
    await using launcher = startNode([parent]);
    await until(() => launcher.stdout.includes("up"));
    launcher.kill("SIGKILL");
    await until(async () => (await readFile(mark, "utf8").catch(() => "")) === "yes");
  });

  test("waits twice as long after each death, and never longer than ten seconds", () => {
    expect([0, 1, 2, 3, 100].map(backoffMs)).toEqual([200, 400, 800, 1600, BACKOFF_MAX_MS]);
  });
});

describe("the banner", () => {
  test("names every stand-in, and the setting that replaces it", () => {
    const said = standIns(readConfig({ MANYHANDS_HOST: "0.0.0.0" }), "virtual").join("\n");
    for (const word of ["no security boundary", "MANYHANDS_MODEL_KEY_FILE", "REDIS_URL", "without TLS"]) expect(said).toContain(word);
  });

  test("a model key's file that is not there yet is said so", () => {
    const config = readConfig({ MANYHANDS_MODEL_KEY_FILE: "/nowhere/model.key", REDIS_URL: "redis://127.0.0.1" });
    expect(standIns(config, "docker")).toEqual([expect.stringContaining("there is no file /nowhere/model.key")]);
  });

  test("with a key, on Redis, only the sandbox is one", () => {
    const config = readConfig({ ANTHROPIC_API_KEY: "canary", REDIS_URL: "redis://user:canary@127.0.0.1" });
    expect(standIns(config, "virtual")).toHaveLength(1);
    expect(standIns(config, "docker")).toHaveLength(0);
    expect(banner(config, { url: "http://127.0.0.1:1", apiKey: "mh_shown", roles: ["gateway"], sandbox: "docker" })).not.toContain("canary");
  });
});
