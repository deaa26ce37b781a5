// Files that are there whole or not at all, and stay there: a draft beside the target, synced, put in its place, and the folder synced.
//
//   F1  A reader meets the old file or the new one; a crash leaves at most a draft behind, which the next start removes.
//   F2  What has resolved is on the disk, the folder's entry included.

import { randomBytes } from "node:crypto";
import { type FileHandle, link, mkdir, open, readdir, rename, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";

const DRAFT = /^\..+\.draft$/;

/** Writes a file in the place of the one that may be there. F1 F2 */
export async function replaceFile(path: string, text: string): Promise<void> {
  const draft = await writeDraft(path, text);
  try {
    await rename(draft, path);
  } catch (error) {
    await unlink(draft);
    throw error;
  }
  await syncFolder(dirname(path));
}

/** Writes a file where there is none; one that is there stays. F1 F2 */
export async function createFile(path: string, text: string): Promise<void> {
  const draft = await writeDraft(path, text);
  try {
    await link(draft, path);
  } catch (error) {
    if (!isCode(error, "EEXIST")) throw error;
  } finally {
    await unlink(draft);
  }
  await syncFolder(dirname(path));
}

/** Removes a file; absent already is fine. F2 */
export async function removeFile(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (isCode(error, "ENOENT")) return;
    throw error;
  }
  await syncFolder(dirname(path));
}

/** Makes a folder, and those above it, for their owner alone. F2 */
export async function makeFolder(path: string): Promise<void> {
  const first = await mkdir(path, { recursive: true, mode: 0o700 });
  if (first === undefined) return;
  for (let at = path; at.length >= first.length; at = dirname(at)) await syncFolder(dirname(at));
}

/** The names in a folder that are no drafts; none if there is no such folder. */
export async function namesIn(path: string): Promise<string[]> {
  return (await allIn(path)).filter((name) => !DRAFT.test(name));
}

/** Removes what a crash left. F1 */
export async function removeDrafts(path: string): Promise<void> {
  for (const name of await allIn(path)) if (DRAFT.test(name)) await removeFile(join(path, name));
}

export const isCode = (error: unknown, code: string): boolean => error instanceof Error && "code" in error && error.code === code;

async function allIn(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if (isCode(error, "ENOENT")) return [];
    throw error;
  }
}

async function writeDraft(path: string, text: string): Promise<string> {
  const name = path.slice(dirname(path).length + 1);
  const draft = join(dirname(path), `.${name}.${randomBytes(6).toString("hex")}.draft`);
  try {
    await synced(await open(draft, "wx", 0o600), (file) => file.writeFile(text));
  } catch (error) {
    await removeFile(draft);
    throw error;
  }
  return draft;
}

async function syncFolder(path: string): Promise<void> {
  await synced(await open(path, "r"), async () => {});
}

async function synced(file: FileHandle, write: (file: FileHandle) => Promise<void>): Promise<void> {
  try {
    await write(file);
    await file.sync();
  } finally {
    await file.close();
  }
}
