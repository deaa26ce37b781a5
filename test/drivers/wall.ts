// What a command in a container tries against the wall, and a container without the wall, in which the same tries succeed: so a try that is refused
// was refused by the wall, and not because it could never have worked.

import type Docker from "dockerode";
import { Demux } from "../../hands/docker/demux.ts";
import { engine, IMAGE } from "../support/docker.ts";

/** What a try prints when it got through. */
export const THROUGH = "GOT-THROUGH";
const TRY_MS = 30_000;

/** Names in a command that stand for what only a run knows. */
export type Place = "HOST_FILE" | "HOST_ADDRESS" | "HOST_PORT" | "HOST_PROCESS" | "ENGINE_SOCKET" | "CANARY";

export interface Try {
  readonly what: string;
  readonly command: string;
  /** What the wall answers. */
  readonly refused: RegExp;
  /** The container in which it gets through; absent: there is none that this machine should be asked for. */
  readonly without?: keyof typeof CONTROLS;
}

const python = (...lines: string[]) => `python3 - <<'EOF'\n${lines.join("\n")}\nprint("${THROUGH}")\nEOF`;
const connect = (address: string) => `exec 3<>/dev/tcp/${address} && echo ${THROUGH}`;
const call = (libc: string, ...before: string[]) =>
  python(
    "import ctypes, os",
    "c = ctypes.CDLL(None, use_errno=True)",
    ...before,
    `if ${libc} != 0: raise SystemExit(f"refused: {os.strerror(ctypes.get_errno())}")`,
  );
const SEIZE = 0x4206;
const OWN_NAMES = "HOME|LANG|OLDPWD|PATH|PWD|SHLVL|TMPDIR|USER|_";

