// The image of a hand, made without a registry: files of this machine's own Debian packages, Node, and the libraries that they load.
//
//   J1  Only files of packages and of Node get in: nothing that was configured or put on this machine, and no program with rights of its own (setuid).

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, copyFile, lstat, mkdir, mkdtemp, open, readdir, readlink, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { promisify } from "node:util";
import { type Engine, statusOf, within } from "./engine.ts";
import { DOOR_FOLDER, RUNNER_FOLDER } from "./protocol.ts";

const REQUIRED = ["bash", "coreutils"];
/** Taken where this machine has them. */
const WANTED = [
  ...["dash", "sed", "grep", "mawk", "gawk", "findutils", "diffutils", "patch", "tar", "gzip", "bzip2", "xz-utils", "zip", "unzip"],
  ...["less", "file", "jq", "ripgrep", "curl", "wget", "git", "make", "openssl", "ca-certificates", "procps", "util-linux", "util-linux-extra"],
  ...[
    "hostname",
    "debianutils",
    "libc-bin",
    "netbase",
    "media-types",
    "tzdata",
    "ncurses-base",
    "perl-base",
    "python3",
    "python3-minimal",
    "sqlite3",
  ],
];
const PYTHON = /^(python3\.\d+(-minimal)?|libpython3(\.\d+)?-(stdlib|minimal))$/;
/** Said loudly when they are missing: agents expect them. */
const MISSED = ["git", "python3"];
const LEFT_OUT =
  /^\/usr\/share\/(doc|man|locale|info|lintian|bash-completion|doc-base|menu|bug|gitweb|pixmaps|applications)(\/|$)|^\/(etc|var|usr\/lib\/systemd|lib\/systemd)(\/|$)/;
/** Of packages' settings only these are needed. */
const KEPT = /^\/etc\/(protocols|services|rpc|mime\.types|ethertypes)$/;
const NO_PROGRAMS = /\.(pyc?|h|txt|json|p[lm]|sample)$|^\/usr\/share\//;
const LDD_AT_ONCE = 200;
const PACK_MS = 5 * 60_000;

const PASSWD =
  "root:x:0:0:root:/root:/usr/sbin/nologin\nuser:x:1000:1000:user:/workspace:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n";
const CHANGES = [
  "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  "ENV LANG=C.UTF-8",
  "WORKDIR /workspace",
  'CMD ["bash"]',
  "LABEL manyhands.image=1",
];

const run = promisify(execFile);

/** What this machine lacks for an image. */
export class ImageError extends Error {
  override readonly name = "ImageError";
}

export interface BuiltImage {
  readonly id: string;
  readonly files: number;
  /** Packages that agents expect and this machine doesn't have. */
  readonly missed: readonly string[];
}

