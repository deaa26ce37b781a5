// A server of the older HTTP+SSE transport (revision 2024-11-05): one GET opens the stream that it speaks on, its first event says where messages are
// posted to.
//
//   S1  Where messages go is of the server's own origin; what says otherwise ends the line before anything is sent. No redirect is followed.
//   S2  Requests and answers are posted side by side; a notice waits for what was sent before it and holds back what comes after it, for ORDER_MS at
//       most: a cancellation must not overtake its request, and a server may answer a post as late as it likes.
//   S3  The end of the stream is the end of the line, at once: whatever waits for an answer would wait for ever.
//   S4  An event is no longer than ANSWER_BYTES_MAX; what says more than that in FLOOD_MS is ended (see reach.ts), and so is
//       what says more than MESSAGES_MAX things that are no message. Of those STRAYS_TOLD are told one by one.

import { refusedUrl, Unreachable } from "../address.ts";
import { Trouble, troubleOf } from "../servers/connection.ts";
import { ANSWER_BYTES_MAX, MESSAGES_MAX, TOTAL_MS } from "../servers/limits.ts";
import type { Fetch } from "../servers/reach.ts";
import { Flood, TooMuch, tooManyBytes, tooManyMessages } from "../servers/too-much.ts";
import { type Envelope, readEnvelope } from "./envelope.ts";
import { type Hearing, type Line, Untaken } from "./line.ts";
import { type ServerEvent, SseParser } from "./sse-parser.ts";

const ORDER_MS = 1_000;
/** Of the answer to a post, which says nothing that is wanted. */
const DRAINED_BYTES_MAX = 65_536;
/** Statuses of a post by which the server says that it has no such stream. */
const FORGOTTEN = new Set([404, 410]);
const CAUSES_MAX = 8;
const STRAYS_TOLD = 20;
const REDIRECTED = "it answered with a redirect, which is not followed";

export interface SseLineOptions {
  readonly url: URL;
  readonly fetch: Fetch;
  readonly connectMs: number;
  /** Something that it said, or that was said to it, came to nothing. */
  stray(says: string): void;
}

export class SseLine implements Line {
  readonly #options: SseLineOptions;
  readonly #closed = new AbortController();
  readonly #posting = new Set<Promise<void>>();
  readonly #endpoint: Promise<URL>;
  #named: (endpoint: URL) => void = () => {};
  #unnamed: (error: Error) => void = () => {};
  #isNamed = false;
  #late: NodeJS.Timeout | undefined;
  #hearing: Hearing | null = null;
  #held: Promise<void> = Promise.resolve();
  #version: string | null = null;
  readonly #flood = new Flood(MESSAGES_MAX);
  #strays = 0;
  end: string | null = null;
  waitingBytes = 0;