export const TRIES: readonly Try[] = [
  { what: "a host on the network", command: connect("HOST_ADDRESS/HOST_PORT"), refused: /Network is unreachable/, without: "open" },
  { what: "the metadata address 169.254.169.254", command: connect("169.254.169.254/80"), refused: /Network is unreachable/, without: "address" },
  { what: "a network device", command: `ls /sys/class/net | grep -v '^lo$' && echo ${THROUGH}`, refused: /^exit code 1$/, without: "open" },
  {
    what: "a name of the network",
    command: python("import socket", "socket.getaddrinfo('example.com', 80)"),
    refused: /socket.gaierror/,
  },
  {
    what: "the engine's socket",
    command: python("import socket", "socket.socket(socket.AF_UNIX).connect('ENGINE_SOCKET')"),
    refused: /FileNotFoundError/,
    without: "open",
  },
  { what: "a file of the host", command: `cat HOST_FILE && echo ${THROUGH}`, refused: /No such file or directory/, without: "open" },
  {
    what: "a link to a file of the host",
    command: `ln -sf HOST_FILE link; cat link && echo ${THROUGH}`,
    refused: /No such file or directory/,
    without: "open",
  },
  {
    what: "another session's files",
    command: `grep -rqs CANARY / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev && echo ${THROUGH}`,
    refused: /^exit code [12]$/,
    without: "open",
  },
  {
    what: "a process of the host or of another session",
    command: `kill -0 HOST_PROCESS && echo ${THROUGH}`,
    refused: /No such process/,
    without: "host-processes",
  },
  {
    what: "more memory",
    command: `python3 -c 'bytearray(1024 ** 3)' && echo ${THROUGH}`,
    refused: /memory was used up[\s\S]*exit code 137/,
    without: "open",
  },
  {
    what: "more of /tmp",
    command: `head -c 100M /dev/zero > /tmp/big && echo ${THROUGH}; rm -f /tmp/big`,
    refused: /No space left on device/,
    without: "open",
  },
  {
    what: "more processes",
    command: python("import os, time", "for i in range(300):", "    if os.fork() == 0: time.sleep(20); os._exit(0)"),
    refused: /BlockingIOError/,
    without: "open",
  },
  {
    what: "its own limits",
    command: `(echo -1 > /sys/fs/cgroup/memory/memory.limit_in_bytes || echo max > /sys/fs/cgroup/memory.max) && echo ${THROUGH}`,
    refused: /(Read-only file system|Permission denied)/,
    without: "open",
  },
  { what: "a mount", command: call("c.mount(b'none', b'/mnt', b'tmpfs', 0, None)"), refused: /^refused: Operation not permitted/, without: "open" },
  {
    what: "namespaces of its own",
    command: `unshare --user --map-root-user true && echo ${THROUGH}`,
    refused: /Operation not permitted/,
    without: "open",
  },
  {
    what: "a raw socket",
    command: python("import socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)"),
    refused: /PermissionError/,
    without: "open",
  },
  {
    what: "a packet socket",
    command: python("import socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)"),
    refused: /PermissionError/,
    without: "open",
  },
  {
    what: "ptrace of the container's first process",
    command: call(`c.ptrace(${SEIZE}, 1, 0, 0)`),
    refused: /^refused: Operation not permitted/,
    without: "open",
  },
  {
    what: "ptrace of a process that is not its own child",
    command: call(`c.ptrace(${SEIZE}, int(os.popen("pgrep -xo sleep").read()), 0, 0)`),
    refused: /^refused: Operation not permitted/,
    without: "open",
  },
  {
    what: "ptrace of a process of the host",
    command: call(`c.ptrace(${SEIZE}, HOST_PROCESS, 0, 0)`),
    refused: /^refused: No such process/,
    without: "host-processes",
  },
  {
    what: "a signal to what keeps the container up",
    command: `kill -CONT 1 && kill -CONT $(pgrep -xo sleep) && echo ${THROUGH}`,
    refused: /Operation not permitted/,
    without: "open",
  },
  {
    what: "writing outside the workspace",
    command: `for place in / /etc /usr/bin /root /var /opt/manyhands /run/manyhands; do touch $place/.x && echo ${THROUGH}; done`,
    refused: /^(touch: .*(Read-only file system|Permission denied)\n){7}exit code 1$/,
    without: "open",
  },
  {
    what: "changing the runner",
    command: `echo x >> /opt/manyhands/docker/runner/main.js && echo ${THROUGH}`,
    refused: /(Read-only file system|Permission denied)/,
  },
  { what: "becoming root", command: python("import os", "os.setuid(0)"), refused: /PermissionError/, without: "open" },
  { what: "giving a file to root", command: `touch mine; chown 0 mine && echo ${THROUGH}`, refused: /Operation not permitted/, without: "open" },
  {
    what: "a program that runs as root",
    command: `find / -xdev -perm /6000 -type f 2>/dev/null | grep . && echo ${THROUGH}`,
    refused: /^exit code 1$/,
  },
  { what: "a device", command: `mknod /tmp/disk b 8 0 && echo ${THROUGH}`, refused: /Operation not permitted/, without: "open" },
  {
    // The value that is there: even where the wall is down nothing changes.
    what: "the kernel's settings",
    command: `value=$(cat /proc/sys/vm/swappiness); echo $value > /proc/sys/vm/swappiness && echo ${THROUGH}`,
    refused: /(Read-only file system|Permission denied)/,
    without: "open",
  },
  {
    what: "capabilities and system calls",
    command: `grep -E '^(CapEff|CapBnd|CapInh|CapAmb):.*[1-9a-f]|^(NoNewPrivs|Seccomp):.*0$' /proc/self/status && echo ${THROUGH}`,
    refused: /^exit code 1$/,
    without: "open",
  },
  {
    what: "the host's environment",
    command: `env | cut -d= -f1 | grep -vxE '${OWN_NAMES}' && echo ${THROUGH}`,
    refused: /^exit code 1$/,
    without: "open",
  },
];

