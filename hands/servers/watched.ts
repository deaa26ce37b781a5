// A transport that is watched: every request gets an answer or an error, and what a server says of its tools is taken as it is.
//
//   W1  A stream that ends before its request was answered is an error of that request: without this the request would wait for its time limit.
//   W3  What comes unasked is counted: a server that floods ends its connection, and its requests with an error that says so. Progress and log
//       messages pass on no faster than HEARD_PER_S; that there was some is all that is wanted of them.
//   W2  The lists and results of tools are kept raw, past the client's strict reading: one odd schema or unknown block must not lose all the others.

import type { JSONRPCMessage, MessageExtraInfo, Transport, TransportSendOptions } from "@modelcontextprotocol/client";

import { MESSAGES_MAX } from "./limits.ts";
import { Flood, tooManyMessages, tooMuchIn } from "./too-much.ts";

export const CLOSED = -32_099;
/** W3 */
const HEARD_PER_S = 50;
const DROPPABLE = new Set(["notifications/progress", "notifications/message"]);
const RAW = "manyhands/raw";

type Id = string | number;

const STAND_IN: Readonly<Record<string, object>> = {
  "tools/list": { tools: [], ttlMs: 0, cacheScope: "private" },
  "tools/call": { content: [] },
};

export class WatchedTransport implements Transport {
  readonly #inner: Transport;
  /** Method of each request that waits for its answer. */
  readonly #open = new Map<Id, string>();
  readonly #raw = new Map<Id, unknown>();
  readonly #flood = new Flood(MESSAGES_MAX);
  #heardAt = 0;
  /** Why the stream of a request ended, where that is known. */
  #cause: string | null = null;

  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage, extra?: MessageExtraInfo) => void;

  constructor(inner: Transport) {
    this.#inner = inner;
    inner.onclose = () => {
      if (this.#cause !== null) this.#endAll();
      this.onclose?.();
    };
    inner.onerror = (error) => {
      this.#cause = tooMuchIn(error.message) ?? this.#cause;
      this.onerror?.(error);
    };
    inner.onmessage = (message: JSONRPCMessage, extra?: MessageExtraInfo) => this.#hear(message, extra);
  }

  get hasPerRequestStream(): boolean {
    return this.#inner.hasPerRequestStream ?? false;
  }

  get sessionId(): string | undefined {
    return this.#inner.sessionId;
  }

  start(): Promise<void> {
    return this.#inner.start();
  }

  async send(message: JSONRPCMessage, options?: TransportSendOptions): Promise<void> {
    if ("method" in message && message.method === "notifications/cancelled") this.#forget(message.params?.requestId);
    if (!("method" in message) || !("id" in message)) return this.#inner.send(message, options);
    const { id, method } = message;
    this.#open.set(id, method);
    options?.requestSignal?.addEventListener("abort", () => this.#forget(id), { once: true });
    try {
      await this.#inner.send(message, { ...options, onRequestStreamEnd: () => this.#ended(id, options?.onRequestStreamEnd) });
    } catch (error) {
      this.#open.delete(id);
      throw error;
    }
  }

  close(): Promise<void> {
    return this.#inner.close();
  }

  setProtocolVersion(version: string): void {
    this.#inner.setProtocolVersion?.(version);
  }

  setSupportedProtocolVersions(versions: string[]): void {
    this.#inner.setSupportedProtocolVersions?.(versions);
  }

  /** The result as the server gave it, once. W2 */
  takeRaw(result: { readonly _meta?: Readonly<Record<string, unknown>> | undefined }): unknown {
    const id = result._meta?.[RAW];
    if (typeof id !== "string" && typeof id !== "number") return result;
    const raw = this.#raw.get(id);
    this.#raw.delete(id);
    return raw;
  }

  #hear(message: JSONRPCMessage, extra?: MessageExtraInfo): void {
    const id = "id" in message && !("method" in message) ? message.id : undefined;
    if (id === undefined) {
      if (this.#flood.isOver()) this.#cut();
      else if (this.#mayPass(message)) this.onmessage?.(message, extra);
      return;
    }
    this.#cause = null;
    const standIn = STAND_IN[this.#open.get(id) ?? ""];
    // An answer that nobody waits for any more is dropped here.
    if (!this.#open.delete(id)) return;
    if (standIn === undefined || !("result" in message) || message.result.resultType === "input_required") {
      this.onmessage?.(message, extra);
      return;
    }
    this.#raw.set(id, message.result);
    this.onmessage?.({ ...message, result: { ...standIn, resultType: "complete", _meta: { [RAW]: id } } }, extra);
  }

  /** A request that was cancelled: its answer, should it come, is nobody's. */
  #forget(id: unknown): void {
    if (typeof id === "string" || typeof id === "number") this.#open.delete(id);
  }

  /** W3 */
  #mayPass(message: JSONRPCMessage): boolean {
    if (!("method" in message) || !DROPPABLE.has(message.method)) return true;
    const now = performance.now();
    if (now - this.#heardAt < 1_000 / HEARD_PER_S) return false;
    this.#heardAt = now;
    return true;
  }

  /** W3 */
  #cut(): void {
    this.#cause = tooManyMessages().message;
    this.#endAll();
    void this.#inner.close();
  }

  #endAll(): void {
    for (const id of [...this.#open.keys()]) this.#ended(id, undefined);
  }

  /** W1 */
  #ended(id: Id, then: (() => void) | undefined): void {
    then?.();
    if (!this.#open.delete(id)) return;
    this.onmessage?.({ jsonrpc: "2.0", id, error: { code: CLOSED, message: this.#cause ?? "the connection was closed before the answer came" } });
  }
}
