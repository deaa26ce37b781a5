// What is said of the use of a hand: to our log, a line; to a client, when it came to nothing, an error.

import type { Logger } from "pino";
import { REFUSALS, Refusal } from "../../session-store/refusal.ts";
import { Challenge } from "../mcp/access.ts";
import { errorMessage, INTERNAL_ERROR, REFUSED, RpcError, type RpcId } from "../mcp/rpc.ts";
import { HandFailure } from "./failure.ts";
import type { Inbound } from "./inbound.ts";
import type { Visit } from "./visit.ts";

const NAME_CHARS_MAX = 128;
const AUDITED = new Set(["tools/call", "prompts/get", "resources/read"]);

/** M5 of door.ts */
export function audit(log: Logger, { caller, upstream, response, seen }: Visit, { message, era }: Inbound, started: number, outcome: string): void {
  if (message.kind !== "request" || !AUDITED.has(message.method)) return;
  const { method, params } = message;
  const name = method !== "resources/read" && typeof params.name === "string" ? { name: params.name.slice(0, NAME_CHARS_MAX) } : {};
  log.info(
    {
      requestId: response.getHeader("request-id"),
      workspace: caller.workspace,
      caller: caller.name,
      hand: upstream.hand.name,
      era,
      method,
      ...name,
      outcome,
      ...(seen?.errorCode && { code: seen.errorCode }),
      ms: Math.round((performance.now() - started) * 10) / 10,
    },
    "hand.used",
  );
}

/** M4 of door.ts. `id`: of the request; null: there was none, or it can't be told. */
export function told(log: Logger, error: unknown, id: RpcId | null): { readonly status: number; readonly body: object } {
  if (error instanceof HandFailure) {
    log.info({ reason: error.reason, detail: error.detail }, "hand.failed");
    return { status: id === null ? error.status : 200, body: errorMessage(id, error) };
  }
  if (error instanceof RpcError) return { status: error.status, body: errorMessage(id, error) };
  if (error instanceof Challenge) return { status: error.status, body: errorMessage(id, { code: REFUSED, message: error.message }) };
  if (error instanceof Refusal) {
    const { status } = REFUSALS[error.code];
    if (status >= 500) log.warn({ code: error.code, detail: error.detail }, "hand.refused");
    return { status, body: errorMessage(id, { code: REFUSED, message: error.message }) };
  }
  log.error({ err: error }, "hand.broke");
  return { status: 500, body: errorMessage(id, { code: INTERNAL_ERROR, message: "Internal error" }) };
}
