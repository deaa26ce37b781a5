// What a command in a container can't do: each try is a row of a table, and each must be refused.

import { spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createServer as createTcpServer } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { z } from "zod";
import type { Outcome } from "../../hands/hand.ts";
import type { Sandbox } from "../../hands/sandbox.ts";
import type { HandTool } from "../../hands/toolset.ts";
import { containerOf, ensureImage, IMAGE_MS, makeRig, type Rig } from "../support/docker.ts";
import { proves } from "../support/proves.ts";
import { ENGINE_SOCKET, needs } from "../support/real-part.ts";
import { type Control, filled, startControl, THROUGH, TRIES, type Try } from "./wall.ts";

const TRY_MS = 30_000;
const CANARY = "canary-4c7d1b90";
const python = (...lines: string[]) => `python3 - <<'EOF'\n${lines.join("\n")}\nEOF`;

needs("docker")("the wall around a container", () => {
  let rig: Rig;
  let folder: string;
  let otherFolder: string;
  let outside: string;
  let sandbox: Sandbox;
  let places: Parameters<typeof filled>[1];
  const listener = createTcpServer((socket) => socket.destroy());
  const hostProcess = spawn("sleep", ["3600"], { stdio: "ignore" });
  const controls = new Map<NonNullable<Try["without"]>, Promise<Control>>();
  const controlOf = (kind: NonNullable<Try["without"]>): Promise<Control> => {
    const control =
      controls.get(kind) ??
      startControl(
        kind,
        [outside, otherFolder, ENGINE_SOCKET].map((path) => `${path}:${path}`),
      );
    controls.set(kind, control);
    return control;
  };
  const ask = async (of: Sandbox, tool: HandTool, input: unknown): Promise<string> => textOf(await of.run({ id: `${Math.random()}`, tool, input }));
  const bash = (command: string): Promise<string> => ask(sandbox, "bash", { command, timeout_ms: TRY_MS });

  beforeAll(async () => {
    await ensureImage();
    rig = await makeRig({ limits: { memoryMb: 256, pids: 100, tmpMb: 32 } });
    outside = await mkdtemp(join(tmpdir(), "outside-"));
    await writeFile(join(outside, "secret"), CANARY, { mode: 0o644 });
    folder = await rig.folder();
    sandbox = rig.driver.open(folder, false, "session_one");
    otherFolder = await rig.folder();
    const other = rig.driver.open(otherFolder, false, "session_two");
    await ask(other, "write", { file_path: "mine", content: CANARY });
    await bash("true");
    await new Promise<void>((resolve) => listener.listen(0, resolve));
    const { port } = z.object({ port: z.number() }).parse(listener.address());
    places = {
      HOST_FILE: join(outside, "secret"),
      HOST_ADDRESS: addressOfHost(),
      HOST_PORT: String(port),
      HOST_PROCESS: String(hostProcess.pid),
      ENGINE_SOCKET,
      CANARY,
    };
  }, IMAGE_MS);
  afterAll(async () => {
    hostProcess.kill("SIGKILL");
    await rig.clean();
    await rm(outside, { recursive: true, force: true });
    await new Promise((resolve) => listener.close(resolve));
    // One that could not be made has removed itself.
    for (const made of await Promise.allSettled(controls.values())) if (made.status === "fulfilled") await made.value.remove();
  });

  proves(
    "hand:walled",
    "nothing that is tried against the wall succeeds, and without the wall all of it does",
    async () => {
      const rows: Row[] = [];
      for (const each of TRIES) {
        const command = filled(each.command, places);
        const says = await bash(command);
        const without = each.without === undefined ? null : await (await controlOf(each.without)).bash(command);
        rows.push({ what: each.what, says, isRefused: each.refused.test(says) && !says.includes(THROUGH), without });
      }
      process.stdout.write(`\n${rows.map(lineOf).join("\n")}\n`);
      expect(rows.filter(({ isRefused }) => !isRefused)).toEqual([]);
      expect(rows.filter(({ without }) => without !== null && !without.includes(THROUGH))).toEqual([]);
      expect(rows.some(({ says }) => says.includes(CANARY))).toBe(false);
      expect(rows).toHaveLength(TRIES.length);
    },
    IMAGE_MS,
  );

  it("is written down row by row", async () => {
    const document = await readFile(new URL("../../ARCHITECTURE.md", import.meta.url), "utf8");
    const rows = [...document.matchAll(/^\| (.+?) +\| (?:yes|–) +\|$/gm)].map(([, what]) => what);
    expect(rows).toEqual(TRIES.map(({ what }) => what));
    const proved = [...document.matchAll(/^\| .+? +\| (yes|–) +\|$/gm)].map(([, mark]) => mark === "yes");
    expect(proved).toEqual(TRIES.map(({ without }) => without !== undefined));
  });

  it("reads and writes files inside only, whatever links lead where", async () => {
    await symlink(join(outside, "secret"), join(folder, "workspace", "planted"));
    await symlink(outside, join(folder, "workspace", "planted-folder"));
    for (const file_path of ["planted", "planted-folder/secret", "/mnt/session/../../etc/passwd"])
      expect(await ask(sandbox, "read", { file_path })).not.toContain(CANARY);
    await ask(sandbox, "write", { file_path: "planted", content: "overwritten" });
    await ask(sandbox, "write", { file_path: "planted-folder/new", content: "written" });
    expect(await readFile(join(outside, "secret"), "utf8")).toBe(CANARY);
    expect(await readdir(outside)).toEqual(["secret"]);
    expect(await ask(sandbox, "grep", { pattern: CANARY, path: "/workspace" })).not.toContain("secret");
  });

  it("gives nothing of the host away when its folder is made ready again", async () => {
    await bash(
      "rm -rf /mnt/session/uploads; ln -s OUTSIDE /mnt/session/uploads; ln -s OUTSIDE/secret /workspace/.manyhands".replaceAll("OUTSIDE", outside),
    );
    await sandbox.stop("idle");
    expect(await bash("echo again; seq 1 40000 | tail -1")).toBe("shell restarted; files kept\nagain\n40000");
    await bash("seq 1 60000");
    expect(await readFile(join(outside, "secret"), "utf8")).toBe(CANARY);
    expect(await readdir(outside)).toEqual(["secret"]);
  });

  it("has one door: the socket that the host puts there, by a port of the container's own loopback", async () => {
    const get = python("import urllib.request", "print(urllib.request.urlopen('http://127.0.0.1:3128/path', timeout=5).read().decode())");
    expect(await bash(get)).toMatch(/(RemoteDisconnected|ConnectionResetError)/);
    const door = createServer((asked, answer) => answer.end(`the host got ${asked.method} ${asked.url}`));
    const socket = join(folder, "door", "door.sock");
    await new Promise<void>((resolve) => door.listen({ path: socket, writableAll: true, readableAll: true }, resolve));
    expect(await bash(get)).toBe("the host got GET /path");
    expect(await bash("rm -f /run/manyhands/door.sock")).toMatch(/(Read-only|denied)/);
    door.closeAllConnections();
    await new Promise((resolve) => door.close(resolve));
  });

  it("stands on the container: what its owner asked the engine for", async () => {
    const { HostConfig, Config } = await containerOf(folder).inspect();
    expect(Config.User).toBe("65534:65534");
    expect(HostConfig).toMatchObject({
      Init: true,
      NetworkMode: "none",
      ReadonlyRootfs: true,
      Privileged: false,
      CapDrop: ["ALL"],
      CapAdd: null,
      SecurityOpt: ["no-new-privileges"],
      Memory: 256 * 1024 * 1024,
      MemorySwap: 256 * 1024 * 1024,
      PidsLimit: 100,
      NanoCpus: 2e9,
      PidMode: "",
      IpcMode: "private",
    });
  });
});

interface Row {
  readonly what: string;
  readonly says: string;
  readonly isRefused: boolean;
  /** What it printed in a container without the wall. */
  readonly without: string | null;
}

function lineOf({ what, says, isRefused, without }: Row): string {
  const last =
    says
      .trim()
      .split("\n")
      .findLast((line) => !/^(exit code \d+)?$/.test(line)) ?? says;
  const open = without === null ? "–" : without.includes(THROUGH) ? "succeeds" : "FAILS";
  return `| ${what.padEnd(46)} | ${isRefused ? "refused" : "NOT REFUSED"} | ${open.padEnd(8)} | ${last.slice(0, 90)} |`;
}

/** An address by which a container could reach this machine if it had a network. */
function addressOfHost(): string {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return all.find(({ family, internal }) => family === "IPv4" && !internal)?.address ?? "127.0.0.1";
}

function textOf(outcome: Outcome): string {
  if (outcome.type !== "done") return `${outcome.type}: ${outcome.reason}`;
  return outcome.content.map((block) => (block.type === "text" ? block.text : `<${block.type}>`)).join("");
}
