// A hand's folder, as its container needs it.
//
//   Q1  Only names that no container can see or change are followed here: what is inside the mounted folders may be a link to anywhere, so nothing in
//       them is opened, made or given away by the host while a container could be at work. What is needed in there, the runner makes.

import { createHash } from "node:crypto";
import { chmod, lchown, lstat, mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { codeOf } from "../tools/places.ts";
import type { User } from "./container.ts";

export interface HandFolders {
  readonly workspace: string;
  readonly session: string;
  readonly door: string;
}

/** Makes what is missing, and gives the mounted folders to the user that commands run as. Q1 */
export async function prepareFolders(folder: string, user: User): Promise<HandFolders> {
  const folders = { workspace: join(folder, "workspace"), session: join(folder, "session"), door: join(folder, "door") };
  await mkdir(folder, { recursive: true, mode: 0o700 });
  for (const path of Object.values(folders)) await mkdir(path, { recursive: true, mode: 0o755 });
  await chmod(folders.door, 0o755);
  if (process.getuid?.() !== 0) return folders;
  for (const path of [folders.workspace, folders.session]) {
    // A folder of somebody else's was never mounted into a container of ours: nothing is at work in it.
    if ((await lstat(path)).uid !== user.uid) await giveAway(path, user);
  }
  return folders;
}

/** Links themselves are given away, never what they lead to. The folder comes last, so that a cut-off run is begun anew. */
async function giveAway(folder: string, user: User): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) await giveAway(path, user);
    else await lchown(path, user.uid, user.gid);
  }
  await lchown(folder, user.uid, user.gid);
}

/** Commands run as the host's own user, so that their files are its own; where that is root, as an ordinary user. */
export function userOfCommands(): User {
  const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
  return uid === 0 ? { uid: 1_000, gid: 1_000 } : { uid, gid };
}

/** What the runner consists of, below the built `hands` folder. */
const RUNNER_PARTS = ["limits.js", "tools", "docker/frames.js", "docker/protocol.js", "docker/runner"];

/**
 * Copies the runner's program to where containers can have it mounted, named by what it says: a container keeps the one that it was started with.
 * Older ones are removed.
 */
export async function installRunner(built: URL, dataDir: string): Promise<string> {
  const files = (await Promise.all(RUNNER_PARTS.map((part) => readPart(fileURLToPath(built), part)))).flat();
  if (files.length < RUNNER_PARTS.length) throw new Error(`the runner is not built: look into ${fileURLToPath(built)}`);
  files.push({ name: "package.json", text: '{ "type": "module" }\n' });
  const hash = createHash("sha256").update(JSON.stringify(files)).digest("hex").slice(0, 16);
  const folder = join(dataDir, `runner-${hash}`);
  const fresh = join(dataDir, `runner-${hash}.new`);
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  for (const name of await readdir(dataDir)) {
    if (name.startsWith("runner-") && name !== `runner-${hash}`) await rm(join(dataDir, name), { recursive: true, force: true });
  }
  for (const { name, text } of files) {
    await mkdir(join(fresh, name, ".."), { recursive: true });
    await writeFile(join(fresh, name), text);
    await chmod(join(fresh, name), 0o644);
  }
  for (const name of ["", "tools", "docker", "docker/runner"]) await chmod(join(fresh, name), 0o755);
  try {
    await rename(fresh, folder);
  } catch (error) {
    // It is there already.
    if (!["ENOTEMPTY", "EEXIST"].includes(codeOf(error))) throw error;
    await rm(fresh, { recursive: true, force: true });
  }
  return folder;
}

interface RunnerFile {
  readonly name: string;
  readonly text: string;
}

async function readPart(root: string, part: string): Promise<RunnerFile[]> {
  const names = part.endsWith(".js") ? [part] : (await readdir(join(root, part))).map((name) => `${part}/${name}`);
  const code = names.filter((name) => name.endsWith(".js")).sort();
  return Promise.all(
    code.map(async (name) => ({ name, text: (await readFile(join(root, name), "utf8")).replace(/^\/\/# sourceMappingURL=.*$/m, "") })),
  );
}
