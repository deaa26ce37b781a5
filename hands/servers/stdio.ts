// MCP over a child's standard input and output.
//
//   S1  What is on standard output and no frame is kept as a diagnostic, and ends nothing. A frame may come in pieces of any size.
//   S2  A line over ANSWER_BYTES_MAX ends the child: it can't be a frame that anyone wants.
//   S3  Standard error is kept, the newest STDERR_CHARS_MAX characters of it, and shown to nobody but the operator.
//   S4  The end of the child closes the connection, whatever way it ended.

import { type JSONRPCMessage, parseJSONRPCMessage, type Transport } from "@modelcontextprotocol/client";
import type { Child } from "./children.ts";
import { ANSWER_BYTES_MAX, MESSAGES_MAX, STDERR_CHARS_MAX } from "./limits.ts";
import { Flood, type TooMuch, tooManyBytes, tooManyMessages } from "./too-much.ts";

const NEW_LINE = 10;
const LINE_CHARS_SHOWN = 200;
/** So many stray lines are told one by one; of a flood the rest is counted. */
const STRAYS_TOLD = 20;

export class StdioTransport implements Transport {
  readonly #child: Child;
  readonly #onStray: (line: string) => void;
  readonly #read: (given: unknown) => JSONRPCMessage | null;
  #pieces: Buffer[] = [];
  #bytes = 0;
  #errors = "";
  #strays = 0;
  readonly #flood = new Flood(MESSAGES_MAX);
  #isClosed = false;
  /** How the child ended; null while it runs. */
  end: string | null = null;

  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage) => void;

  /** `onStray`: a line of standard output that is no frame. `read` says what is one: null, or it throws, when it is none. */
  constructor(child: Child, onStray: (line: string) => void, read: (given: unknown) => JSONRPCMessage | null = parseJSONRPCMessage) {
    this.#child = child;
    this.#onStray = onStray;
    this.#read = read;
  }

  /** What it said on standard error, the end of it. S3 */
  get stderr(): string {
    return this.#errors;
  }

  get strays(): number {
    return this.#strays;
  }

  async start(): Promise<void> {
    const { stdout, stderr, stdin, ended } = this.#child;
    stdout.on("data", (chunk: Buffer) => this.#take(chunk));
    stderr.on("data", (chunk: Buffer) => {
      this.#errors = (this.#errors + chunk.toString("utf8")).slice(-STDERR_CHARS_MAX);
    });
    // A child that is gone is told of by its end.
    for (const stream of [stdin, stdout, stderr]) stream.on("error", () => {});
    void ended.then((says) => {
      this.end = says;
      // What it said last is still on its way through the pipe.
      if (stdout.readableEnded || stdout.destroyed) this.#close();
      else {
        stdout.once("close", () => this.#close());
        setTimeout(() => this.#close(), 100).unref();
      }
    });
  }

  async send(message: JSONRPCMessage): Promise<void> {
    if (this.#isClosed || this.end !== null) throw new Error(this.end ?? "the connection is closed");
    const { stdin } = this.#child;
    await new Promise<void>((resolve, reject) => {
      stdin.write(`${JSON.stringify(message)}\n`, (error) => (error ? reject(error) : resolve()));
    });
  }

  async close(): Promise<void> {
    await this.#child.end();
    this.#close();
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#pieces = [];
    void this.#child.end();
    this.onclose?.();
  }

  #giveUp(why: TooMuch): void {
    this.end ??= why.message;
    this.onerror?.(why);
    this.#close();
  }

  /** S1 S2 */
  #take(chunk: Buffer): void {
    let rest = chunk;
    for (let at = rest.indexOf(NEW_LINE); at >= 0; at = rest.indexOf(NEW_LINE)) {
      this.#pieces.push(rest.subarray(0, at));
      const line = this.#pieces.length === 1 ? (this.#pieces[0] ?? Buffer.alloc(0)) : Buffer.concat(this.#pieces);
      this.#pieces = [];
      this.#bytes = 0;
      this.#hear(line.toString("utf8").trim());
      rest = rest.subarray(at + 1);
    }
    if (rest.length === 0) return;
    this.#pieces.push(rest);
    this.#bytes += rest.length;
    if (this.#bytes > ANSWER_BYTES_MAX) this.#giveUp(tooManyBytes());
  }

  #hear(line: string): void {
    if (line === "") return;
    const messages = this.#framesOf(line);
    if (messages !== null) {
      for (const message of messages) this.onmessage?.(message);
      return;
    }
    this.#strays += 1;
    if (this.#flood.isOver()) {
      this.#giveUp(tooManyMessages());
      return;
    }
    if (this.#strays <= STRAYS_TOLD) this.#onStray(line.slice(0, LINE_CHARS_SHOWN));
  }

  /** Up to revision 2025-03-26 a server may batch what it says. */
  #framesOf(line: string): readonly JSONRPCMessage[] | null {
    if (!line.startsWith("{") && !line.startsWith("[")) return null;
    try {
      const given: unknown = JSON.parse(line);
      const frames = (Array.isArray(given) ? given : [given]).map((each) => this.#read(each));
      const read = frames.filter((frame) => frame !== null);
      return read.length === frames.length && read.length > 0 ? read : null;
    } catch {
      // Not a frame: S1 says what becomes of it.
      return null;
    }
  }
}
