// One request of a client of the handshake era, run at a hand of the stateless era to its answer.

import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { mint } from "../../../session-store/ids.ts";
import type { Asks } from "../../mcp/handshake/asks.ts";
import type { ReplyStream } from "../../mcp/handshake/streams.ts";
import { errorMessage, INTERNAL_ERROR, INVALID_PARAMS, isRecord, keyOf, RpcError, type RpcId, resultMessage } from "../../mcp/rpc.ts";
import { lackingFor } from "../capabilities.ts";
import type { Exchange, RelaySession } from "../upstream.ts";
import { bellOf, type CrossedOptions, reasonOf, SERVER_INFO, shownTools, without } from "./crossed.ts";
import { type Incoming, type Params, recordOf } from "./incoming.ts";
import { askHand } from "./stateless-hand.ts";

const ROUNDS_MAX = 10;
const STATE_ROUND_MS = 100;
const ATTEND_AFTER_MS = 200;
const POLL_MS = 2_000;
/** A server says what it likes before a client sets a level; this is what most clients want to hear. */
const LEVEL = "info";
const RESOURCE_NOT_FOUND = -32_002;
const LACKS_CAPABILITY = -32_021;

const Questions = z.record(z.string(), z.looseObject({ method: z.enum(["elicitation/create", "sampling/createMessage", "roots/list"]) }));

interface Request {
  readonly id: RpcId;
  readonly method: string;
  readonly params: Params;
}

export class HandshakeCalls {
  readonly #options: CrossedOptions & { readonly asks: Asks };
  readonly #running = new Map<string, Set<{ readonly key: string; readonly off: AbortController }>>();

  constructor(options: CrossedOptions & { readonly asks: Asks }) {
    this.#options = options;
  }

