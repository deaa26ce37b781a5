// Batches of JSON-RPC: revisions 2024-11-05 and 2025-03-26 have them, later ones took them away.
//
//   B1  Only a session of a revision that has them may send one; any other is told to send each message by itself.
//   B2  Each message is served as if it had come alone, by the same code and under the same rules: requests side by side, notices and answers in their
//       order, each before what stands after it.
//   B3  Each request is answered once. Where all answers come soon and alone they leave as one JSON array; otherwise each leaves on one stream as it comes,
//       with what came before it. That stream can't be taken up again: a place in it would be a place in many.
//   B4  A batch holds at most MESSAGES_MAX messages, and BYTES_MAX of answers wait for the others, or for their own ends: what would be more breaks off.

import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { errorMessage, INTERNAL_ERROR, INVALID_REQUEST, idIn, keyOf, RpcError, type RpcId, readMessage } from "./rpc.ts";
import { SseResponse } from "./sse.ts";
import { SseReader } from "./sse-reader.ts";

const REVISIONS: ReadonlySet<string> = new Set(["2024-11-05", "2025-03-26"]);
const MESSAGES_MAX = 64;
const BYTES_MAX = 64 * 1024 * 1024;
const STREAM_AFTER_MS = 1_000;
const BROKEN = { code: INTERNAL_ERROR, message: "The answer broke off. The request may have been carried out." };
const HEAD_END = "\r\n\r\n";

export const hasBatches = (version: string): boolean => REVISIONS.has(version);

/** `version`: what the session speaks; null: there is none. B1 B4 */
export function refuseBatch(messages: readonly unknown[], version: string | null): void {
  const refused = (says: string) => new RpcError(INVALID_REQUEST, says);
  if (version === null) throw refused("A batch is taken in a session of revision 2025-03-26 or 2024-11-05 alone: send each message by itself.");
  if (!hasBatches(version)) throw refused(`Revision ${version} has no batches (2025-06-18 took them away): send each message by itself.`);
  if (messages.length === 0) throw refused("A batch holds at least one message.");
  if (messages.length > MESSAGES_MAX) throw refused(`A batch holds at most ${MESSAGES_MAX} messages.`);
  const ids = messages.flatMap((message) => {
    const id = kindOf(message) === "request" ? idIn(message) : null;
    return id === null ? [] : [keyOf(id)];
  });
  if (new Set(ids).size !== ids.length) throw refused("Two requests of the batch have the same id.");
}

/** Answers a batch; `serve` answers the message of this place as if it had come alone. B2 B3 */
export async function serveBatch(
  response: ServerResponse,
  messages: readonly unknown[],
  keepAliveMs: number,
  serve: (at: number, response: ServerResponse) => Promise<void>,
): Promise<void> {
  // Each part listens for its end.
  response.setMaxListeners(0);
  const answer = new BatchAnswer(response, keepAliveMs);
  const running: Promise<void>[] = [];
  for (const [at, message] of messages.entries()) {
    const part = new Part(response, answer);
    const kind = kindOf(message);
    const served = serve(at, part.response)
      .then(() => part.over)
      .then(() => answer.take(part, kind, idIn(message)));
    if (kind === "request") running.push(served);
    else await served;
  }
  await Promise.all(running);
  answer.end();
}

/** "none": it is no message. */
function kindOf(message: unknown): ReturnType<typeof readMessage>["kind"] | "none" {
  try {
    return readMessage(message).kind;
  } catch {
    // Whoever serves it says so.
    return "none";
  }
}

class BatchAnswer {
  readonly #response: ServerResponse;
  readonly #keepAliveMs: number;
  readonly #timer: NodeJS.Timeout;
  #sse: SseResponse | null = null;
  #texts: string[] = [];
  /** Of `#texts`. */
  #bytes = 0;
  /** Of answers that are not whole yet. */
  #heldBytes = 0;
  readonly #statuses = new Set<number>();

