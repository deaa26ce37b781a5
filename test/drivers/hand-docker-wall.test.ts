// What a command in a container can't do: each try is a row of a table, and each must be refused.

import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Outcome } from "../../hands/hand.ts";
import type { Sandbox } from "../../hands/sandbox.ts";
import type { HandTool } from "../../hands/toolset.ts";
import { containerOf, ensureImage, IMAGE_MS, makeRig, type Rig } from "../support/docker.ts";
import { proves } from "../support/proves.ts";
import { ENGINE_SOCKET, needs } from "../support/real-part.ts";

const TRY_MS = 30_000;
const CANARY = "canary-4c7d1b90";
const python = (...lines: string[]) => `python3 - <<'EOF'\n${lines.join("\n")}\nEOF`;
const libc = (call: string) =>
  python("import ctypes, os", "c = ctypes.CDLL(None, use_errno=True)", `print(${call}, os.strerror(ctypes.get_errno()))`);

/** What is tried, how, and what it must come to. */
const TRIES: readonly (readonly [what: string, command: string, refused: RegExp])[] = [
  ["a host on the network", "exec 3<>/dev/tcp/1.1.1.1/80", /Network is unreachable/],
  ["the metadata address", "exec 3<>/dev/tcp/169.254.169.254/80", /Network is unreachable/],
  ["the host by the usual bridge address", "exec 3<>/dev/tcp/172.17.0.1/22", /Network is unreachable/],
  ["a name of the network", python("import socket", "socket.getaddrinfo('example.com', 80)"), /socket.gaierror/],
  ["network devices", "ls /sys/class/net", /^lo$/],
  ["the engine's socket", `ls ${ENGINE_SOCKET} /run/docker.sock`, /^(ls: cannot access '\S+': No such file or directory\n){2}exit code 2$/],
  ["a file of the host", "cat HOST_FILE", /No such file or directory/],
  ["a link to a file of the host", "ln -sf HOST_FILE link; cat link", /No such file or directory/],
  [
    "another session's files",
    `grep -rl ${CANARY} / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev 2>/dev/null | grep -v -e '^HOST_FILE' || echo nothing`,
    /^nothing$/,
  ],
  ["another session's processes", "ps -e -o comm= | sort -u | tr '\\n' ' '", /^(bash|docker-init|node|ps|sleep|sort|tr| )+$/],
  ["writing to the root", "touch /etc/x /usr/bin/x /root/x /opt/manyhands/x /run/manyhands/x", /(Read-only file system|Permission denied)/],
  ["changing the runner", "echo x >> /opt/manyhands/docker/runner/main.js", /(Read-only file system|Permission denied)/],
  ["more memory", "python3 -c 'bytearray(1024 ** 3)'", /memory was used up[\s\S]*exit code 137/],
  ["more of /tmp", "head -c 200M /dev/zero > /tmp/big; rm -f /tmp/big", /No space left on device/],
  [
    "more processes",
    python("import os, time", "for i in range(300):", "    if os.fork() == 0: time.sleep(60)"),
    /BlockingIOError|InterruptedError|OSError/,
  ],
  ["a mount", libc("c.mount(b'none', b'/workspace', b'tmpfs', 0, None)"), /^-1 Operation not permitted$/],
  ["a namespace of its own", "unshare --user --map-root-user id", /Operation not permitted/],
  ["a raw socket", python("import socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"), /PermissionError/],
  ["a packet socket", python("import socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)"), /PermissionError/],
  ["ptrace of the container's first process", libc("c.ptrace(16, 1, 0, 0)"), /^-1 Operation not permitted$/],
  ["ending the container's first processes", "kill -9 1; kill -9 $(pgrep -x sleep)", /Operation not permitted[\s\S]*Operation not permitted/],
  ["becoming root", "id -u; su root -c id 2>&1; sudo id 2>&1", /^1000\n.*not found\n.*not found\nexit code 127$/],
  ["giving a file to root", "touch mine; chown 0 mine", /Operation not permitted/],
  ["a program that runs as root", "find / -xdev -perm /6000 -type f 2>/dev/null | head -3; echo end", /^end$/],
  ["a device", "mknod /tmp/disk b 8 0; cat /dev/mem /dev/kmsg", /Operation not permitted[\s\S]*(No such file|denied|not permitted)/],
  ["the kernel's settings", "echo 1 > /proc/sys/kernel/panic; echo b > /proc/sysrq-trigger", /(Read-only file system|Permission denied)/],
  [
    "its own limits",
    "echo -1 > /sys/fs/cgroup/memory/memory.limit_in_bytes; echo max > /sys/fs/cgroup/memory.max",
    /(Read-only|denied|No such file)/,
  ],
  [
    "capabilities",
    "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t\\n' ' '",
    /^CapBnd: 0+ CapEff: 0+ |^CapEff: 0+ CapBnd: 0+ NoNewPrivs: 1 Seccomp: 2 $/,
  ],
  ["the host's environment", "env | cut -d= -f1 | sort | tr '\\n' ' '", /^((HOME|LANG|OLDPWD|PATH|PWD|SHLVL|TMPDIR|USER|_) )+$/],
];

needs("docker")("the wall around a container", () => {
  let rig: Rig;
  let folder: string;
  let outside: string;
  let sandbox: Sandbox;
  let other: Sandbox;
  const ask = async (of: Sandbox, tool: HandTool, input: unknown): Promise<string> => textOf(await of.run({ id: `${Math.random()}`, tool, input }));
  const bash = (command: string): Promise<string> => ask(sandbox, "bash", { command, timeout_ms: TRY_MS });

  beforeAll(async () => {
    await ensureImage();
    rig = await makeRig({ limits: { memoryMb: 256, pids: 100, tmpMb: 32 } });
    outside = await mkdtemp(join(tmpdir(), "outside-"));
    await writeFile(join(outside, "secret"), CANARY, { mode: 0o644 });
    folder = await rig.folder();
    sandbox = rig.driver.open(folder, false, "session_one");
    other = rig.driver.open(await rig.folder(), false, "session_two");
    await ask(other, "write", { file_path: "mine", content: CANARY });
    await bash("true");
  }, IMAGE_MS);
  afterAll(async () => {
    await rig.clean();
    await rm(outside, { recursive: true, force: true });
  });

  proves(
    "hand:walled",
    "nothing that is tried against the wall succeeds",
    async () => {
      const rows: { what: string; isRefused: boolean; says: string }[] = [];
      for (const [what, command, refused] of TRIES) {
        const says = await bash(command.replaceAll("HOST_FILE", join(outside, "secret")));
        rows.push({ what, isRefused: refused.test(says), says });
      }
      const line = ({ what, isRefused, says }: (typeof rows)[number]) =>
        `${isRefused ? "refused" : "NOT REFUSED"} | ${what.padEnd(42)} | ${says.replaceAll("\n", " ⏎ ").slice(0, 110)}`;
      process.stdout.write(`\n${rows.map(line).join("\n")}\n`);
      expect(rows.filter(({ isRefused }) => !isRefused)).toEqual([]);
      expect(rows).toHaveLength(TRIES.length);
      expect(rows.some(({ says }) => says.includes(CANARY))).toBe(false);
    },
    IMAGE_MS,
  );

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

function textOf(outcome: Outcome): string {
  if (outcome.type !== "done") return `${outcome.type}: ${outcome.reason}`;
  return outcome.content.map((block) => (block.type === "text" ? block.text : `<${block.type}>`)).join("");
}
