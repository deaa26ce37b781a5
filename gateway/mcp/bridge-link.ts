// The HTTP side of the bridge: one message out, and what comes back, from JSON or from a stream that may break off and be resumed.

import { Agent, request } from "undici";
import { SseReader } from "./sse-reader.ts";

/** No answer's length is limited: a turn may take hours, and its stream says that it lives. */
const HEADERS_MS = 60_000;
/** Twice what a door stays silent for. */
const SILENT_MS = 60_000;
const RESUMES_MAX = 10;
const BODY_BYTES_MAX = 64 * 1024 * 1024;

export interface Head {
  readonly version?: string;
  readonly method?: string;
  readonly name?: string;
}

type Hear = (message: unknown) => void;

export class BridgeLink {
  session: string | null = null;
  version: string | null = null;
  readonly #url: string;
  readonly #key: string | null;
  readonly #agent = new Agent({ headersTimeout: HEADERS_MS, bodyTimeout: SILENT_MS, connections: 256 });

  constructor(url: string, key: string | null) {
    this.#url = url;
    this.#key = key;
  }

  /** "no session": the door does not know the session that this was sent in. */
  async post(text: string, head: Head, hear: Hear, signal: AbortSignal): Promise<"done" | "no session"> {
    const headers = { ...this.#headers(head), "content-type": "application/json", accept: "application/json, text/event-stream" };
    const answer = await request(this.#url, { method: "POST", headers, body: text, signal, dispatcher: this.#agent });
    if (answer.statusCode === 404 && this.session !== null && head.version === undefined) {
      await answer.body.dump();
      return "no session";
    }
    const opened = answer.headers["mcp-session-id"];
    if (typeof opened === "string") this.session = opened;
    if (isStream(answer.headers)) {
      await this.#stream(answer.body, hear, signal, head.version === undefined);
      return "done";
    }
    const body = await readText(answer.body);
    const message = body === "" ? null : parsed(body);
    if (answer.statusCode >= 400 && !isMessage(message)) throw new Error(`the door answered ${answer.statusCode}`);
    if (isMessage(message)) hear(message);
    return "done";
  }

  async listen(hear: Hear, signal: AbortSignal): Promise<void> {
    const answer = await request(this.#url, { headers: { ...this.#headers({}), accept: "text/event-stream" }, signal, dispatcher: this.#agent });
    if (isStream(answer.headers)) await this.#stream(answer.body, hear, signal, false);
    else await answer.body.dump();
  }

  /** Ends the session, if there is one, and the connections. */
  async close(withinMs: number): Promise<void> {
    if (this.session !== null) {
      const signal = AbortSignal.timeout(withinMs);
      const ended = request(this.#url, { method: "DELETE", headers: this.#headers({}), signal, dispatcher: this.#agent });
      // A session that can't be ended now ends by itself.
      await ended.then(({ body }) => body.dump()).catch(() => {});
    }
    await this.#agent.destroy();
  }

  async #stream(body: AsyncIterable<Buffer>, hear: Hear, signal: AbortSignal, mayResume: boolean): Promise<void> {
    let isAnswered = false;
    const reader = new SseReader((text) => {
      const message = parsed(text);
      if (isMessage(message)) hear(message);
      isAnswered ||= isMessage(message) && !("method" in message);
    });
    let from = body;
    for (let resumes = 0; ; resumes += 1) {
      try {
        for await (const chunk of from) reader.take(chunk);
      } catch (error) {
        if (signal.aborted || !mayResume) throw error;
      }
      if (isAnswered || !mayResume) return;
      if (resumes >= RESUMES_MAX || reader.place === null) throw new Error("the answer broke off");
      const headers = { ...this.#headers({}), accept: "text/event-stream", "last-event-id": reader.place };
      const answer = await request(this.#url, { headers, signal, dispatcher: this.#agent });
      if (!isStream(answer.headers)) throw new Error("the answer broke off");
      from = answer.body;
    }
  }

  #headers({ version, method, name }: Head): Record<string, string> {
    const headers: Record<string, string> = this.#key === null ? {} : { authorization: `Bearer ${this.#key}` };
    if (version !== undefined) {
      headers["mcp-protocol-version"] = version;
      if (method !== undefined) headers["mcp-method"] = method;
      if (name !== undefined) headers["mcp-name"] = encoded(name);
      return headers;
    }
    if (this.session !== null) headers["mcp-session-id"] = this.session;
    if (this.session !== null && this.version !== null) headers["mcp-protocol-version"] = this.version;
    return headers;
  }
}

/** What a header can't hold goes there in the protocol's own spelling. */
const encoded = (name: string): string =>
  /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(name) && !name.startsWith("=?") ? name : `=?base64?${Buffer.from(name).toString("base64")}?=`;

const isStream = (headers: Readonly<Record<string, unknown>>): boolean => String(headers["content-type"] ?? "").startsWith("text/event-stream");

const isMessage = (value: unknown): value is object => typeof value === "object" && value !== null && "jsonrpc" in value;

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("the door's answer is not JSON");
  }
}

async function readText(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > BODY_BYTES_MAX) throw new Error(`the answer is over the limit of ${BODY_BYTES_MAX} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
