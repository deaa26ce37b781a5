// Long text: the model gets head and tail, a file in the sandbox gets all of it.
//
//   U1  Text that leaves a sandbox is well-formed: lone halves of a pair become U+FFFD, and a cut never makes one.

import { createHash } from "node:crypto";
import { OUTPUT_CHARS_MAX } from "../limits.ts";

const HEAD_CHARS = 10_000;
const TAIL_CHARS = 10_000;
/** So much of each end is needed for a preview. */
export const PREVIEW_CHARS = Math.max(HEAD_CHARS, TAIL_CHARS) + 1;

export const isOverCap = (text: string): boolean => text.length > OUTPUT_CHARS_MAX;

/** The first and the last of a text, and between them how much is missing and where it is. U1 */
export function preview(text: string, whereFrom: string): string {
  return previewOf(text, text, text.length, whereFrom);
}

/** The same, of a text that isn't held whole: `head` and `tail` are its first and last PREVIEW_CHARS or more of `length` characters. U1 */
export function previewOf(first: string, last: string, length: number, whereFrom: string): string {
  const head = first.slice(0, wholeBefore(first, HEAD_CHARS));
  const tail = last.slice(wholeBefore(last, last.length - TAIL_CHARS));
  const missing = length - head.length - tail.length;
  return `${head}\n\n[${missing} of ${length} characters left out here. ${whereFrom}]\n\n${tail}`;
}

/** At most `max` characters, cut at a whole code point. U1 */
export function cut(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, wholeBefore(text, max))}…`;
}

/** A file name for a call's output: two ids never share one, however odd or long they are. */
export function outputName(toolUseId: string): string {
  const name = /^[0-9A-Za-z_-]{1,64}$/.test(toolUseId) ? toolUseId : `~${createHash("sha256").update(toolUseId).digest("hex").slice(0, 32)}`;
  return `output-${name}.txt`;
}

/** The index, or the one before it where it would part a surrogate pair. */
function wholeBefore(text: string, index: number): number {
  const before = text.charCodeAt(index - 1);
  const after = text.charCodeAt(index);
  const parts = before >= 0xd800 && before <= 0xdbff && after >= 0xdc00 && after <= 0xdfff;
  return parts ? index - 1 : index;
}
