// A container's life: when it is made, what its death means, and that it always goes away.

import { readdir, rm } from "node:fs/promises";
import { basename } from "node:path";
import { afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { LABEL, nameOf } from "../../hands/docker/container.ts";
import type { Outcome } from "../../hands/hand.ts";
import type { Sandbox } from "../../hands/sandbox.ts";
import { containerOf, type EngineDoor, engine, ensureImage, IMAGE, IMAGE_MS, makeRig, openEngineDoor, type Rig } from "../support/docker.ts";
import { openEngineLine } from "../support/engine-line.ts";
import { needs } from "../support/real-part.ts";

const describeDocker = needs("docker");
let calls = 0;

function bash(sandbox: Sandbox, command: string, timeout_ms?: number): Promise<Outcome> {
  calls += 1;
  return sandbox.run({ id: `call_${calls}`, tool: "bash", input: { command, ...(timeout_ms ? { timeout_ms } : {}) } });
}
const isThere = async (folder: string, name: string) => (await readdir(`${folder}/workspace`).catch((): string[] => [])).includes(name);
const started = (folder: string) => expect.poll(() => isThere(folder, "started"), { timeout: 30_000 }).toBe(true);
const RESTARTED = "shell restarted; files kept\n";

describeDocker("a container's life", () => {
  let rig: Rig;
  let folder: string;
  let sandbox: Sandbox;

  beforeAll(ensureImage, IMAGE_MS);
  beforeEach(async () => {
    rig = await makeRig({ containersMax: 2 });
    folder = await rig.folder();
    sandbox = rig.driver.open(folder, false, "session_test");
  });
  afterEach(() => rig.clean());

  it("begins with the first call that needs it, once for many calls, and says whose it is", async () => {
    expect(await rig.containers()).toEqual([]);
    const reads = ["a", "b", "c", "d"].map((id) => sandbox.run({ id, tool: "read", input: { file_path: "none" } }));
    expect((await Promise.all(reads)).map(textOf)).toEqual(Array(4).fill("Error: /workspace/none does not exist."));
    expect(await rig.containers()).toHaveLength(1);
    const { Config, Name } = await containerOf(folder).inspect();
    expect(Name).toBe(`/${nameOf(basename(folder))}`);
    expect(Config.Labels).toMatchObject({ [LABEL.host]: rig.host, [LABEL.hand]: basename(folder), [LABEL.session]: "session_test" });
  });

  const deaths: readonly (readonly [string, (folder: string) => Promise<unknown>, RegExp])[] = [
    ["killed", (of) => containerOf(of).kill(), /^failed: the sandbox was lost while the tool ran: its container was ended \(exit code 137\)$/],
    [
      "stopped",
      (of) => containerOf(of).stop({ t: 1 }),
      /^failed: the sandbox was lost while the tool ran: its container was ended \(exit code 143\)$/,
    ],
    [
      "removed",
      (of) => containerOf(of).remove({ force: true }),
      /^failed: the sandbox was lost while the tool ran: its container was (removed|ended \(exit code 137\))$/,
    ],
    ["paused", (of) => containerOf(of).pause(), /^failed: the sandbox was lost while the tool ran: its container was paused$/],
  ];
  it.each(deaths)("%s while a tool runs: the call says so, the next one has a new container and the files", async (_, die, says) => {
    await bash(sandbox, "A=lost; echo kept > file");
    const before = (await containerOf(folder).inspect()).Id;
    const running = bash(sandbox, "touch started; sleep 300");
    await started(folder);
    await die(folder);
    expect(textOf(await running)).toMatch(says);
    expect(textOf(await bash(sandbox, "cat file; echo [$A]"))).toBe(`${RESTARTED}kept\n[]`);
    expect(textOf(await bash(sandbox, "echo on"))).toBe("on");
    expect((await containerOf(folder).inspect()).Id).not.toBe(before);
    expect(await rig.containers()).toHaveLength(1);
  });

  it("dies while nobody uses it: what is left of it goes at once, and not when it is needed", async () => {
    await bash(sandbox, "echo kept > file");
    await containerOf(folder).kill();
    await expect.poll(() => rig.containers(), { timeout: 10_000 }).toEqual([]);
    expect(sandbox.idleSince()).toBeNull();
    expect(textOf(await bash(sandbox, "cat file"))).toBe(`${RESTARTED}kept`);
  });

  it("is paused while nobody uses it: the next sweep removes it", async () => {
    await bash(sandbox, "echo kept > file");
    await containerOf(folder).pause();
    expect(await rig.driver.sweep?.(() => true, false)).toEqual([]);
    expect(await rig.containers()).toEqual([]);
    expect(textOf(await bash(sandbox, "cat file"))).toBe(`${RESTARTED}kept`);
  });

  it("goes on after a command that ended everything it could, the runner too", async () => {
    expect(textOf(await bash(sandbox, "kill -9 -1"))).toMatch(/^failed: the sandbox was lost while the tool ran: its runner ended/);
    expect(textOf(await bash(sandbox, "echo on"))).toBe(`${RESTARTED}on`);
  });

  it("believes nothing that a taken-over runner says: it loses its container", async () => {
    const forge = "printf '\\0\\0\\0\\2{}' > /proc/$PPID/fd/1; sleep 300";
    expect(textOf(await bash(sandbox, forge))).toMatch(
      /^failed: the sandbox was lost while the tool ran: its runner said something that can't be read$/,
    );
    expect(await rig.containers()).toEqual([]);
  });

  it("ends when it has been idle, and its files stay", async () => {
    expect(sandbox.idleSince()).toBeNull();
    await bash(sandbox, "echo kept > file");
    expect(sandbox.idleSince()).toBeGreaterThan(Date.now() - 10_000);
    await sandbox.stop("idle");
    expect(sandbox.idleSince()).toBeNull();
    expect(await rig.containers()).toEqual([]);
    expect(textOf(await bash(sandbox, "cat file"))).toBe(`${RESTARTED}kept`);
  });

  it("makes room for another by ending the one that has been idle for longest, and no more than may be", async () => {
    const others = [await rig.folder(), await rig.folder()].map((each) => ({ folder: each, sandbox: rig.driver.open(each, false) }));
    const [second, third] = others;
    if (second === undefined || third === undefined) throw new Error("no folders");
    await bash(sandbox, "true");
    await bash(second.sandbox, "true");
    expect(textOf(await bash(third.sandbox, "echo third"))).toBe("third");
    expect(await rig.containers(folder)).toEqual([]);
    const busy = [second, third].map((each) => bash(each.sandbox, "touch started; sleep 300"));
    await Promise.all([started(second.folder), started(third.folder)]);
    expect(textOf(await bash(sandbox, "true"))).toBe("failed: the sandbox could not be started: too many sandboxes are at work on this host");
    expect(await rig.containers()).toHaveLength(2);
    await Promise.all(others.map((each) => each.sandbox.stop("the test is over")));
    expect((await Promise.all(busy)).map(textOf)).toEqual(Array(2).fill("failed: the test is over"));
  });

  it("hears of a cancel while its container is on the way", async () => {
    const running = bash(sandbox, "touch ran");
    sandbox.cancel(`call_${calls}`, "it was cancelled while it ran");
    expect(textOf(await running)).toBe("failed: it was cancelled while it ran");
    expect(textOf(await bash(sandbox, "ls"))).toBe("(no output)");
  });

  it("frees its name of a leftover, and leaves a stranger's container alone", async () => {
    const leave = (labels: Record<string, string>) =>
      engine.createContainer({ Image: IMAGE, Cmd: ["true"], name: nameOf(basename(folder)), Labels: labels });
    const leftover = await leave({ [LABEL.host]: rig.host, [LABEL.hand]: basename(folder) });
    expect(textOf(await bash(sandbox, "echo hi"))).toBe("hi");
    await expect(leftover.inspect()).rejects.toMatchObject({ statusCode: 404 });
    await sandbox.stop("idle");
    const strange = await leave({});
    expect(textOf(await bash(sandbox, "echo hi"))).toMatch(
      /^failed: the sandbox could not be started: the container name \S+ is taken by somebody else$/,
    );
    await strange.remove({ force: true });
  });

  it("says which image is missing, and what makes it", async () => {
    const without = await makeRig({ image: "manyhands-no-such-image" });
    const outcome = await bash(without.driver.open(await without.folder(), false), "true");
    expect(textOf(outcome)).toBe(
      'failed: the sandbox could not be started: the image manyhands-no-such-image is not there; "manyhands image" makes it',
    );
    await without.clean();
  });

  it("finds at a host's start what an earlier one left: takes its hands' containers up, removes the rest", async () => {
    await bash(sandbox, "echo kept > file");
    const orphan = await rig.folder();
    await bash(rig.driver.open(orphan, false), "true");
    const isOwned = (hand: string) => hand === basename(folder);
    expect(await rig.driver.sweep?.(isOwned, true)).toEqual([basename(folder)]);
    expect((await rig.containers()).map(({ State }) => State)).toEqual(["running"]);
    const id = (await containerOf(folder).inspect()).Id;
    const adopted = rig.driver.open(folder, true);
    expect(adopted.idleSince()).not.toBeNull();
    expect(textOf(await bash(adopted, "cat file"))).toBe(`${RESTARTED}kept`);
    expect((await containerOf(folder).inspect()).Id).toBe(id);
    await adopted.stop("the test is over");
    expect(await rig.containers()).toEqual([]);
  });
});

describeDocker("an engine that is in trouble", () => {
  let door: EngineDoor;
  let rig: Rig;
  let folder: string;
  let sandbox: Sandbox;

  beforeAll(ensureImage, IMAGE_MS);
  beforeEach(async () => {
    door = await openEngineDoor();
    rig = await makeRig({ socketPath: door.socketPath });
    folder = await rig.folder();
    sandbox = rig.driver.open(folder, false);
  });
  afterEach(async () => {
    await rig.clean();
    await door.close();
  });

  it("answers a create with an error after the container exists: it is cleaned up, and the next call works", async () => {
    door.decide = (method, path) => (method === "POST" && path === "/containers/create" ? "fail-after" : "pass");
    expect(textOf(await bash(sandbox, "true"))).toBe("failed: the sandbox could not be started: the container engine says 500: the engine is busy");
    expect(await rig.containers()).toEqual([]);
    door.decide = () => "pass";
    expect(textOf(await bash(sandbox, "echo hi"))).toBe("hi");
    expect(door.seen.filter((each) => each === "POST /containers/create")).toHaveLength(2);
  });

  it("fails to start what it made: that goes away as well", async () => {
    door.decide = (method, path) => (method === "POST" && path.endsWith("/start") ? "refuse" : "pass");
    expect(textOf(await bash(sandbox, "true"))).toMatch(/^failed: the sandbox could not be started: the container engine says 500/);
    expect(await rig.containers()).toEqual([]);
  });

  it("cuts the line while a tool runs: the call fails, and the container is not left behind", async () => {
    const running = bash(sandbox, "touch started; sleep 300");
    await started(folder);
    door.decide = () => "refuse";
    await door.close();
    expect(textOf(await running)).toMatch(/^failed: the sandbox was lost while the tool ran: /);
    expect(sandbox.idleSince()).not.toBeNull();
    expect(textOf(await bash(sandbox, "true"))).toMatch(
      /^failed: the sandbox could not be started: the container engine can't be reached \(ENOENT\)$/,
    );
  });

  it("refuses to remove for a while: nothing is forgotten until it is done", async () => {
    await bash(sandbox, "true");
    door.decide = (method) => (method === "DELETE" ? "refuse" : "pass");
    await sandbox.stop("idle");
    expect(sandbox.idleSince()).not.toBeNull();
    expect(await rig.driver.remove?.(basename(folder))).toBe(false);
    expect(await rig.containers()).toHaveLength(1);
    door.decide = () => "pass";
    expect(await rig.driver.remove?.(basename(folder))).toBe(true);
    expect(await rig.containers()).toEqual([]);
  });

  it.each(["odd", "garbage"] as const)("answers with %s: that is what its calls come to, and no sweep breaks", async (state) => {
    const line = await openEngineLine();
    const behind = await makeRig({ socketPath: line.socketPath });
    const asked = behind.driver.open(await behind.folder(), false);
    line.set(state);
    expect(textOf(await bash(asked, "true"))).toMatch(
      /^failed: the sandbox could not be started: the container engine (said something that can't be read|can't be reached)/,
    );
    expect(await behind.driver.sweep?.(() => true, false)).toBeNull();
    line.set("good");
    expect(textOf(await bash(asked, "echo on"))).toBe("on");
    await behind.clean();
    await line.close();
  });

  it("is silent: a call ends all the same", async () => {
    await rm(door.socketPath, { force: true });
    expect(textOf(await bash(sandbox, "true"))).toMatch(/^failed: the sandbox could not be started: the container engine can't be reached/);
  });
});

function textOf(outcome: Outcome): string {
  if (outcome.type !== "done") return `${outcome.type}: ${outcome.reason}`;
  return outcome.content.map((block) => (block.type === "text" ? block.text : `<${block.type}>`)).join("");
}
