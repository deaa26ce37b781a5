// How hand hosts are asked: MCP 2026-07-28 as plain JSON-RPC posts over keep-alive pools.
//
//   Z1  Every request may be sent again: calls have their tool use id (M1), everything else is idempotent under its fence. So trouble with a
//       connection is answered by asking again, at the address looked up anew, until HAND_LOST_MS have passed without a sign of life.
//   Z3  A stream without a sign of life for SILENCE_MS is dead, however long its tool may run: the host sends one every few seconds.

import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { type Dispatcher, errors, Pool } from "undici";
import { z } from "zod";
import { REFUSALS, Refusal, type RefusalCode } from "../session-store/refusal.ts";

const HAND_LOST_MS = 30_000;
const SILENCE_MS = 20_000;
const CONNECT_MS = 3_000;
const RETRY_MS_MIN = 50;
const RETRY_MS_MAX = 1_000;
const CONNECTIONS_MAX = 512;
const ANSWER_CHARS_MAX = 64 * 1024 * 1024;

const PROTOCOL = "2026-07-28";
const ENVELOPE = {
  "io.modelcontextprotocol/protocolVersion": PROTOCOL,
  "io.modelcontextprotocol/clientInfo": { name: "manyhands", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};

export interface HandsOptions {
  /** Where a hand host is now. Asked again while there is trouble; a refusal of it is final. */
  readonly resolve: (hostId: string) => Promise<{ readonly url: string; readonly boot: number }>;
  /** The hand host on which new hands are made. */
  readonly local: { readonly url: string };
  readonly handKey: string;
  readonly log: Logger;
  /** For tests; HAND_LOST_MS otherwise. */
  readonly handLostMs?: number;
}

export const McpContent = z.union([
  z.object({ type: z.literal("text"), text: z.string() }),
  z.object({ type: z.literal("image"), data: z.string(), mimeType: z.string() }),
  z.object({ type: z.literal("resource"), resource: z.object({ uri: z.string(), mimeType: z.string(), blob: z.string() }) }),
]);
const OutcomeMeta = z.union([
  z.object({ type: z.literal("failed"), reason: z.string() }),
  z.object({ type: z.literal("unknown"), reason: z.string() }),
]);
const ToolAnswer = z.object({
  content: z.array(McpContent),
  isError: z.boolean().optional(),
  structuredContent: z.unknown().optional(),
  _meta: z.object({ "manyhands/outcome": OutcomeMeta.optional() }).optional(),
});
export type ToolAnswer = z.infer<typeof ToolAnswer>;
const RpcAnswer = z.union([
  z.object({ id: z.number(), result: z.unknown() }),
  z.object({
    id: z.number().nullish(),
    error: z.object({ code: z.number(), message: z.string(), data: z.object({ refusal: z.string() }).nullish().catch(undefined) }),
  }),
]);
/** What may go away by itself: no connection, a cut one, a host that is on its way up or down. */
class Trouble extends Error {
  override readonly name = "Trouble";
}

interface Ask {
  /** Undefined: the local host. */
  readonly host: string | undefined;
  readonly path: string;
  readonly tool: string;
  readonly input: unknown;
  readonly meta: Readonly<Record<string, unknown>>;
}

export class Wire {
  readonly #options: HandsOptions;
  readonly #pools = new Map<string, Pool>();
  #lastId = 0;
  #isClosed = false;

  constructor(options: HandsOptions) {
    this.#options = options;
  }

  /** Z1 */
  async ask(ask: Ask, callers: AbortSignal): Promise<ToolAnswer> {
    const signal = AbortSignal.any([callers]); // One of its own: many calls may share the caller's, and each would add listeners to it.
    const lostMs = this.#options.handLostMs ?? HAND_LOST_MS;
    // Never the wall clock: one that is set forward would lose a hand that is there, with its files.
    let heardAt = performance.now();
    const heard = (): void => {
      heardAt = performance.now();
    };
    for (let waitMs = RETRY_MS_MIN; ; waitMs = Math.min(waitMs * 2, RETRY_MS_MAX)) {
      signal.throwIfAborted();
      try {
        return await this.#post(await this.#urlOf(ask.host), ask, signal, heard);
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        if (this.#isClosed) throw new Refusal("shutting_down", undefined, { cause: error });
        if (!(error instanceof Trouble)) throw error;
        const silentMs = Math.round(performance.now() - heardAt);
        this.#options.log.warn({ host: ask.host, tool: ask.tool, reason: error.message, silentMs }, "hand.unreachable");
        if (silentMs >= lostMs) throw new Refusal("hand_lost", undefined, { detail: error.message, cause: error });
      }
      await sleep(waitMs, undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#pools.values()].map((pool) => pool.destroy()));
  }

  async #urlOf(host: string | undefined): Promise<string> {
    return host === undefined ? this.#options.local.url : (await this.#options.resolve(host)).url;
  }

  async #post(url: string, ask: Ask, signal: AbortSignal, heard: () => void): Promise<ToolAnswer> {
    this.#lastId += 1;
    const id = this.#lastId;
    const params = { name: ask.tool, arguments: ask.input, _meta: { ...ENVELOPE, ...ask.meta } };
    const headers = {
      authorization: `Bearer ${this.#options.handKey}`,
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": PROTOCOL,
      "mcp-method": "tools/call",
      "mcp-name": ask.tool,
    };
    const body = JSON.stringify({ jsonrpc: "2.0", id, method: "tools/call", params });
    try {
      const answer = await this.#pool(url).request({ method: "POST", path: ask.path, headers, body, signal });
      return answerOf(await readAnswer(answer, id, heard));
    } catch (error) {
      throw isTrouble(error) ? new Trouble(error instanceof Error ? error.message : "connection lost", { cause: error }) : error;
    }
  }

  #pool(url: string): Pool {
    const { origin } = new URL(url);
    const pool =
      this.#pools.get(origin) ??
      new Pool(origin, {
        connections: CONNECTIONS_MAX,
        headersTimeout: SILENCE_MS,
        bodyTimeout: SILENCE_MS,
        connect: { timeout: CONNECT_MS },
        pipelining: 1,
      });
    this.#pools.set(origin, pool);
    return pool;
  }
}

/**
 * The message with this id, from a JSON body or an event stream. Only comments are signs of life: they say that the call is at work, whereas a
 * host that answers each attempt with another "not here" would keep the caller waiting for ever. Z3
 */
async function readAnswer({ statusCode, headers, body }: Dispatcher.ResponseData, id: number, heard: () => void): Promise<unknown> {
  if (statusCode === 401 || statusCode === 403) {
    await body.dump();
    throw new Refusal("hand_lost", undefined, { detail: `the hand host answered ${statusCode}: is its hand key another one?` });
  }
  if (statusCode >= 500) {
    await body.dump();
    throw new Trouble(`the hand host answered ${statusCode}`);
  }
  const isStream = String(headers["content-type"] ?? "").startsWith("text/event-stream");
  body.setEncoding("utf8");
  let text = "";
  for await (const piece of body) {
    if (isStream && String(piece).startsWith(":")) heard();
    const from = Math.max(0, text.length - 1);
    text += String(piece);
    if (text.length > ANSWER_CHARS_MAX) throw new Refusal("too_large", "The hand host's answer is over the limit.");
    if (!isStream || text.indexOf("\n\n", from) < 0) continue;
    const events = text.split("\n\n");
    text = events.pop() ?? "";
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data:"));
      if (data.length === 0) continue;
      const message = parsed(data.map((line) => line.slice("data:".length)).join("\n"));
      if (typeof message === "object" && message !== null && "id" in message && (message.id === id || message.id === null)) return message;
    }
  }
  if (isStream) throw new Trouble("the stream ended before the answer came");
  return parsed(text);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The parser's own words quote the answer, and an answer is never logged.
    throw new Trouble("the hand host's answer was garbled");
  }
}

function answerOf(message: unknown): ToolAnswer {
  const answer = RpcAnswer.parse(message);
  if (!("error" in answer)) return ToolAnswer.parse(answer.result);
  const { code, message: says, data } = answer.error;
  const refusal = data?.refusal;
  if (refusal === "wrong_host") throw new Trouble("another hand host answers at this address");
  if (refusal !== undefined && isRefusalCode(refusal)) {
    if (refusal === "shutting_down") throw new Trouble(says);
    throw new Refusal(refusal, says);
  }
  throw new Error(`the hand host answered with an error: ${code} ${says}`);
}

const isRefusalCode = (text: string): text is RefusalCode => Object.hasOwn(REFUSALS, text);

/** Z1 */
function isTrouble(error: unknown): boolean {
  if (error instanceof Trouble || error instanceof errors.UndiciError) return true;
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return (
    typeof code === "string" &&
    ["ECONNREFUSED", "ECONNRESET", "EPIPE", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "EAI_AGAIN"].includes(code)
  );
}
