// Server-sent events on their way: where each one ends, what it says, and how it reads with another text in it.
//
//   V1  Events go on as they came, byte for byte, unless their text is replaced; several that came together go on together.
//   V2  One that is longer than LOOKED_AT_BYTES_MAX is held back only until its beginning shows that it is an answer; then it goes on as it comes.

import { tooLong } from "./failure.ts";
import { COLLECTED_BYTES_MAX, LOOKED_AT_BYTES_MAX } from "./limits.ts";

const LF = 10;
const CR = 13;
const EMPTY = Buffer.alloc(0);

/** What becomes of a message: it goes on as it is, or with another text, or not at all. */
export type Look = "pass" | "drop" | { readonly put: Buffer };

export interface Looker {
  look(text: Buffer): Look;
  /** Given the beginning of a long message: may the rest go by unseen? Null: it can't be told yet. */
  mayFlow(beginning: Buffer): boolean | null;
}

export class Events {
  readonly #looker: Looker;
  #held: Buffer = EMPTY;
  #isFlowing = false;
  #nextLook = LOOKED_AT_BYTES_MAX;
  #last = LF;
  #beforeLast = LF;
  /** Some event had an id: a client can come back for the rest. */
  hasIds = false;

  constructor(looker: Looker) {
    this.#looker = looker;
  }

  /** Nothing of an event that has not ended was sent on. */
  get isBetween(): boolean {
    return !this.#isFlowing;
  }

  get heldBytes(): number {
    return this.#held.length;
  }

  /** Takes a piece of the stream and gives what can be sent on. V1 V2 */
  take(chunk: Buffer): readonly Buffer[] {
    let from = 0;
    const out: Buffer[] = [];
    if (this.#isFlowing) {
      const end = this.#endOfFlow(chunk);
      if (end < 0) return [chunk];
      out.push(chunk.subarray(0, end));
      from = end;
      this.#isFlowing = false;
    }
    const bytes = this.#held.length === 0 ? chunk.subarray(from) : Buffer.concat([this.#held, chunk.subarray(from)]);
    const searchFrom = Math.max(0, this.#held.length - 3);
    this.#held = EMPTY;
    let sent = 0;
    let start = 0;
    for (let end = endOfEvent(bytes, searchFrom, start); end > 0; end = endOfEvent(bytes, end, start)) {
      const event = bytes.subarray(start, end);
      const put = this.#put(event);
      if (put !== event) {
        if (start > sent) out.push(bytes.subarray(sent, start));
        if (put) out.push(put);
        sent = end;
      }
      start = end;
    }
    if (start > sent) out.push(bytes.subarray(sent, start));
    this.#hold(bytes.subarray(start), out);
    return out;
  }

  /** What is left when the stream ended: a reader takes no event that is not whole, and we send none. */
  end(): void {
    this.#held = EMPTY;
  }

  #hold(rest: Buffer, out: Buffer[]): void {
    this.#held = rest;
    if (rest.length <= this.#nextLook) {
      if (rest.length === 0) this.#nextLook = LOOKED_AT_BYTES_MAX;
      return;
    }
    // Each look costs as much as there is: the next one is worth it when there is twice as much.
    this.#nextLook = rest.length * 2;
    const verdict = this.#looker.mayFlow(textOf(rest).text);
    if (verdict === true) {
      if (/^id:/m.test(rest.toString("latin1", 0, 1_024))) this.hasIds = true;
      out.push(rest);
      this.#held = EMPTY;
      this.#isFlowing = true;
      [this.#beforeLast = LF, this.#last = LF] = [rest.at(-2), rest.at(-1)];
    } else if (rest.length > COLLECTED_BYTES_MAX) throw tooLong(COLLECTED_BYTES_MAX);
    else this.#nextLook = Math.min(this.#nextLook, COLLECTED_BYTES_MAX);
  }

  /** The event, another one, or null: none. */
  #put(event: Buffer): Buffer | null {
    const { text, lines, hasId } = textOf(event);
    if (hasId) this.hasIds = true;
    if (text.length === 0) return event;
    const look = this.#looker.look(text);
    if (look === "pass") return event;
    // The place stays, so that a client can come back to after it.
    if (look === "drop") return hasId ? Buffer.from(`${idLine(lines)}data: \n\n`) : null;
    const kept = lines.filter((line) => !line.startsWith("data")).map((line) => `${line}\n`);
    return Buffer.concat([Buffer.from(`${kept.join("")}data: `), look.put, Buffer.from("\n\n")]);
  }

  #endOfFlow(chunk: Buffer): number {
    const before = (at: number): number => (at >= 0 ? (chunk[at] ?? 0) : at === -1 ? this.#last : this.#beforeLast);
    for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, at + 1))
      if (before(at - 1) === LF || (before(at - 1) === CR && before(at - 2) === LF)) return at + 1;
    [this.#beforeLast, this.#last] = [before(chunk.length - 2), before(chunk.length - 1)];
    return -1;
  }
}

const idLine = (lines: readonly string[]): string => `${lines.find((line) => line.startsWith("id:")) ?? "id:"}\n`;

/** After the empty line that ends the event which began at `start`; -1: it did not end yet. Before `from` there is no such line. */
function endOfEvent(bytes: Buffer, from: number, start: number): number {
  for (let at = bytes.indexOf(LF, Math.max(from, start)); at >= 0; at = bytes.indexOf(LF, at + 1)) {
    const before = at - 1;
    if (before < start || bytes[before] === LF) return at + 1;
    if (bytes[before] === CR && (before - 1 < start || bytes[before - 1] === LF)) return at + 1;
  }
  return -1;
}

interface Read {
  readonly text: Buffer;
  readonly lines: readonly string[];
  readonly hasId: boolean;
}

const DATA = Buffer.from("data:");

/** The usual event has one line of data: its text is a part of the event's own bytes. */
function textOf(event: Buffer): Read {
  const at = event.indexOf(DATA);
  if (at < 0) return { text: EMPTY, lines: [], hasId: event.includes("id:") };
  const end = event.indexOf(LF, at);
  const head = event.toString("utf8", 0, at);
  const isOneLine = (at === 0 || head.endsWith("\n")) && (end < 0 || isBlank(event, end + 1));
  const lines = isOneLine ? head.split(/\r?\n/).filter(Boolean) : event.toString("utf8").split(/\r?\n/).filter(Boolean);
  const hasId = lines.some((line) => line.startsWith("id:"));
  if (isOneLine) return { text: trimmed(event.subarray(at + DATA.length, end < 0 ? event.length : end)), lines, hasId };
  const data = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(line.startsWith("data: ") ? 6 : 5));
  return { text: Buffer.from(data.join("\n")), lines, hasId };
}

function isBlank(bytes: Buffer, from: number): boolean {
  for (let at = from; at < bytes.length; at += 1) if (bytes[at] !== LF && bytes[at] !== CR) return false;
  return true;
}

function trimmed(text: Buffer): Buffer {
  const from = text[0] === 0x20 ? 1 : 0;
  return text.subarray(from, text.at(-1) === CR ? text.length - 1 : text.length);
}
