// The launcher as an operator sees it: real programs, started, killed and stopped.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { freePort } from "../support/free-port.ts";
import { isAlive, type Program, startProgram } from "../support/process.ts";
import { proves } from "../support/proves.ts";
import { until } from "../support/until.ts";

const MODEL_KEY = "sk-ant-canary-model-key";
const API_KEY = "mh_canary-api-key-0123456789";
const STOP_MS = 5_000;

let folder: string;
let programs: Program[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-e2e-"));
  programs = [];
});
afterEach(async () => {
  for (const program of programs) await program[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

function start(env: Record<string, string> = {}, command = "start"): Program {
  const settings = { MANYHANDS_PORT: "0", MANYHANDS_DATA_DIR: join(folder, "data"), ...env };
  const program = startProgram("gateway/cli", { args: [command], env: settings });
  programs.push(program);
  return program;
}

async function ready(program: Program): Promise<string> {
  return String((await program.logged("launcher.ready")).url);
}

const pidOf = (program: Program, role: string) => Number(program.linesOf("child.started", { child: role }).at(-1)?.pid);
const statusOf = (url: string) =>
  fetch(url, { signal: AbortSignal.timeout(3_000) }).then(
    (answer) => answer.status,
    () => 0,
  );

describe("npm start", () => {
  proves("start:comes-up", "everything comes up, says what stands in for what, and stops with 0 within five seconds", async () => {
    const program = start();
    const url = await ready(program);
    expect(await statusOf(`${url}/healthz`)).toBe(200);
    const said = program.linesOf("standin.used").map((line) => String(line.what));
    for (const word of ["no security boundary", "MANYHANDS_MODEL_KEY_FILE"]) expect(said.join("\n")).toContain(word);
    const pids = ["vault-proxy", "hands", "gateway"].map((role) => pidOf(program, role));
    program.kill("SIGTERM");
    expect(await program.exit(STOP_MS)).toEqual({ code: 0, signal: null });
    expect(pids.filter(isAlive)).toEqual([]);
    expect(program.linesOf("child.killed")).toEqual([]);
  });

  for (const role of ["vault-proxy", "hands", "gateway"]) {
    proves("start:restarts", `a ${role} that is killed is started again, at the same place`, async () => {
      const program = start();
      const url = await ready(program);
      const place = await program.listening(role);
      const pid = pidOf(program, role);
      process.kill(pid, "SIGKILL");
      const again = await program.logged("process.listening", { fields: { role }, after: 1 });
      expect(again.url).toBe(place);
      expect(pidOf(program, role)).not.toBe(pid);
      await until(async () => (await statusOf(`${url}/readyz`)) === 200);
    });
  }

  test("a Ctrl-C that arrives twice, as npm hands it on, still stops everything in order", async () => {
    const program = start();
    await ready(program);
    program.kill("SIGINT");
    program.kill("SIGINT");
    expect((await program.exit()).code).toBe(0);
    const said = (msg: string) => program.lines.filter((line) => line.msg === msg).map(({ role }) => role);
    expect(said("process.stopped")).toContain("gateway");
    expect(said("child.killed")).toEqual([]);
  });

  proves("start:no-orphans", "when the launcher is killed outright, its children exit", async () => {
    const program = start();
    await ready(program);
    const pids = ["vault-proxy", "hands", "gateway"].map((role) => pidOf(program, role));
    expect(pids.filter(isAlive)).toEqual(pids);
    program.kill("SIGKILL");
    await until(() => pids.filter(isAlive).length === 0);
  });

  proves("key:only-in-vault-proxy", "no other program has the model's key in its environment, and no log line shows a key", async () => {
    const program = start({ ANTHROPIC_API_KEY: MODEL_KEY, MANYHANDS_API_KEY: API_KEY });
    await ready(program);
    const environments = await Promise.all(["hands", "gateway"].map((role) => readFile(`/proc/${pidOf(program, role)}/environ`, "utf8")));
    for (const environment of environments) {
      expect(environment).toContain("MANYHANDS_KEYS_DIR");
      expect(environment).not.toContain("canary-model");
    }
    expect(JSON.stringify(program.lines) + program.stdout + program.stderr).not.toContain("canary");
  });

  proves("setting:unknown-stops", "a misspelt setting stops the start with one line and exit code 2", async () => {
    const program = start({ MANYHANDS_PROT: "1" });
    expect((await program.exit()).code).toBe(2);
    expect(program.stderr).toBe("manyhands: MANYHANDS_PROT is not a setting of Manyhands. Did you mean MANYHANDS_PORT?\n");
  });

  proves("key:other-installation", "a node with other keys than its store's refuses to start", async () => {
    const first = start();
    await ready(first);
    first.kill("SIGTERM");
    await first.exit();
    const second = start({ MANYHANDS_KEYS_DIR: join(folder, "other-keys") });
    expect((await second.exit(30_000)).code).toBe(2);
    expect(second.stderr).toContain("MANYHANDS_KEYS_DIR");
  });
});

describe("the command", () => {
  test("tells an unknown command how it is used", async () => {
    const program = start({}, "strat");
    expect((await program.exit()).code).toBe(2);
    expect(program.stderr).toContain("usage: manyhands <command>");
  });

  test("status says whether a gateway is there", async () => {
    const port = String(await freePort());
    const before = start({ MANYHANDS_PORT: port }, "status");
    expect((await before.exit()).code).toBe(1);
    await ready(start({ MANYHANDS_PORT: port }));
    const after = start({ MANYHANDS_PORT: port }, "status");
    expect((await after.exit()).code).toBe(0);
    expect(after.stdout).toBe(`http://127.0.0.1:${port}\n  alive  yes\n  ready  yes\n`);
  });
});
