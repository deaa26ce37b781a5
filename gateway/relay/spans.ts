// Where things stand in JSON text: members of objects and items of arrays as spans of bytes, so that one of them can be read, or another put in its
// place, and every other byte stays as it came.
//
//   B1  The text is known to be JSON (somebody parsed it), or only its start is there: a value that is cut off ends the walk.
//   B2  A name is compared after its escapes are read.

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const NEAR = 48;

export interface Span {
  readonly start: number;
  /** After the last byte. */
  readonly end: number;
}

export interface Member extends Span {
  readonly name: string;
  /** Where the name begins. */
  readonly from: number;
  /** The value is all there. B1 */
  readonly isWhole: boolean;
}

/** The members of the object that begins at or after `at`; none if something else does. A name may come twice. */
export function membersOf(text: Buffer, at = 0): Member[] {
  const members: Member[] = [];
  let place = skipSpace(text, at);
  if (text[place] !== OPEN_OBJECT) return members;
  place = skipSpace(text, place + 1);
  while (text[place] === QUOTE) {
    const from = place;
    const nameEnd = endOfString(text, from);
    if (nameEnd < 0) break;
    place = skipSpace(text, nameEnd);
    if (text[place] !== COLON) break;
    const start = skipSpace(text, place + 1);
    const end = endOfValue(text, start);
    const isWhole = end >= 0;
    members.push({ name: nameIn(text, from, nameEnd), from, start, end: isWhole ? end : text.length, isWhole });
    if (!isWhole) break;
    place = skipSpace(text, end);
    if (text[place] !== COMMA) break;
    place = skipSpace(text, place + 1);
  }
  return members;
}

/**
 * Does the object hold a name twice, or one that lies on `path` in it? `parsed` is what a parser made of the text: it keeps one of each name, so that
 * more members than names are too many.
 */
export function holdsTwice(text: Buffer, parsed: unknown, path: readonly string[]): boolean {
  return endOfPlain(text, skipSpace(text, 0), parsed, path) < 0;
}

/** After the object at `at`; -1: a name is there twice. */
function endOfPlain(text: Buffer, at: number, parsed: unknown, path: readonly string[]): number {
  if (text[at] !== OPEN_OBJECT || typeof parsed !== "object" || parsed === null) return endOfValue(text, at);
  const [next, ...further] = path;
  let members = 0;
  let place = skipSpace(text, at + 1);
  while (text[place] === QUOTE) {
    members += 1;
    const nameEnd = endOfString(text, place);
    const start = skipSpace(text, skipSpace(text, nameEnd) + 1);
    const isNext = next !== undefined && isNamed(text, place, nameEnd, next);
    const end = isNext ? endOfPlain(text, start, Reflect.get(parsed, next), further) : endOfValue(text, start);
    if (end < 0) return -1;
    place = skipSpace(text, end);
    if (text[place] === COMMA) place = skipSpace(text, place + 1);
  }
  return members === Object.keys(parsed).length ? place + 1 : -1;
}

function isNamed(text: Buffer, from: number, end: number, name: string): boolean {
  let at = from + 1;
  while (at < end - 1 && text[at] === name.charCodeAt(at - from - 1)) at += 1;
  if (at === end - 1) return end - from === name.length + 2;
  return text[at] === BACKSLASH && nameIn(text, from, end) === name;
}

/** The items of the array that begins at `at`. */
export function itemsOf(text: Buffer, at: number): Span[] {
  const items: Span[] = [];
  if (text[at] !== OPEN_ARRAY) return items;
  let place = skipSpace(text, at + 1);
  while (place < text.length && text[place] !== CLOSE_ARRAY) {
    const end = endOfValue(text, place);
    if (end < 0) break;
    items.push({ start: place, end });
    place = skipSpace(text, end);
    if (text[place] !== COMMA) break;
    place = skipSpace(text, place + 1);
  }
  return items;
}

/** The member of this name; the last one, as parsers have it. */
export function memberOf(members: readonly Member[], name: string): Member | undefined {
  for (let at = members.length - 1; at >= 0; at -= 1) if (members[at]?.name === name) return members[at];
  return undefined;
}

