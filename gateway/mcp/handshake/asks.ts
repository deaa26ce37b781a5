// Questions of ours to a client of the handshake era (elicitation, sampling, roots), and its answers.
//
//   Q1  A question is stored before it is sent; its answer may arrive at any node, and is taken once.
//   Q2  Only the session that was asked can answer; an answer to nothing is dropped.
//   Q3  The one who asked looks when the bell rings, and every POLL_MS; after ANSWER_MS, or when it is called off, the question is gone.

import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { mint, topic } from "../../../session-store/ids.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import { WORKSPACE } from "../kept.ts";
import type { Answered, RpcId } from "../rpc.ts";
import { RpcError } from "../rpc.ts";

export const ASK_KIND = "mcp_ask";
const POLL_MS = 1_000;
export const ANSWER_MS = 600_000;

const Body = z.object({ session: z.string(), answer: z.custom<Answered>((value) => typeof value === "object").nullable() });

export class Asks {
  readonly #store: SessionStore;

  constructor(store: SessionStore) {
    this.#store = store;
  }

  /** Sends a question by `send` and gives what the client answered. Q1 Q3 */
  async ask(session: string, question: { readonly method: string }, send: (message: object) => Promise<void>, signal: AbortSignal): Promise<unknown> {
    const id = mint("ask");
    await this.#store.put(WORKSPACE, [{ kind: ASK_KIND, id, body: { session, answer: null }, replaces: 0 }]);
    let ring = () => {};
    const hush = await this.#store.listen(topic(id), () => ring());
    try {
      await send({ jsonrpc: "2.0", id, ...question });
      const deadline = performance.now() + ANSWER_MS;
      while (performance.now() < deadline) {
        signal.throwIfAborted();
        const rung = new AbortController();
        ring = () => rung.abort();
        const body = Body.safeParse((await this.#store.get(WORKSPACE, ASK_KIND, id))?.body);
        if (!body.success) break;
        if (body.data.answer) return unpack(body.data.answer);
        await sleep(POLL_MS, undefined, { signal: AbortSignal.any([signal, rung.signal]) }).catch(() => {});
      }
      throw new RpcError(-32_000, `The client did not answer ${question.method} in time.`);
    } finally {
      hush();
      await this.#forget(id);
    }
  }

  /** Q2 */
  async answer(session: string, id: RpcId, answer: Answered): Promise<void> {
    if (typeof id !== "string" || !/^ask_[0-9A-Za-z]{24}$/.test(id)) return;
    const document = await this.#store.get(WORKSPACE, ASK_KIND, id);
    const body = Body.safeParse(document?.body);
    if (!document || !body.success || body.data.session !== session || body.data.answer) return;
    try {
      await this.#store.put(WORKSPACE, [{ kind: ASK_KIND, id, body: { session, answer }, replaces: document.revision }]);
    } catch (error) {
      // Another copy of the answer came first.
      if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
      return;
    }
    this.#store.ring(topic(id));
  }

  async #forget(id: string): Promise<void> {
    try {
      await this.#store.discard(WORKSPACE, ASK_KIND, id);
    } catch (error) {
      if (!(error instanceof Refusal && error.code === "document_not_found")) throw error;
    }
  }
}

const ErrorAnswer = z.object({ code: z.number().optional(), message: z.string().max(2_000).optional() });

function unpack(answer: Answered): unknown {
  if ("result" in answer) return answer.result;
  const { code = -32_000, message = "no reason given" } = ErrorAnswer.safeParse(answer.error).data ?? {};
  throw new RpcError(code, `The client refused: ${message}`);
}
