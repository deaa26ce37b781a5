// One request of the handshake era, run to its answer.
//
//   C1  It is called off by the client's notice at any node, or by the end of its session; not by a connection that ends.
//   C2  A tool that asks is run again with the client's answers, at most ROUNDS_MAX times; what a client did not say it can answer is not asked.

import { setTimeout as sleep } from "node:timers/promises";
import type { ClientCapabilities, InputRequest, LoggingLevel } from "@modelcontextprotocol/server";
import type { Logger } from "pino";
import { mint } from "../../../session-store/ids.ts";
import type { Caller } from "../caller.ts";
import type { Catalogue } from "../dispatch.ts";
import type { RpcId } from "../rpc.ts";
import { errorMessage, INTERNAL_ERROR, keyOf, RpcError, resultMessage } from "../rpc.ts";
import type { Ask, CallContext } from "../surface.ts";
import { failure, isAsk, requestKeyOf } from "../surface.ts";
import type { Asks } from "./asks.ts";
import type { Attendance } from "./attendance.ts";
import { type HandshakeSession, LEVELS } from "./sessions.ts";
import type { ReplyStream } from "./streams.ts";

const ROUNDS_MAX = 10;
const STATE_ROUND_MS = 100;
/** Most calls are over before anybody could call them off: only the others are looked after. */
const ATTEND_AFTER_MS = 200;

export interface CallRequest {
  readonly id: RpcId;
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
}

interface Parts {
  readonly catalogue: Catalogue;
  readonly asks: Asks;
  readonly attendance: Attendance;
  readonly log: Logger;
}

/** Calls that run on this node, by session. */
export class Calls {
  readonly #parts: Parts;
  readonly #running = new Map<string, Set<{ readonly key: string; readonly off: AbortController }>>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** True when a call of that id runs here, and is called off now. */
  cancel(session: string, id: RpcId): boolean {
    const found = [...(this.#running.get(session) ?? [])].filter(({ key }) => key === keyOf(id));
    for (const { off } of found) off.abort(new Error("called off"));
    return found.length > 0;
  }

  /** The answer as a message; null when it was called off: then there is none to give. `stream` carries what comes before it. */
  async run(session: HandshakeSession, caller: Caller, request: CallRequest, stream: ReplyStream | null): Promise<object | null> {
    const key = keyOf(request.id);
    const off = new AbortController();
    const over = new AbortController();
    const running = this.#running.get(session.id) ?? new Set();
    const entry = { key, off };
    this.#running.set(session.id, running.add(entry));
    const attend = setTimeout(() => {
      const hear = (now: HandshakeSession | null) => {
        if (!now || now.cancelled.some((each) => each.request === key && each.revision > session.revision)) off.abort(new Error("called off"));
      };
      this.#parts.attendance.join(session.id, hear, over.signal);
    }, ATTEND_AFTER_MS);
    try {
      const result = await this.#rounds(session, request, stream, this.#context(session, caller, request, stream, off.signal));
      return off.signal.aborted ? null : resultMessage(request.id, result);
    } catch (error) {
      if (off.signal.aborted) return null;
      if (error instanceof RpcError) return errorMessage(request.id, error);
      this.#parts.log.error({ err: error, method: request.method }, "mcp.broke");
      return errorMessage(request.id, { code: INTERNAL_ERROR, message: "Internal error" });
    } finally {
      clearTimeout(attend);
      over.abort();
      running.delete(entry);
      if (running.size === 0 && this.#running.get(session.id) === running) this.#running.delete(session.id);
    }
  }

  /** C2 */
  async #rounds(session: HandshakeSession, request: CallRequest, stream: ReplyStream | null, first: CallContext): Promise<object> {
    const { catalogue } = this.#parts;
    const { _meta, ...params } = request.params;
    let context = first;
    for (let round = 1; round <= ROUNDS_MAX; round += 1) {
      const result = await catalogue.run(request.method, params, context);
      if (!isAsk(result)) return result;
      const missing = Object.values(result.questions).find((question) => !canAnswer(session.client, question));
      if (missing || !stream) return this.#unasked(request.method, missing?.method ?? "a question");
      context = { ...context, state: result.state, answers: await this.#answers(session.id, result, stream, context.signal) };
    }
    return this.#unasked(request.method, `more than ${ROUNDS_MAX} rounds of questions`);
  }

  async #answers(session: string, { questions }: Ask, stream: ReplyStream, signal: AbortSignal): Promise<Record<string, unknown>> {
    const asked = Object.entries(questions);
    if (asked.length === 0) await sleep(STATE_ROUND_MS, undefined, { signal });
    const found = asked.map(async ([name, question]) => {
      return [name, await this.#parts.asks.ask(session, spelled(question), (message) => stream.send(message), signal)] as const;
    });
    return Object.fromEntries(await Promise.all(found));
  }

  #unasked(method: string, what: string): object {
    const says = `This needs ${what}, which this client did not say it can answer.`;
    if (method === "tools/call") return failure(says);
    throw new RpcError(INTERNAL_ERROR, says);
  }

  #context(session: HandshakeSession, caller: Caller, request: CallRequest, stream: ReplyStream | null, signal: AbortSignal): CallContext {
    const meta = request.params._meta;
    const token = typeof meta === "object" && meta !== null && "progressToken" in meta ? meta.progressToken : undefined;
    const progressToken = typeof token === "string" || typeof token === "number" ? token : undefined;
    const tell = (method: string, params: object) => {
      if (stream && !stream.isBusy && !signal.aborted) void stream.send({ jsonrpc: "2.0", method, params });
    };
    return {
      caller,
      era: "handshake",
      client: session.client,
      signal,
      answers: null,
      state: undefined,
      progressToken,
      requestKey: requestKeyOf(meta, `${session.id} ${keyOf(request.id)}`),
      progress: (progress, total, message) => {
        if (progressToken === undefined) return;
        tell("notifications/progress", { progressToken, progress, ...(total !== undefined && { total }), ...(message !== undefined && { message }) });
      },
      log: (level, data, logger) => {
        if (isLoud(level, session.level)) tell("notifications/message", { level, ...(logger !== undefined && { logger }), data });
      },
      hangUp: () => stream?.hangUp(),
    };
  }
}

const isLoud = (level: LoggingLevel, least: LoggingLevel | null): boolean => least === null || LEVELS.indexOf(level) >= LEVELS.indexOf(least);

/** In this era a page to open has an id of its own. */
function spelled({ method, params: given = {} }: InputRequest): { readonly method: string; readonly params: object } {
  const params: Readonly<Record<string, unknown>> = { ...given };
  const hasPage = method === "elicitation/create" && params.mode === "url" && !("elicitationId" in params);
  return { method, params: { ...params, ...(hasPage && { elicitationId: mint("elicit") }) } };
}

/** C2 */
function canAnswer(client: ClientCapabilities, question: InputRequest): boolean {
  switch (question.method) {
    case "elicitation/create":
      if (!client.elicitation) return false;
      if (question.params.mode === "url") return client.elicitation.url !== undefined;
      return client.elicitation.form !== undefined || client.elicitation.url === undefined;
    case "sampling/createMessage":
      return client.sampling !== undefined;
    case "roots/list":
      return client.roots !== undefined;
  }
}