export const textOf = (text: Buffer, { start, end }: Span): string => text.toString("utf8", start, end);
export const isObject = (text: Buffer, { start }: Span): boolean => text[start] === OPEN_OBJECT;

/** The string that a span holds, or null when it holds something else. */
export function stringOf(text: Buffer, span: Span): string | null {
  if (text[span.start] !== QUOTE) return null;
  // Never beyond the span: a search to the end of the text, for each of its many names, would take time without end.
  if (!text.subarray(span.start, span.end).includes(BACKSLASH)) return text.toString("utf8", span.start + 1, span.end - 1);
  const value: unknown = JSON.parse(textOf(text, span));
  return typeof value === "string" ? value : null;
}

export interface Edit extends Span {
  readonly put: string;
}

/** The text with each span replaced; spans do not overlap. */
export function edited(text: Buffer, edits: readonly Edit[]): Buffer {
  const parts: Buffer[] = [];
  let from = 0;
  for (const { start, end, put } of [...edits].sort((one, other) => one.start - other.start)) {
    parts.push(text.subarray(from, start), Buffer.from(put));
    from = end;
  }
  parts.push(text.subarray(from));
  return Buffer.concat(parts);
}

/** What takes some of an object's members or an array's items out, with the commas that they leave behind. */
export function without(all: readonly Span[], gone: (span: Span, index: number) => boolean): Edit[] {
  const edits: Edit[] = [];
  const fromOf = (span: Span): number => ("from" in span && typeof span.from === "number" ? span.from : span.start);
  let hasKept = false;
  for (const [index, span] of all.entries()) {
    if (!gone(span, index)) {
      hasKept = true;
      continue;
    }
    const [before, after] = [all[index - 1], all[index + 1]];
    if (hasKept && before) edits.push({ start: before.end, end: span.end, put: "" });
    else edits.push({ start: fromOf(span), end: after ? fromOf(after) : span.end, put: "" });
  }
  return edits;
}

function nameIn(text: Buffer, from: number, end: number): string {
  let place = from;
  while (place < end && text[place] !== BACKSLASH) place += 1;
  return place === end ? text.toString("utf8", from + 1, end - 1) : (stringOf(text, { start: from, end }) ?? "");
}

export function skipSpace(text: Buffer, at: number): number {
  let place = at;
  for (;;) {
    const byte = text[place];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return place;
    place += 1;
  }
}

/** After the closing quote; -1: it is not there. */
function endOfString(text: Buffer, at: number): number {
  let place = at + 1;
  // Most strings are short, and reading them costs less than to begin a search.
  for (const near = place + NEAR; place < near; place += text[place] === BACKSLASH ? 2 : 1) if (text[place] === QUOTE) return place + 1;
  const from = place;
  for (;;) {
    const quote = text.indexOf(QUOTE, place);
    if (quote < 0) return -1;
    let slashes = 0;
    while (quote - 1 - slashes >= from && text[quote - 1 - slashes] === BACKSLASH) slashes += 1;
    if (slashes % 2 === 0) return quote + 1;
    place = quote + 1;
  }
}

function endOfValue(text: Buffer, at: number): number {
  const first = text[at];
  if (first === QUOTE) return endOfString(text, at);
  if (first !== OPEN_OBJECT && first !== OPEN_ARRAY) return endOfScalar(text, at);
  let depth = 0;
  let place = at;
  while (place < text.length) {
    const byte = text[place];
    if (byte === QUOTE) {
      place = endOfString(text, place);
      if (place < 0) return -1;
      continue;
    }
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) depth += 1;
    else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
      depth -= 1;
      if (depth === 0) return place + 1;
    }
    place += 1;
  }
  return -1;
}

/** A number or a word; it ends before what can't be part of it, which must be there. */
function endOfScalar(text: Buffer, at: number): number {
  let place = at;
  for (;;) {
    const byte = text[place];
    if (byte === undefined) return -1;
    if (byte === COMMA || byte === CLOSE_OBJECT || byte === CLOSE_ARRAY || byte <= 0x20) return place;
    place += 1;
  }
}