/** Makes the image and gives it its name; one of that name before it loses it. */
export async function buildImage(engine: Engine, name: string): Promise<BuiltImage> {
  const installed = await installedPackages();
  const lacking = REQUIRED.filter((each) => !installed.has(each));
  if (lacking.length > 0) throw new ImageError(`the Debian packages ${lacking.join(", ")} are not installed`);
  const packages = [...installed].filter((each) => REQUIRED.includes(each) || WANTED.includes(each) || PYTHON.test(each));
  const scratch = await mkdtemp(join(tmpdir(), "manyhands-image-"));
  try {
    const extras = join(scratch, "root");
    const files = await packageFiles(packages);
    const node = await realpath(process.execPath);
    for (const library of await librariesOf([...files, node])) files.add(library);
    await writeExtras(extras, node, installed);
    const listed = withFolders(files);
    // No path twice: the engine refuses that.
    const own = (await readdir(extras, { recursive: true })).map((path) => `/${path}`).filter((path) => !listed.has(path));
    const trees = [await writeTree(scratch, "/", [...listed]), await writeTree(scratch, extras, own)];
    const before = await idOf(engine, name);
    const id = await within(PACK_MS, () => importTrees(engine, name, trees));
    // Its predecessor has no name any more; where a container still needs it, it stays.
    if (before !== null && before !== id) await engine.getImage(before).remove().catch(ignoreAnswered);
    return { id, files: files.size, missed: MISSED.filter((each) => !installed.has(each)) };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

async function idOf(engine: Engine, name: string): Promise<string | null> {
  try {
    return (await engine.getImage(name).inspect()).Id;
  } catch (error) {
    if (statusOf(error) === 404) return null;
    throw error;
  }
}

function ignoreAnswered(error: unknown): void {
  if (statusOf(error) === null) throw error;
}

async function installedPackages(): Promise<Set<string>> {
  try {
    const { stdout } = await run("dpkg-query", ["-W", "-f", `\${db:Status-Status} \${Package}\n`], { maxBuffer: 64 * 1024 * 1024 });
    return new Set(stdout.split("\n").flatMap((line) => (line.startsWith("installed ") ? [line.slice("installed ".length)] : [])));
  } catch {
    throw new ImageError(
      "it is made from Debian packages of this machine, and there is no dpkg here; hands/docker/Dockerfile makes one with a registry",
    );
  }
}

/** The packages' files by their real paths, links and folders as such. J1 */
async function packageFiles(packages: readonly string[]): Promise<Set<string>> {
  const { stdout } = await run("dpkg-query", ["-L", ...packages], { maxBuffer: 64 * 1024 * 1024 });
  const files = new Set<string>();
  const folders = new Map<string, string>();
  for (const line of new Set(stdout.split("\n"))) {
    if (!line.startsWith("/") || line === "/." || (LEFT_OUT.test(line) && !KEPT.test(line))) continue;
    const parent = dirname(line);
    const real = folders.get(parent) ?? (await realpath(parent).catch(() => parent));
    folders.set(parent, real);
    const path = join(real, line.slice(parent.length));
    const found = await lstat(path).catch(() => null);
    const isPlain = found !== null && (found.isFile() || found.isSymbolicLink()) && (found.mode & 0o6000) === 0;
    if (isPlain) files.add(path);
  }
  return files;
}

/** What the programs among these files load, with the links that lead there. */
async function librariesOf(files: readonly string[]): Promise<Set<string>> {
  const programs = await elfFiles(files);
  const libraries = new Set<string>();
  for (let from = 0; from < programs.length; from += LDD_AT_ONCE) {
    // It fails where one of them is no program; what it says of the others counts.
    const said = await run("ldd", programs.slice(from, from + LDD_AT_ONCE), { maxBuffer: 64 * 1024 * 1024 }).catch((error: unknown) => error);
    const stdout = typeof said === "object" && said !== null && "stdout" in said ? String(said.stdout) : "";
    for (const [, path] of stdout.matchAll(/(?:=> |^\s+)(\/\S+) \(0x/gm)) if (path !== undefined) libraries.add(path);
  }
  const all = new Set<string>();
  for (const library of libraries) for (const path of await linksTo(library)) all.add(path);
  return all;
}

/** Programs and libraries; of many names of one file, one. */
async function elfFiles(paths: readonly string[]): Promise<string[]> {
  const found = new Map<number, string>();
  const start = Buffer.alloc(4);
  for (const path of paths.filter((each) => !NO_PROGRAMS.test(each))) {
    const file = await open(path, "r").catch(() => null);
    if (file === null) continue;
    try {
      const about = await file.stat();
      if (!about.isFile() || about.size < start.length || found.has(about.ino)) continue;
      await file.read(start, 0, start.length, 0);
      if (start.toString("latin1") === "\x7fELF") found.set(about.ino, path);
    } finally {
      await file.close();
    }
  }
  return [...found.values()];
}

/** A path by its real folder, and what it leads to if it is a link. */
async function linksTo(path: string): Promise<string[]> {
  const found: string[] = [];
  for (let next = path; found.length < 10; ) {
    const here = join(await realpath(dirname(next)), next.slice(dirname(next).length));
    found.push(here);
    if (!(await lstat(here)).isSymbolicLink()) break;
    const target = await readlink(here);
    next = target.startsWith("/") ? target : join(dirname(here), target);
  }
  return found;
}

function withFolders(files: ReadonlySet<string>): Set<string> {
  const all = new Set<string>();
  for (const path of files) for (let folder = dirname(path); folder !== "/" && !all.has(folder); folder = dirname(folder)) all.add(folder);
  return new Set([...[...all].sort(), ...files]);
}

/** What no package has: accounts, mount points, and the links by which programs are called. */
async function writeExtras(root: string, node: string, installed: ReadonlySet<string>): Promise<void> {
  const folders = ["etc/ssl/certs", "usr/local/bin", "proc", "sys", "dev", "root", "var/tmp", "mnt/session", "workspace", DOOR_FOLDER, RUNNER_FOLDER];
  for (const folder of folders) await mkdir(join(root, folder), { recursive: true, mode: 0o755 });
  await mkdir(join(root, "tmp"), { mode: 0o777 });
  await chmod(join(root, "tmp"), 0o1777);
  await writeFile(join(root, "etc/passwd"), PASSWD);
  await writeFile(join(root, "etc/group"), GROUP);
  await writeFile(join(root, "etc/nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files dns\n");
  await copyFile(node, join(root, "usr/local/bin/node"));
  await chmod(join(root, "usr/local/bin/node"), 0o755);
  await copyFile("/etc/ssl/certs/ca-certificates.crt", join(root, "etc/ssl/certs/ca-certificates.crt")).catch(() => {});
  // Programs that are called by a name which a machine's administrator chooses.
  const awk = ["gawk", "mawk"].find((each) => installed.has(each));
  if (awk !== undefined) await symlink(`/usr/bin/${awk}`, join(root, "usr/local/bin/awk"));
  for (const name of ["bin", "sbin", "lib", "lib32", "lib64"]) {
    const target = await readlink(`/${name}`).catch(() => null);
    if (target === `usr/${name}`) await symlink(target, join(root, name));
  }
}

interface Tree {
  readonly root: string;
  /** A file with the paths below it, each ended by a NUL. */
  readonly list: string;
}

async function writeTree(scratch: string, root: string, paths: readonly string[]): Promise<Tree> {
  const list = join(scratch, `list-${basename(root) || "machine"}`);
  await writeFile(list, paths.map((path) => `${path.slice(1)}\0`).join(""));
  return { root, list };
}

/** One archive of all of them, owned by root. */
async function importTrees(engine: Engine, name: string, trees: readonly Tree[]): Promise<string> {
  const tar = spawn(
    "tar",
    [
      ...["--create", "--file=-", "--owner=0", "--group=0", "--numeric-owner", "--null", "--no-recursion"],
      ...trees.flatMap(({ root, list }) => ["-C", root, `--files-from=${list}`]),
    ],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  let complaint = "";
  tar.stderr.on("data", (chunk: Buffer) => (complaint = (complaint + chunk.toString()).slice(-2_000)));
  const ended = once(tar, "close");
  const [repo, tag = "latest"] = splitName(name);
  try {
    const stream = await engine.importImage(tar.stdout, { repo, tag, changes: CHANGES });
    await new Promise<void>((resolve, reject) => {
      engine.modem.followProgress(stream, (error: Error | null) => (error === null ? resolve() : reject(error)));
    });
    const [code] = await ended;
    if (code !== 0) throw new ImageError(`the files could not be packed: ${complaint.trim()}`);
  } finally {
    kill(tar);
  }
  return (await engine.getImage(name).inspect()).Id;
}

function kill(child: ChildProcess): void {
  if (child.exitCode === null) child.kill("SIGKILL");
}

/** `repo:tag`; a colon before a slash is a registry's port. */
function splitName(name: string): [string, string?] {
  const colon = name.lastIndexOf(":");
  return colon > name.lastIndexOf("/") ? [name.slice(0, colon), name.slice(colon + 1)] : [name];
}