/** Every name that is replaced stands in capitals, so it can't be a part of anything else in a command. */
export function filled(command: string, places: Readonly<Record<Place, string>>): string {
  return Object.entries(places).reduce((text, [name, value]) => text.replaceAll(name, value), command);
}

const NO_WALL = {
  CapAdd: ["SYS_ADMIN", "SYS_PTRACE", "NET_ADMIN", "NET_RAW", "MKNOD"],
  SecurityOpt: ["seccomp=unconfined", "apparmor=unconfined"],
  MaskedPaths: [],
  ReadonlyPaths: [],
} satisfies Docker.HostConfig;

/** Containers without the wall: each with what is taken away for one kind of try, and what is to be done in it first. */
export const CONTROLS = {
  open: {
    host: { ...NO_WALL, NetworkMode: "host" },
    first: call(
      `c.mount(b'none', group, None, REMOUNT, None)`,
      "group = b'/sys/fs/cgroup/memory' if os.path.exists('/sys/fs/cgroup/memory') else b'/sys/fs/cgroup'",
      "REMOUNT = 32 | 4096 | 2 | 4 | 8",
    ),
  },
  "host-processes": { host: { ...NO_WALL, NetworkMode: "none", PidMode: "host" }, first: "true" },
  // The address answers on the container's own loopback: the machine's network is left as it is.
  address: {
    host: { ...NO_WALL, NetworkMode: "none" },
    first: [
      "(exec python3 - <<'EOF'",
      "import fcntl, socket, struct",
      "server = socket.socket()",
      "server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)",
      "address = struct.pack('HH4s8x', socket.AF_INET, 0, socket.inet_aton('169.254.169.254'))",
      "fcntl.ioctl(server, 0x8916, struct.pack('16s16s', b'lo:1', address))",
      "server.bind(('169.254.169.254', 80)); server.listen()",
      "while True: server.accept()",
      "EOF",
      ") >/dev/null 2>&1 & for i in $(seq 100); do (exec 3<>/dev/tcp/169.254.169.254/80) 2>/dev/null && break; sleep 0.1; done",
    ].join("\n"),
  },
} as const;

export interface Control {
  /** What a try prints there. */
  bash(command: string): Promise<string>;
  remove(): Promise<void>;
}

export async function startControl(kind: keyof typeof CONTROLS, binds: readonly string[]): Promise<Control> {
  const { host, first } = CONTROLS[kind];
  const container = await engine.createContainer({
    Image: IMAGE,
    Entrypoint: [],
    Cmd: ["sleep", "infinity"],
    Env: ["SOMETHING_OF_THE_HOST=1"],
    HostConfig: {
      ...host,
      CapAdd: [...host.CapAdd],
      SecurityOpt: [...host.SecurityOpt],
      MaskedPaths: [],
      ReadonlyPaths: [],
      Init: true,
      Binds: [...binds],
    },
  });
  await container.start();
  const control: Control = { bash: (command) => printed(container, command), remove: async () => container.remove({ force: true, v: true }) };
  const said = await control.bash(`${first}\necho ready`);
  if (said.trim().split("\n").at(-1) === "ready") return control;
  await control.remove();
  throw new Error(`a container without a wall could not be made: ${said}`);
}

async function printed(container: Docker.Container, command: string): Promise<string> {
  const exec = await container.exec({ Cmd: ["bash", "-c", command], WorkingDir: "/tmp", AttachStdout: true, AttachStderr: true });
  const stream = await exec.start({});
  return new Promise((resolve, reject) => {
    let text = "";
    const add = (chunk: Buffer) => {
      text += chunk.toString();
    };
    const demux = new Demux(add, add);
    const timer = setTimeout(() => reject(new Error(`a try without a wall took more than ${TRY_MS} ms: ${text}`)), TRY_MS);
    stream.on("data", (chunk: Buffer) => demux.push(chunk));
    stream.on("error", reject);
    stream.on("end", () => {
      clearTimeout(timer);
      resolve(text);
    });
  });
}
