// The client of hand hosts: MCP 2026-07-28 as plain JSON-RPC posts over keep-alive pools.
//
//   Z1  Every request may be sent again: calls have their tool use id (M1), everything else is idempotent under its fence. So trouble with a
//       connection is answered by asking again, at the address looked up anew, until HAND_LOST_MS have passed without a sign of life.
//   Z2  The abort of a signal ends the waiting and nothing else. `cancel` ends a tool. An interrupted caller calls it; one that lost its lease or
//       shuts down does not, because the next holder awaits the same call (M5).
//   Z3  A stream without a sign of life for SILENCE_MS is dead, however long its tool may run: the host sends one every few seconds.

import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { type Dispatcher, errors, Pool } from "undici";
import { z } from "zod";
import { ResultBlock } from "../session-store/events/content.ts";
import { parseSessionId, type SessionId } from "../session-store/ids.ts";
import { REFUSALS, Refusal, type RefusalCode } from "../session-store/refusal.ts";
import { type HandRef, type Hands, type Holder, META, type Outcome } from "./hand.ts";
import { ServerTools } from "./server-tools.ts";

const HAND_LOST_MS = 30_000;
const SILENCE_MS = 20_000;
const CONNECT_MS = 3_000;
const RETRY_MS_MIN = 50;
const RETRY_MS_MAX = 1_000;
const CONNECTIONS_MAX = 512;
const ANSWER_CHARS_MAX = 64 * 1024 * 1024;
const SETTLED_AT_ONCE = 1_000;

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

/** Hands, and the end of their connections. */
export interface HandsClient extends Hands {
  close(): Promise<void>;
}

const McpContent = z.union([
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
type ToolAnswer = z.infer<typeof ToolAnswer>;
const RpcAnswer = z.union([
  z.object({ id: z.number(), result: z.unknown() }),
  z.object({
    id: z.number().nullish(),
    error: z.object({ code: z.number(), message: z.string(), data: z.object({ refusal: z.string() }).nullish().catch(undefined) }),
  }),
]);
const Provisioned = z.object({ hand: z.string(), host: z.string() });
const session = z.string().transform((text, context): SessionId => {
  const id = parseSessionId(text);
  if (id !== null) return id;
  context.addIssue({ code: "custom", message: "no session id" });
  return z.NEVER;
});
const Instances = z.object({ instances: z.array(z.object({ hand: z.string(), session })) });

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

export function makeHands(options: HandsOptions): HandsClient {
  const wire = new Wire(options);
  const onHost = (host: string | undefined, tool: string, input: unknown, signal: AbortSignal) =>
    wire.ask({ host, path: "/mcp", tool, input, meta: {} }, signal);
  return {
    async provision(holder, wanted, signal) {
      const answer = await onHost(undefined, "provision", { holder, resources: wanted }, signal);
      return Provisioned.parse(answer.structuredContent);
    },
    async listTools(holder, { hand, host }, { known, waitMs, isFresh }, signal) {
      const answer = await onHost(host, "list_tools", { holder, hand, known, wait_ms: waitMs, is_fresh: isFresh }, signal);
      return ServerTools.parse(answer.structuredContent);
    },
    async announce(holder, { hand, host }, signal) {
      await onHost(host, "announce", { holder, hand }, signal);
    },
    async execute(holder, { hand, host }, use, mayRerun, signal) {
      const meta = { ...ours(holder, host), [META.toolUseId]: use.id, [META.rerun]: mayRerun };
      return outcomeOf(await wire.ask({ host, path: `/mcp/hands/${hand}`, tool: use.name, input: use.input, meta }, signal));
    },
    async cancel(holder, { hand, host }, toolUseId, signal) {
      return outcomeOf(await onHost(host, "cancel", { holder, hand, tool_use_id: toolUseId }, signal));
    },
    async transfer(holder, { hand, host }, to, signal) {
      await onHost(host, "transfer", { holder, hand, to }, signal);
    },
    async settled(holder, { hand, host }, toolUseIds, signal) {
      for (let from = 0; from < toolUseIds.length; from += SETTLED_AT_ONCE)
        await onHost(host, "settled", { holder, hand, tool_use_ids: toolUseIds.slice(from, from + SETTLED_AT_ONCE) }, signal);
    },
    async release(session, host, signal) {
      await onHost(host, "release", { session }, signal);
    },
    async instances(host, signal) {
      return Instances.parse((await onHost(host, "instances", {}, signal)).structuredContent).instances;
    },
    close: () => wire.close(),
  };
}

function ours(holder: Holder, host: HandRef["host"]): Record<string, unknown> {
  return { [META.session]: holder.session, [META.fence]: holder.fence, [META.host]: host };
}

function outcomeOf(answer: ToolAnswer): Outcome {
  const told = answer._meta?.["manyhands/outcome"];
  return told ?? { type: "done", content: answer.content.map(blockOf), isError: answer.isError ?? false };
}

function blockOf(part: z.infer<typeof McpContent>): ResultBlock {
  switch (part.type) {
    case "text":
      return ResultBlock.parse({ type: "text", text: part.text });
    case "image":
      return ResultBlock.parse({ type: "image", source: { type: "base64", media_type: part.mimeType, data: part.data } });
    case "resource":
      return ResultBlock.parse({ type: "document", source: { type: "base64", media_type: part.resource.mimeType, data: part.resource.blob } });
  }
}

class Wire {
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
