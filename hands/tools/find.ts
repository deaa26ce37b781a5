// glob and grep: a bounded walk through the files of a folder.
//
//   W1  Links are not followed; a walk ends after WALK_ENTRIES_MAX entries and says so. A pattern that never ends is ended with the thread.

import type { Dirent } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import { join, posix } from "node:path";
import { GLOB_PATHS_MAX, GREP_LINES_MAX } from "../limits.ts";
import type { ToolInput } from "../toolset.ts";
import { type Answer, says, ToolError } from "./answer.ts";
import { cut } from "./cap.ts";
import { isBinary } from "./files.ts";
import { codeOf, type Place, type Places, WORKSPACE } from "./places.ts";

const WALK_ENTRIES_MAX = 200_000;
const GREP_FILE_BYTES_MAX = 10 * 1024 * 1024;
const GREP_LINE_CHARS_MAX = 500;
const GREP_ANSWER_CHARS_MAX = 50_000;

interface Found {
  readonly path: string;
  readonly real: string;
  /** From the folder that was asked for. */
  readonly below: string;
}

export async function glob(places: Places, input: ToolInput<"glob">): Promise<Answer> {
  const isAbsolute = input.pattern.startsWith("/");
  const place = await places.find(input.path ?? (isAbsolute ? fixedPart(input.pattern) : WORKSPACE));
  const pattern = globPattern(posix.normalize(input.pattern));
  const walk = await walkFiles(place);
  const matching = walk.files.filter((file) => pattern.test(isAbsolute ? file.path : file.below));
  const dated: { path: string; at: number }[] = [];
  for (const file of matching) dated.push({ path: file.path, at: await changedAt(file.real) });
  dated.sort((one, other) => other.at - one.at || (one.path < other.path ? -1 : 1));
  const shown = dated.slice(0, GLOB_PATHS_MAX).map(({ path }) => path);
  if (shown.length === 0) return says(`No files match.${walk.isCut ? ` ${CUT_SHORT}` : ""}`);
  if (dated.length > shown.length) shown.push(`[${dated.length - shown.length} more paths left out]`);
  if (walk.isCut) shown.push(`[${CUT_SHORT}]`);
  return says(shown.join("\n"));
}

const CUT_SHORT = `The search ended after ${WALK_ENTRIES_MAX} entries; look in a smaller folder.`;

export async function grep(places: Places, input: ToolInput<"grep">): Promise<Answer> {
  const place = await places.find(input.path ?? WORKSPACE);
  const pattern = regularExpression(input.pattern);
  const walk = await walkFiles(place);
  const shown: string[] = [];
  let chars = 0;
  let skipped = 0;
  let isFull = false;
  for (const file of walk.files) {
    const text = await textOf(file.real);
    if (text === null) {
      skipped += 1;
      continue;
    }
    for (const [index, line] of text.split(/\r?\n/).entries()) {
      if (!pattern.test(line)) continue;
      isFull = shown.length >= GREP_LINES_MAX || chars >= GREP_ANSWER_CHARS_MAX;
      if (isFull) break;
      const row = `${file.path}:${index + 1}:${cut(line, GREP_LINE_CHARS_MAX)}`;
      shown.push(row);
      chars += row.length;
    }
    if (isFull) break;
  }
  const count = shown.length;
  if (isFull) shown.push(`[more lines match; ${count} are shown. Narrow the pattern or the path]`);
  if (walk.isCut) shown.push(`[${CUT_SHORT}]`);
  if (skipped > 0) shown.push(`[${skipped} binary or very large files not searched]`);
  return says(count === 0 ? ["No lines match.", ...shown].join("\n") : shown.join("\n"));
}

/** W1 */
async function walkFiles(place: Place): Promise<{ files: Found[]; isCut: boolean }> {
  const files: Found[] = [];
  const start = await stat(place.real).catch((error: unknown) => {
    throw codeOf(error) === "ENOENT" ? new ToolError(`${place.path} does not exist`) : error;
  });
  if (start.isFile()) return { files: [{ path: place.path, real: place.real, below: posix.basename(place.path) }], isCut: false };
  const folders: Found[] = [{ path: place.path, real: place.real, below: "" }];
  let seen = 0;
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for (const entry of await entriesOf(folder.real)) {
      seen += 1;
      if (seen > WALK_ENTRIES_MAX) return { files, isCut: true };
      const found = { path: posix.join(folder.path, entry.name), real: join(folder.real, entry.name), below: posix.join(folder.below, entry.name) };
      if (entry.isDirectory()) folders.push(found);
      else if (entry.isFile()) files.push(found);
    }
  }
  return { files, isCut: false };
}

/** A folder that goes away during the walk has nothing in it. */
async function entriesOf(real: string): Promise<Dirent[]> {
  try {
    const entries = await readdir(real, { withFileTypes: true });
    return entries.sort((one, other) => (one.name < other.name ? 1 : -1)).reverse();
  } catch (error) {
    if (["ENOENT", "EACCES", "ENOTDIR"].includes(codeOf(error))) return [];
    throw error;
  }
}

async function changedAt(real: string): Promise<number> {
  const found = await stat(real).catch(() => undefined);
  return found?.mtimeMs ?? 0;
}

async function textOf(real: string): Promise<string | null> {
  try {
    if ((await stat(real)).size > GREP_FILE_BYTES_MAX) return null;
    const bytes = await readFile(real);
    return isBinary(bytes) ? null : bytes.toString("utf8");
  } catch (error) {
    if (["ENOENT", "EACCES"].includes(codeOf(error))) return null;
    throw error;
  }
}

/** A leading `(?i)` is taken too, because models write it. */
function regularExpression(source: string): RegExp {
  const isLoose = source.startsWith("(?i)");
  try {
    return new RegExp(isLoose ? source.slice(4) : source, isLoose ? "i" : "");
  } catch (error) {
    throw new ToolError(`the pattern is no regular expression: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** The folders of an absolute pattern before its first wildcard. */
function fixedPart(pattern: string): string {
  const parts = pattern.split("/");
  const wild = parts.findIndex((part) => /[*?[{]/.test(part));
  return parts.slice(0, wild < 0 ? -1 : wild).join("/") || "/";
}

/** Doublestar pattern → regular expression over a path without a leading `./`. */
export function globPattern(pattern: string): RegExp {
  let source = "";
  let depth = 0;
  for (let at = 0; at < pattern.length; at += 1) {
    const rest = pattern.slice(at);
    const char = pattern.charAt(at);
    const choice = /^\[(!|\^)?([^\]/]+)\]/.exec(rest);
    if (rest.startsWith("**/") && (at === 0 || pattern.charAt(at - 1) === "/")) {
      source += "(?:[^/]+/)*";
      at += 2;
    } else if (rest.startsWith("**")) {
      source += ".*";
      at += 1;
    } else if (char === "*") source += "[^/]*";
    else if (char === "?") source += "[^/]";
    else if (choice !== null) {
      source += `[${choice[1] === undefined ? "" : "^"}${(choice[2] ?? "").replace(/[\\\]^]/g, "\\$&")}]`;
      at += choice[0].length - 1;
    } else if (char === "{" && rest.includes("}")) {
      source += "(?:";
      depth += 1;
    } else if (char === "," && depth > 0) source += "|";
    else if (char === "}" && depth > 0) {
      source += ")";
      depth -= 1;
    } else source += char.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  }
  try {
    return new RegExp(`^${source}${")".repeat(depth)}$`);
  } catch {
    throw new ToolError("the pattern is no valid glob");
  }
}