  /** True when a call of that id runs here, and is called off now. */
  cancel(session: string, id: RpcId): boolean {
    const found = [...(this.#running.get(session) ?? [])].filter(({ key }) => key === keyOf(id));
    for (const { off } of found) off.abort(new Error("called off"));
    return found.length > 0;
  }

  close(): void {
    for (const running of this.#running.values())
      for (const { off } of running) off.abort(new RpcError(INTERNAL_ERROR, "This node is shutting down."));
  }

  /** The answer as a message; null when it was called off. `stream` carries what comes before it. */
  async run(exchange: Exchange, session: RelaySession, request: Request, stream: ReplyStream | null): Promise<object | null> {
    const entry = { key: keyOf(request.id), off: new AbortController() };
    const { signal } = entry.off;
    const running = this.#running.get(session.id) ?? new Set();
    this.#running.set(session.id, running.add(entry));
    const over = new AbortController();
    const attend = setTimeout(() => void this.#attend(exchange, session, entry, over.signal), ATTEND_AFTER_MS);
    try {
      return await this.#rounds(exchange, session, request, stream, signal);
    } catch (error) {
      if (signal.aborted) return signal.reason instanceof RpcError ? errorMessage(request.id, signal.reason) : null;
      if (error instanceof RpcError) return errorMessage(request.id, error);
      this.#options.log.error({ err: error, method: request.method }, "mcp.broke");
      return errorMessage(request.id, { code: INTERNAL_ERROR, message: "Internal error" });
    } finally {
      clearTimeout(attend);
      over.abort();
      running.delete(entry);
      if (running.size === 0 && this.#running.get(session.id) === running) this.#running.delete(session.id);
    }
  }

  async #rounds(exchange: Exchange, session: RelaySession, request: Request, stream: ReplyStream | null, signal: AbortSignal): Promise<object> {
    const { upstream } = exchange;
    const { id, method } = request;
    const hello = recordOf(JSON.parse(session.hello));
    const client = { info: hello.clientInfo, capabilities: recordOf(hello.capabilities) };
    let params = request.params;
    for (let round = 1; round <= ROUNDS_MAX; round += 1) {
      const asking = { upstream, method, params, client, level: session.level ?? LEVEL, signal };
      const answer = await this.#once(asking, stream);
      if (answer.error !== undefined) return { jsonrpc: "2.0", id, error: olderError(method, answer.error) };
      const result = recordOf(answer.result);
      if (result.resultType !== "input_required") return resultMessage(id, olderResult(method, result, upstream.policy.refused));
      const inputResponses = await this.#answers(session.id, result.inputRequests, client.capabilities, stream, signal);
      const { requestState } = result;
      params = { ...request.params, ...(inputResponses && { inputResponses }), ...(requestState !== undefined && { requestState }) };
    }
    throw new RpcError(INTERNAL_ERROR, `The hand asked more than ${ROUNDS_MAX} rounds of questions.`);
  }

  /** Notices go on to the client as they come; gives the answer. */
  async #once(asking: Parameters<typeof askHand>[0], stream: ReplyStream | null): Promise<Incoming> {
    for await (const message of askHand(asking)) {
      if (message.method === undefined) return message;
      if (message.id === undefined && stream && !asking.signal.aborted) await stream.send(message);
    }
    throw new RpcError(INTERNAL_ERROR, "The connection to the hand ended before its answer did. The request may have been carried out.");
  }

  async #answers(
    session: string,
    given: unknown,
    capabilities: Params,
    stream: ReplyStream | null,
    signal: AbortSignal,
  ): Promise<Record<string, unknown> | null> {
    const questions = Questions.safeParse(given ?? {});
    if (!questions.success) throw new RpcError(INTERNAL_ERROR, "The hand asks for something that no client of this revision can give.");
    const asked = Object.entries(questions.data);
    if (asked.length === 0) {
      await sleep(STATE_ROUND_MS, undefined, { signal });
      return null;
    }
    for (const [, { method, params }] of asked) {
      const lacking = lackingFor(method, params, capabilities);
      if (lacking || !stream)
        throw new RpcError(LACKS_CAPABILITY, `The hand needs ${method}, which this client did not say it can answer.`, {
          data: { requiredCapabilities: lacking ?? {} },
        });
    }
    const found = asked.map(async ([name, question]) => {
      const send = (message: object) => stream?.send(message) ?? Promise.resolve();
      return [name, await this.#options.asks.ask(session, spelled(question), send, signal)] as const;
    });
    return Object.fromEntries(await Promise.all(found));
  }

  /** Looks after the session while its call runs: another node may have been told to call it off. */
  async #attend(
    { sessions }: Exchange,
    session: RelaySession,
    { key, off }: { readonly key: string; readonly off: AbortController },
    over: AbortSignal,
  ): Promise<void> {
    const { store, log } = this.#options;
    const look = async (): Promise<void> => {
      if (over.aborted) return;
      const now = await sessions.peek(session.id);
      const { cancelled } = recordOf(now?.notes);
      const isOff = (Array.isArray(cancelled) ? cancelled.filter(isRecord) : []).some(
        ({ request, revision }) => request === key && Number(revision) > session.revision,
      );
      if (!now || isOff) off.abort(new Error("called off"));
    };
    const looked = () => void look().catch((error: unknown) => log.warn({ reason: reasonOf(error) }, "mcp.not_looked"));
    const timer = setInterval(looked, POLL_MS);
    over.addEventListener("abort", () => clearInterval(timer), { once: true });
    looked();
    try {
      const hush = await store.listen(bellOf(session.id), looked);
      if (over.aborted) hush();
      else over.addEventListener("abort", hush, { once: true });
    } catch (error) {
      // Without a bell there is the poll.
      log.warn({ reason: reasonOf(error) }, "mcp.bell_missed");
    }
  }
}

/** In this era a page to open has an id of its own. */
function spelled({ method, params }: z.infer<typeof Questions>[string]): { readonly method: string; readonly params: object } {
  const given = recordOf(params);
  const hasPage = method === "elicitation/create" && given.mode === "url" && !("elicitationId" in given);
  return { method, params: { ...given, ...(hasPage && { elicitationId: mint("elicit") }) } };
}

const CACHED = new Set(["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"]);

function olderResult(method: string, result: Params, refused: (tool: string) => string | null): Params {
  const { resultType } = result;
  const plain = without(result, ...(resultType === "complete" ? ["resultType"] : []), ...(CACHED.has(method) ? ["ttlMs", "cacheScope"] : []));
  const shown = method === "tools/list" ? shownTools(plain, refused) : plain;
  const meta = recordOf(shown._meta);
  if (!(SERVER_INFO in meta)) return shown;
  const { _meta, ...rest } = shown;
  const kept = without(meta, SERVER_INFO);
  return Object.keys(kept).length > 0 ? { ...rest, _meta: kept } : rest;
}

/** This era has a code of its own for a resource that is not there. */
function olderError(method: string, given: unknown): Params {
  const error = recordOf(given);
  const isMissing = method === "resources/read" && error.code === INVALID_PARAMS && typeof recordOf(error.data).uri === "string";
  return isMissing ? { ...error, code: RESOURCE_NOT_FOUND } : error;
}
