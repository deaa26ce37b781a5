// read, write, edit.
//
//   E1  A file is replaced whole (temporary file, then rename): a reader or a crash sees the old content or the new, never a part.

import { randomBytes } from "node:crypto";
import { mkdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import type { ToolInput } from "../toolset.ts";
import { type Answer, says, ToolError } from "./answer.ts";
import { isOverCap, preview } from "./cap.ts";
import { pictureOf } from "./picture.ts";
import { codeOf, type Place, type Places } from "./places.ts";

const READ_BYTES_MAX = 32 * 1024 * 1024;
const PDF_BYTES_MAX = 3 * 1024 * 1024;
const BINARY_PROBE_BYTES = 8_192;

export async function read(places: Places, input: ToolInput<"read">): Promise<Answer> {
  const place = await places.find(input.file_path);
  const bytes = await load(place);
  const picture = pictureOf(bytes);
  if (picture?.type === "good")
    return { content: [{ type: "image", source: { type: "base64", media_type: picture.mediaType, data: picture.data } }], isError: false };
  if (picture !== null) return says(`${place.path} is a picture (${picture.mediaType}) that can't be shown: ${picture.why}.`, true);
  if (bytes.toString("latin1", 0, 5) === "%PDF-") return pdf(place, bytes);
  if (isBinary(bytes)) return says(`${place.path} is a binary file of ${bytes.length} bytes; use bash to look into it.`, true);
  const text = bytes.toString("utf8").toWellFormed();
  const shown = input.view_range === undefined ? text : lines(text, input.view_range);
  if (shown === "") return says(text === "" ? "(the file is empty)" : "(nothing in this range)");
  return says(isOverCap(shown) ? preview(shown, `Read the rest of ${place.path} with view_range, or search it with grep.`) : shown);
}

export async function write(places: Places, input: ToolInput<"write">): Promise<Answer> {
  const place = await places.find(input.file_path);
  await replace(place, input.content);
  return says(`Wrote ${Buffer.byteLength(input.content)} bytes to ${place.path}.`);
}

export async function edit(places: Places, input: ToolInput<"edit">): Promise<Answer> {
  const place = await places.find(input.file_path);
  const bytes = await load(place);
  if (isBinary(bytes)) throw new ToolError(`${place.path} is a binary file and can't be edited as text`);
  if (input.old_string === input.new_string) throw new ToolError("old_string and new_string are the same; nothing to change");
  const pieces = bytes.toString("utf8").split(input.old_string);
  const matches = pieces.length - 1;
  if (matches === 0) throw new ToolError(`old_string was not found in ${place.path}; it must match exactly, white space included`);
  if (matches > 1 && input.replace_all !== true)
    throw new ToolError(`old_string matches ${matches} places in ${place.path}; give more of the text around it, or set replace_all`);
  await replace(place, pieces.join(input.new_string));
  return says(`Replaced ${matches} ${matches === 1 ? "place" : "places"} in ${place.path}.`);
}

/** Writes a whole file, its folders included. E1 */
export async function replace(place: Place, content: string): Promise<void> {
  const temporary = `${place.real}.${randomBytes(6).toString("hex")}.tmp`;
  try {
    await mkdir(dirname(place.real), { recursive: true });
    const mode = (await stat(place.real).catch(() => undefined))?.mode ?? 0o644;
    await writeFile(temporary, content.toWellFormed(), { flag: "wx", mode: mode & 0o777 });
    await rename(temporary, place.real);
  } catch (error) {
    await rm(temporary, { force: true });
    throw wrong(error, place);
  }
}

async function load(place: Place): Promise<Buffer> {
  try {
    const found = await stat(place.real);
    if (found.isDirectory()) throw new ToolError(`${place.path} is a folder; use bash ls or glob`);
    if (!found.isFile()) throw new ToolError(`${place.path} is not a regular file`);
    if (found.size > READ_BYTES_MAX)
      throw new ToolError(`${place.path} has ${found.size} bytes, more than ${READ_BYTES_MAX}; use bash (head, sed -n) or grep`);
    return await readFile(place.real);
  } catch (error) {
    throw wrong(error, place);
  }
}

function pdf(place: Place, bytes: Buffer): Answer {
  if (bytes.length > PDF_BYTES_MAX) return says(`${place.path} is a PDF of ${bytes.length} bytes; at most ${PDF_BYTES_MAX} can be shown.`, true);
  const source = { type: "base64", media_type: "application/pdf", data: bytes.toString("base64") } as const;
  return { content: [{ type: "document", source }], isError: false };
}

function lines(text: string, [first, last]: readonly [number, number]): string {
  const all = text.split("\n");
  if (first > all.length) throw new ToolError(`the file has ${all.length} lines; the range starts at ${first}`);
  if (last > 0 && last < first) throw new ToolError(`the range ends (${last}) before it starts (${first})`);
  return all.slice(first - 1, last <= 0 ? undefined : last).join("\n");
}

export const isBinary = (bytes: Buffer): boolean => bytes.subarray(0, BINARY_PROBE_BYTES).includes(0);

/** What the file system said, worded for the model and without paths of this machine; anything else stays what it is. */
function wrong(error: unknown, place: Place): unknown {
  const worded: Record<string, string> = {
    ENOENT: "does not exist",
    EACCES: "can't be opened: permission denied",
    EPERM: "can't be opened: not permitted",
    EISDIR: "is a folder",
    ENOTDIR: "leads through a file",
    EEXIST: "leads through a file",
    ENOTEMPTY: "is a folder",
    ENAMETOOLONG: "is too long a path",
    ENOSPC: "can't be written: the disk is full",
    EROFS: "can't be written: the disk is read-only",
  };
  const text = worded[codeOf(error)];
  return text === undefined ? error : new ToolError(`${place.path} ${text}`);
}
