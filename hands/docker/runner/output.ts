// What a command's output becomes for the model: short text whole, long text as head, tail and the path of all of it, bytes as a note and a path.

import { randomBytes } from "node:crypto";
import { closeSync, mkdirSync, openSync, renameSync, rmSync } from "node:fs";
import { dirname } from "node:path";
import { OUTPUT_CHARS_MAX } from "../../limits.ts";
import { outputName, PREVIEW_CHARS, previewOf } from "../../tools/cap.ts";
import { codeOf } from "../../tools/places.ts";
import { type Capture, writeAll } from "./capture.ts";

/** A piece of the answer: what is known of its text, and how all of it gets into a file. */
interface Piece {
  readonly chars: number;
  readonly head: string;
  readonly tail: string;
  readonly whole: string | null;
  copyTo(file: number): void;
}

/** `folder`: where files of long outputs go. */
export function outputText(
  id: string,
  streams: { readonly stdout: Capture; readonly stderr: Capture },
  notes: readonly string[],
  folder: string,
): string {
  const said = Object.entries(streams).filter(([, capture]) => capture.bytes > 0);
  const lacks = said.map(([name, { lack }]) => (lack === "" ? "" : `[${name}: ${lack}]`));
  const pieces = [
    ...said.map(([name, capture]) => (capture.isBinary ? textPiece(storeBytes(id, name, capture, folder)) : capturePiece(capture))),
    ...[...lacks, ...notes].filter((note) => note !== "").map(textPiece),
  ].filter((piece) => piece.chars > 0);
  const length = pieces.reduce((sum, piece) => sum + piece.chars, 0) + Math.max(0, pieces.length - 1);
  if (length === 0) return "(no output)";
  const wholes = pieces.flatMap(({ whole }) => (whole === null ? [] : [whole]));
  if (length <= OUTPUT_CHARS_MAX && wholes.length === pieces.length) return wholes.join("\n");
  const path = `${folder}/${outputName(id)}`;
  const where = store(path, (file) =>
    pieces.forEach((piece, index) => {
      if (index > 0) writeAll(file, Buffer.from("\n"));
      piece.copyTo(file);
    }),
  );
  return previewOf(headOf(pieces), tailOf(pieces), length, where === null ? `All of it is in ${path}.` : `It could not be stored: ${where}.`);
}

function capturePiece(capture: Capture): Piece {
  const less = capture.endsWithNewline ? 1 : 0;
  const whole = capture.whole();
  return {
    chars: capture.chars - less,
    head: less > 0 && capture.chars <= PREVIEW_CHARS ? capture.head.slice(0, -1) : capture.head,
    tail: less > 0 ? capture.tail.slice(0, -1) : capture.tail,
    whole: whole === null ? null : whole.slice(0, whole.length - less),
    copyTo: (file) => capture.copyTo(file, less),
  };
}

function textPiece(text: string): Piece {
  return { chars: text.length, head: text, tail: text, whole: text, copyTo: (file) => writeAll(file, Buffer.from(text)) };
}

/** Bytes that are no text would be noise to the model: they go to a file as they are. */
function storeBytes(id: string, name: string, capture: Capture, folder: string): string {
  const path = `${folder}/${outputName(id).replace(/txt$/, name)}`;
  const broke = store(path, (file) => capture.copyTo(file));
  return `[${name}: ${capture.bytes} bytes that are not text; ${broke === null ? `all of them are in ${path}` : `they could not be stored: ${broke}`}]`;
}

function headOf(pieces: readonly Piece[]): string {
  let head = "";
  for (const piece of pieces) {
    head += head === "" ? piece.head : `\n${piece.head}`;
    if (head.length >= PREVIEW_CHARS || piece.head.length < piece.chars) break;
  }
  return head;
}

function tailOf(pieces: readonly Piece[]): string {
  let tail = "";
  for (const piece of pieces.toReversed()) {
    tail = tail === "" ? piece.tail : `${piece.tail}\n${tail}`;
    if (tail.length >= PREVIEW_CHARS || piece.tail.length < piece.chars) break;
  }
  return tail;
}

/** Puts a file in its place whole; gives what went wrong. */
function store(path: string, write: (file: number) => void): string | null {
  const temporary = `${path}.${randomBytes(6).toString("hex")}.tmp`;
  try {
    mkdirSync(dirname(path), { recursive: true });
    const file = openSync(temporary, "wx", 0o644);
    try {
      write(file);
    } finally {
      closeSync(file);
    }
    renameSync(temporary, path);
    return null;
  } catch (error) {
    rmSync(temporary, { force: true });
    const code = codeOf(error);
    if (code === "") throw error;
    return code;
  }
}