  constructor(response: ServerResponse, keepAliveMs: number) {
    this.#response = response;
    this.#keepAliveMs = keepAliveMs;
    this.#timer = setTimeout(() => this.stream(), STREAM_AFTER_MS).unref();
    response.once("close", () => clearTimeout(this.#timer));
  }

  /** From here on each answer leaves as it comes. */
  stream(): SseResponse | null {
    clearTimeout(this.#timer);
    if (this.#sse || this.#response.destroyed) return this.#sse;
    this.#sse = new SseResponse(this.#response, this.#keepAliveMs);
    for (const text of this.#texts.splice(0)) void this.#sse.message(text, null);
    this.#bytes = 0;
    return this.#sse;
  }

  /** Resolves when there is room for more. */
  async message(text: string): Promise<void> {
    if (this.#sse) return this.#sse.message(text, null);
    this.#texts.push(text);
    this.#bytes += text.length;
    if (this.#bytes > BYTES_MAX) this.stream();
  }

  /** Counts what a part holds of its answer; false: it is too much. B4 */
  hold(bytes: number): boolean {
    this.#heldBytes += bytes;
    if (this.#bytes + this.#heldBytes > BYTES_MAX) this.stream();
    return this.#heldBytes <= BYTES_MAX;
  }

  release(bytes: number): void {
    this.#heldBytes -= bytes;
  }

  /** What a part came to as a whole. A notice has no answer, whatever came of it; a request that was called off has none either. */
  async take({ body, bodyBytes, response, isWhole }: Part, kind: ReturnType<typeof kindOf>, id: RpcId | null): Promise<void> {
    this.release(bodyBytes);
    if (kind !== "request" && kind !== "none") return;
    this.#statuses.add(response.statusCode);
    if (!isWhole) await this.message(JSON.stringify(errorMessage(id, BROKEN)));
    else if (body !== "") await this.message(body);
  }

  end(): void {
    clearTimeout(this.#timer);
    if (this.#response.destroyed) return;
    if (this.#sse) {
      this.#sse.end();
      return;
    }
    if (this.#texts.length === 0) {
      this.#response.writeHead(202, { "content-length": 0 }).end();
      return;
    }
    const [status = 200] = this.#statuses.size === 1 ? this.#statuses : [];
    // What a hand batched itself is part of the one array.
    const text = `[${this.#texts.map((each) => (each.trimStart().startsWith("[") ? each.trim().slice(1, -1) : each)).join(",")}]`;
    this.#response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) }).end(text);
  }
}

/** The response to one message, as those who serve it know responses; what they write is read here. */
class Part {
  readonly response: ServerResponse;
  /** Resolves when nothing more comes. */
  readonly over: Promise<void>;
  bodyBytes = 0;
  readonly #answer: BatchAnswer;
  #isBroken = false;
  #head: string | null = "";
  #events: SseReader | null = null;
  #chunks: Buffer[] = [];
  #messages: string[] = [];

  constructor(whole: ServerResponse, answer: BatchAnswer) {
    this.#answer = answer;
    const socket = new PartSocket((chunk) => this.#take(chunk));
    const request = new IncomingMessage(socket);
    // Without chunks or a kept connection: what comes after the head is the body.
    Object.assign(request, { method: "POST", httpVersionMajor: 1, httpVersionMinor: 0, complete: true });
    this.response = new ServerResponse(request);
    for (const [name, value] of Object.entries(whole.getHeaders())) if (value !== undefined) this.response.setHeader(name, value);
    this.response.assignSocket(socket);
    // A server does this for the responses of its own sockets: without it who waits for room waits for good.
    socket.on("drain", () => this.response.emit("drain"));
    // What can't be taken is told as an answer that broke off. B3
    socket.once("error", () => {
      this.#isBroken = true;
    });
    this.response.once("finish", () => socket.destroy());
    this.over = new Promise((resolve) => socket.once("close", () => resolve()));
    const gone = () => socket.destroy();
    whole.once("close", gone);
    socket.once("close", () => whole.off("close", gone));
  }

  get isWhole(): boolean {
    return this.response.writableFinished && !this.#isBroken;
  }

  /** Of an answer that is no stream. */
  get body(): string {
    return this.#events ? "" : Buffer.concat(this.#chunks).toString("utf8");
  }

  async #take(chunk: Buffer): Promise<void> {
    let rest = chunk;
    if (this.#head !== null) {
      this.#head += chunk.toString("latin1");
      const end = this.#head.indexOf(HEAD_END);
      if (end < 0) return;
      rest = Buffer.from(this.#head.slice(end + HEAD_END.length), "latin1");
      if (/^content-type: *text\/event-stream/im.test(this.#head.slice(0, end))) {
        this.#events = new SseReader((text) => this.#messages.push(text));
        this.#answer.stream();
      }
      this.#head = null;
    }
    if (this.#events) this.#events.take(rest);
    else this.#hold(rest);
    for (const text of this.#messages.splice(0)) await this.#answer.message(text);
  }

  /** B4 */
  #hold(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.bodyBytes += chunk.length;
    if (this.#answer.hold(chunk.length)) return;
    // Let go at once: the others go on.
    this.#answer.release(this.bodyBytes);
    this.bodyBytes = 0;
    this.#chunks = [];
    throw new Error("the answers of the batch are too long");
  }
}

/** A socket that goes nowhere. Whoever writes waits until what was written is taken. */
class PartSocket extends Socket {
  readonly #take: (chunk: Buffer) => Promise<void>;

  constructor(take: (chunk: Buffer) => Promise<void>) {
    super();
    this.#take = take;
  }

  override _write(chunk: Buffer | string, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#take(typeof chunk === "string" ? Buffer.from(chunk, encoding) : chunk).then(() => done(), done);
  }

  override _writev(chunks: { chunk: Buffer | string; encoding: BufferEncoding }[], done: (error?: Error | null) => void): void {
    this._write(Buffer.concat(chunks.map(({ chunk, encoding }) => (typeof chunk === "string" ? Buffer.from(chunk, encoding) : chunk))), "utf8", done);
  }
}
