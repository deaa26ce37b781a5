// `manyhands mcp`: a door for clients that only start programs. Lines on standard input go to the door over HTTP, its answers come back as lines.
//
//   B1  Envelopes pass as they are, in both eras; what HTTP needs beside them (session, revision, method and name) is read from them.
//   B2  What was asked is answered: a door that can't be reached, or refuses, is an error for each request that went there.
//   B3  A session that the door does not know any more is opened again with the client's own greeting, once, and the message is sent again.
//   B4  When standard input closes, what is under way has END_MS to come to its end; then the session is ended, and the program.
//   B5  Standard output holds messages and nothing else. The key goes into a header and nowhere else.

import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { refuseBatch } from "./batch.ts";
import { BridgeLink } from "./bridge-link.ts";
import { errorMessage, RpcError } from "./rpc.ts";

const END_MS = 2_000;
const LISTEN_AGAIN_MS = 1_000;
const UNDER_WAY_MAX = 1_024;
const VERSION_META = "io.modelcontextprotocol/protocolVersion";

const Line = z.looseObject({
  id: z.union([z.string(), z.number()]).optional(),
  method: z.string().optional(),
  params: z.looseObject({ _meta: z.looseObject({ [VERSION_META]: z.string().optional() }).optional() }).optional(),
});
type Line = z.infer<typeof Line>;
const Named = z.looseObject({ name: z.string().optional(), uri: z.string().optional() });
const Cancelled = z.looseObject({ requestId: z.union([z.string(), z.number()]) });
const Initialized = z.looseObject({ result: z.looseObject({ protocolVersion: z.string() }) });

export interface BridgeOptions {
  readonly url: string;
  readonly key: string | null;
  readonly input: Readable;
  readonly output: Writable;
  /** For a person who looks: standard error. */
  readonly say: (text: string) => void;
}

export async function runBridge(options: BridgeOptions): Promise<void> {
  const bridge = new Bridge(options);
  const lines = createInterface({ input: options.input, crlfDelay: Number.POSITIVE_INFINITY });
  for await (const line of lines) if (line.trim() !== "") await bridge.take(line);
  await bridge.end();
}

class Bridge {
  readonly #options: BridgeOptions;
  readonly #link: BridgeLink;
  readonly #underWay = new Map<string, { readonly off: AbortController; readonly done: Promise<void> }>();
  readonly #ended = new AbortController();
  #hello: string | null = null;
  #reopening: Promise<void> | null = null;

  constructor(options: BridgeOptions) {
    this.#options = options;
    this.#link = new BridgeLink(options.url, options.key);
  }

  /** Sends one line on; resolves when it may be followed by the next. */
  async take(text: string): Promise<void> {
    let given: unknown;
    try {
      given = JSON.parse(text);
    } catch {
      given = null;
    }
    if (Array.isArray(given)) return await this.#batch(given);
    const read = Line.safeParse(given);
    if (!read.success) return this.#write({ jsonrpc: "2.0", id: null, error: { code: -32_700, message: "The line is not a JSON-RPC message." } });
    const line = read.data;
    const version = line.params?._meta?.[VERSION_META];
    if (line.method === "notifications/cancelled" && this.#link.session === null) return this.#callOff(line);
    if (this.#underWay.size >= UNDER_WAY_MAX) await Promise.race([...this.#underWay.values()].map(({ done }) => done));
    const off = new AbortController();
    const key = JSON.stringify(line.id ?? [Math.random()]);
    const done = this.#carry(text, line, version ?? null, off.signal).finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, { off, done });
    // A greeting decides how everything after it is sent; an answer or a notice keeps its place.
    if (line.method === "initialize" || line.id === undefined || line.method === undefined) await done;
  }

  /** Answers are lines in any case: each message of a batch goes by itself. */
  async #batch(messages: readonly unknown[]): Promise<void> {
    try {
      refuseBatch(messages, this.#link.version);
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      return this.#write(errorMessage(null, error));
    }
    for (const message of messages) await this.take(JSON.stringify(message));
  }

  /** B4 */
  async end(): Promise<void> {
    await Promise.race([Promise.all([...this.#underWay.values()].map(({ done }) => done)), sleep(END_MS)]);
    this.#ended.abort();
    for (const { off } of this.#underWay.values()) off.abort();
    await this.#link.close(END_MS);
  }

  /** In the stateless era a request is called off by closing its stream. */
  #callOff(line: Line): void {
    const read = Cancelled.safeParse(line.params);
    if (read.success) this.#underWay.get(JSON.stringify(read.data.requestId))?.off.abort();
  }

  async #carry(text: string, line: Line, version: string | null, off: AbortSignal): Promise<void> {
    try {
      await this.#exchange(text, line, version, off);
    } catch (error) {
      if (off.aborted) return;
      const says = error instanceof Error ? error.message : "no reason";
      this.#options.say(`manyhands mcp: ${says}`);
      if (line.id !== undefined && line.method !== undefined)
        this.#write({ jsonrpc: "2.0", id: line.id, error: { code: -32_000, message: `Manyhands did not take this: ${says}` } });
    }
  }

  async #exchange(text: string, line: Line, version: string | null, off: AbortSignal): Promise<void> {
    const isHello = line.method === "initialize" && version === null;
    if (isHello) this.#hello = text;
    const named = Named.safeParse(line.params).data;
    const name = named?.name ?? named?.uri;
    const head = version === null ? {} : { version, ...(line.method !== undefined && { method: line.method }), ...(name !== undefined && { name }) };
    const hear = (message: unknown) => {
      const greeted = isHello ? Initialized.safeParse(message) : null;
      if (greeted?.success) this.#link.version = greeted.data.result.protocolVersion;
      this.#write(message);
    };
    const before = this.#link.session;
    const isLost = (await this.#link.post(text, head, hear, off)) === "no session";
    if (isLost && !isHello && this.#hello !== null) {
      await this.#reopen(before);
      if ((await this.#link.post(text, head, hear, off)) === "no session") throw new Error("the session was lost twice");
    } else if (isLost) throw new Error("the session is not known");
    if (line.method === "notifications/initialized" && this.#link.session !== null) void this.#listen();
  }

  /** B3. One at a time: who comes second finds it done. */
  async #reopen(before: string | null): Promise<void> {
    if (this.#link.session !== before) return;
    this.#reopening ??= (async () => {
      this.#link.session = null;
      await this.#link.post(this.#hello ?? "", {}, () => {}, this.#ended.signal);
      await this.#link.post('{"jsonrpc":"2.0","method":"notifications/initialized"}', {}, () => {}, this.#ended.signal);
    })().finally(() => {
      this.#reopening = null;
    });
    await this.#reopening;
  }

  /** What the server says by itself, for as long as the session is there. */
  async #listen(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      try {
        await this.#link.listen((message) => this.#write(message), this.#ended.signal);
      } catch (error) {
        if (!this.#ended.signal.aborted) this.#options.say(`manyhands mcp: ${error instanceof Error ? error.message : "no reason"}`);
      }
      await sleep(LISTEN_AGAIN_MS, undefined, { signal: this.#ended.signal }).catch(() => {});
    }
  }

  #write(message: unknown): void {
    this.#options.output.write(`${JSON.stringify(message)}\n`);
  }
}
