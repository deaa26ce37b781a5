// Makes a fresh clone ready to run: packages, then built JavaScript. Plain JavaScript, because nothing is installed yet.
//
//   node gateway/setup.mjs build     packages and dist/
//   node gateway/setup.mjs prune     takes away what is for development alone; for images
//
//   B1  What is done already is not done again: packages that are those of package-lock.json, a build of the sources as they are.
//   B2  A build is made beside the old one and then takes its place: what runs from dist/ never sees half of one.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const ROOMS = ["session-store", "vault-proxy", "hands", "harnesses", "gateway", "test"];
const COPIED = /\.(lua|csv|html|css|c|mjs)$/;

const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) stop(`Node ${process.versions.node} is too old: Manyhands needs 20.19 or newer.`);
const [, , command] = process.argv;
if (command !== "build" && command !== "prune") stop("usage: node gateway/setup.mjs build | prune");

try {
  if (command === "build") {
    install();
    build();
  } else prune();
} catch (error) {
  stop(error.message);
}

/** B1: npm keeps a lock file of what it installed; packages that this system does not need are missing there. */
function install() {
  const wanted = packagesOf(join(root, "package-lock.json"));
  const there = packagesOf(join(root, "node_modules", ".package-lock.json"));
  const isMissing = ([path, { version, integrity, optional }]) =>
    there[path] ? there[path].version !== version || there[path].integrity !== integrity : !optional && path !== "";
  if (!Object.entries(wanted).some(isMissing)) return;
  say("installing packages (npm ci), a minute or more …");
  // The build needs TypeScript, whatever NODE_ENV says.
  run("npm", ["ci", "--include=dev", "--no-audit", "--no-fund", "--loglevel=error"]);
}

function packagesOf(file) {
  if (!existsSync(file)) return {};
  try {
    return JSON.parse(readFileSync(file, "utf8")).packages ?? {};
  } catch {
    // An installation that was cut off: it is made anew.
    return {};
  }
}

/** By the lock file, without asking anyone: npm's own prune wants the registry for packages that it takes away. */
function prune() {
  for (const [path, { dev }] of Object.entries(packagesOf(join(root, "package-lock.json"))))
    if (dev === true) rmSync(join(root, path), { recursive: true, force: true });
  rmSync(join(root, "node_modules", ".package-lock.json"), { force: true });
  rmSync(join(root, "dist", "test"), { recursive: true, force: true });
}

/** B1 B2 */
function build() {
  const sources = ROOMS.flatMap((room) => walk(join(root, room)));
  const dist = join(root, "dist");
  const fingerprint = fingerprintOf([...sources, join(root, "tsconfig.json"), join(root, "package-lock.json")]);
  const stamp = join(dist, ".built");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === fingerprint) return;
  say("building (tsc) …");
  const old = `${dist}.old-${process.pid}`;
  const fresh = `${dist}.new-${process.pid}`;
  try {
    const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
    run(process.execPath, [compiler, "--project", join(root, "tsconfig.json"), "--outDir", fresh]);
    for (const file of sources.filter((name) => COPIED.test(name))) {
      const target = join(fresh, relative(root, file));
      mkdirSync(dirname(target), { recursive: true });
      cpSync(file, target);
    }
    writeFileSync(join(fresh, ".built"), fingerprint);
    if (existsSync(dist)) renameSync(dist, old);
    renameSync(fresh, dist);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
    rmSync(old, { recursive: true, force: true });
  }
}

function fingerprintOf(files) {
  const hash = createHash("sha256").update(process.version);
  for (const file of files.sort()) {
    const { mtimeMs, size } = statSync(file);
    hash.update(`${relative(root, file)} ${size} ${mtimeMs}\n`);
  }
  return hash.digest("hex");
}

function walk(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

function run(command, args) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"], shell: process.platform === "win32" });
  if (status !== 0) throw new Error(`${command} ${args.join(" ")} failed${error ? `: ${error.message}` : ""}`);
}

function say(text) {
  console.error(`manyhands: ${text}`);
}

function stop(text) {
  say(text);
  process.exit(1);
}
