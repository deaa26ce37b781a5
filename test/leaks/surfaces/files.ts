// Files: walked whole, whoever writes to them meanwhile.

import { execFile } from "node:child_process";
import { lstat, readdir, readFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { promisify } from "node:util";
import type { Piece } from "../search.ts";

const FILE_BYTES_MAX = 256 * 1024 * 1024;
/** Of files that somebody else may have written, larger ones are left. */
const OTHERS_BYTES_MAX = 8 * 1024 * 1024;

interface Walk {
  readonly name: string;
  readonly folder: string;
  readonly isLeftOut?: (path: string) => boolean;
}

export async function* filesIn({ name, folder, isLeftOut = () => false }: Walk): AsyncGenerator<Piece> {
  const folders = [folder];
  for (const each of folders) {
    // What goes away meanwhile holds nothing any more.
    for (const entry of await readdir(each, { withFileTypes: true }).catch(() => [])) {
      const path = join(each, entry.name);
      if (isLeftOut(path)) continue;
      if (entry.isDirectory()) folders.push(path);
      if (!entry.isFile()) continue;
      const { size } = await lstat(path).catch(() => ({ size: 0 }));
      if (size > FILE_BYTES_MAX) throw new Error(`${name}: ${relative(folder, path)} is too large to look at`);
      const bytes = await readFile(path).catch(() => null);
      if (bytes !== null) yield { place: `${name}: ${relative(folder, path)}`, bytes };
      yield { place: `${name}: a name`, bytes: Buffer.from(path) };
    }
  }
}

/** Files of any depth that were changed since; but for one folder. Folders of machines that do much else are large: `find` is faster. */
export async function* changedIn(folder: string, since: number, butFor: string): AsyncGenerator<Piece> {
  const args = [folder, "-xdev", "-path", butFor, "-prune", "-o", "-type", "f", "-newerct", `@${Math.floor(since / 1_000)}`, "-print0"];
  // It says so by its exit code when a file went away meanwhile.
  const said = await promisify(execFile)("find", args, { maxBuffer: FILE_BYTES_MAX }).catch((error: { readonly stdout?: string }) => error);
  for (const path of said.stdout?.split("\0") ?? []) {
    if (path === "") continue;
    const { size } = await lstat(path).catch(() => ({ size: 0 }));
    const bytes = size > OTHERS_BYTES_MAX ? null : await readFile(path).catch(() => null);
    if (bytes !== null) yield { place: `a file in ${folder}`, bytes, isPlain: true };
  }
}
