// Makes a fresh clone ready to run: packages, then built JavaScript. Plain JavaScript, because nothing is installed yet.
//
//   node gateway/setup.mjs build
//
// Prints what it does; does nothing that is done already.

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const ROOMS = ["session-store", "vault-proxy", "hands", "harnesses", "gateway", "test"];
const COPIED = /\.(lua|csv|html|c)$/;

const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) stop(`Node ${process.versions.node} is too old: Manyhands needs 20.19 or newer.`);

install();
build();

function install() {
  const lock = readFileSync(join(root, "package-lock.json"), "utf8");
  const stamp = join(root, "node_modules", ".manyhands-lock");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === lock) return;
  say("installing packages (npm ci) …");
  run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
  writeFileSync(stamp, lock);
}

function build() {
  const sources = ROOMS.flatMap((room) => walk(join(root, room)));
  const stamp = join(root, "dist", ".built");
  const newest = Math.max(...[...sources, join(root, "tsconfig.json")].map((file) => statSync(file).mtimeMs));
  const fingerprint = `${sources.length} ${newest}`;
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === fingerprint) return;
  say("building (tsc) …");
  rmSync(join(root, "dist"), { recursive: true, force: true });
  run(process.execPath, [join(root, "node_modules", "typescript", "bin", "tsc"), "--project", join(root, "tsconfig.json")]);
  for (const file of sources.filter((name) => COPIED.test(name))) {
    const target = join(root, "dist", file.slice(root.length));
    mkdirSync(dirname(target), { recursive: true });
    cpSync(file, target);
  }
  writeFileSync(stamp, fingerprint);
}

function walk(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
}

function run(command, args) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"], shell: process.platform === "win32" });
  if (status !== 0) stop(`${command} ${args.join(" ")} failed${error ? `: ${error.message}` : ""}`);
}

function say(text) {
  console.error(`manyhands: ${text}`);
}

function stop(text) {
  console.error(`manyhands: ${text}`);
  process.exit(1);
}