  constructor(options: SseLineOptions) {
    this.#options = options;
    this.#endpoint = new Promise((resolve, reject) => {
      this.#named = resolve;
      this.#unnamed = reject;
    });
    // Who posts hears of it; nobody may be posting.
    this.#endpoint.catch(() => {});
  }

  async start(hearing: Hearing): Promise<void> {
    const { connectMs } = this.#options;
    this.#hearing = hearing;
    this.#late = setTimeout(() => this.#over(`it did not say where to post to within ${connectMs} ms`), connectMs);
    void this.#listen();
  }

  agreed(version: string): void {
    this.#version = version;
  }

  /** S2 */
  async send(message: Envelope): Promise<void> {
    const text = JSON.stringify(message);
    const bytes = Buffer.byteLength(text);
    const isNotice = message.id === undefined;
    const before = isNotice ? soon([this.#held, ...this.#posting]) : this.#held;
    this.waitingBytes += bytes;
    const posting = before
      .then(() => this.#post(text))
      .finally(() => {
        this.waitingBytes -= bytes;
        this.#posting.delete(settled);
      });
    const settled = posting.catch(() => {});
    this.#posting.add(settled);
    if (isNotice) this.#held = soon([settled]);
    try {
      await posting;
    } catch (error) {
      // The end is told by `closed`; what answers nobody has nobody to tell.
      if (this.end === null && (isNotice || message.method === undefined)) this.#options.stray(`a message was not taken: ${wordsOf(error)}`);
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#over("it was ended");
  }

  async #listen(): Promise<void> {
    const { url, fetch } = this.#options;
    const { signal } = this.#closed;
    let answer: Response;
    try {
      answer = await fetch(url, { method: "GET", headers: { accept: "text/event-stream", "cache-control": "no-store" }, signal });
    } catch (error) {
      this.#over(this.#trouble(error).message);
      return;
    }
    const wrong = wrongWith(answer);
    if (wrong !== null) {
      this.#over(wrong);
      await drain(answer);
      return;
    }
    const parser = new SseParser((event) => this.#hear(event), ANSWER_BYTES_MAX, tooManyBytes);
    try {
      for await (const chunk of answer.body ?? []) parser.take(chunk);
      this.#over("its stream ended");
    } catch (error) {
      this.#over(error instanceof TooMuch ? error.message : "its stream broke off");
    }
  }

  #hear({ type, data }: ServerEvent): void {
    if (type === "endpoint" && !this.#isNamed) this.#go(data);
    if (type !== "message") return;
    // Up to revision 2025-03-26 a server may batch what it says.
    const given = parsed(data);
    for (const each of Array.isArray(given) ? given : [given]) {
      if (this.end !== null) return;
      const message = readEnvelope(each);
      if (message !== null) this.#hearing?.message(message);
      else if (this.#flood.isOver()) this.#over(tooManyMessages().message);
      else this.#stray("an event holds no message");
    }
  }

  /** S4 */
  #stray(says: string): void {
    this.#strays += 1;
    if (this.#strays <= STRAYS_TOLD) this.#options.stray(says);
  }

  /** S1 */
  #go(text: string): void {
    const { url } = this.#options;
    const endpoint = URL.canParse(text, url.href) ? new URL(text, url) : null;
    if (endpoint === null || endpoint.origin !== url.origin || refusedUrl(endpoint) !== null) {
      this.#over("it wants to be posted to at another origin than its own");
      return;
    }
    endpoint.hash = "";
    clearTimeout(this.#late);
    this.#isNamed = true;
    this.#named(endpoint);
  }

  async #post(body: string): Promise<void> {
    const endpoint = await this.#endpoint;
    const { signal } = this.#closed;
    const headers = {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...(this.#version !== null && { "mcp-protocol-version": this.#version }),
    };
    let answer: Response;
    try {
      answer = await this.#options.fetch(endpoint, {
        method: "POST",
        headers,
        body,
        signal: AbortSignal.any([signal, AbortSignal.timeout(TOTAL_MS)]),
      });
    } catch (error) {
      if (signal.aborted) throw new Error(this.end ?? "it ended");
      const { message, mayHaveRun } = this.#trouble(error);
      throw new Untaken(message, mayHaveRun, { cause: error });
    }
    void drain(answer);
    const { status } = answer;
    if (status >= 200 && status < 300) return;
    if (FORGOTTEN.has(status)) this.#over(`it does not know its own stream any more (${status})`);
    throw new Untaken(refusedWith(status), status >= 500);
  }

  /** In words without an address: they go to a client, who is not the one that named it. */
  #trouble(error: unknown): Trouble {
    for (let at = error, depth = 0; at instanceof Error && depth < CAUSES_MAX; at = at.cause, depth += 1) {
      if (!(at instanceof Unreachable)) continue;
      this.#options.stray(at.message);
      return new Trouble("its address may not be reached from here", { cause: error });
    }
    return troubleOf(error, this.#closed.signal, false);
  }

  /** S3 */
  #over(says: string): void {
    if (this.end !== null) return;
    this.end = says;
    clearTimeout(this.#late);
    this.#unnamed(new Error(says));
    this.#closed.abort(new Error(says));
    this.#hearing?.closed();
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // It is no message, and told of as such.
    return null;
  }
}

function wrongWith({ status, headers }: Response): string | null {
  if (status !== 200) return refusedWith(status);
  return /^text\/event-stream\b/i.test(headers.get("content-type") ?? "") ? null : "it answered with something else than a stream of events";
}

function refusedWith(status: number): string {
  if (status >= 300 && status < 400) return REDIRECTED;
  return status === 401 || status === 403
    ? `it refused the credentials it was given, or wants some (${status})`
    : `it answered with status ${status}`;
}

/** A connection whose answer was read can be used again. */
async function drain({ body }: Response): Promise<void> {
  let bytes = 0;
  try {
    for await (const chunk of body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > DRAINED_BYTES_MAX) return;
    }
  } catch {
    // What it says is not wanted, and the stream tells how the server is.
  }
}

const wordsOf = (error: unknown): string => (error instanceof Error ? error.message : "unknown");

/** All of it is over, or ORDER_MS are. */
async function soon(work: readonly Promise<void>[]): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ORDER_MS);
  });
  await Promise.race([Promise.all(work), late]);
  clearTimeout(timer);
}
