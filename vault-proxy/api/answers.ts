// What the doors for gateways have in common: who is let in, and how a refusal is told.
//
//   A1  A refusal to a gateway comes after its body was read to the end: an answer in the middle of it may be lost with the connection, and the gateway
//       would have to say that what it asked for may have been done. Of whoever is not let in nothing is read.
//   A2  Of a bug the log has its kind and its place: its own words may quote what it fell over.

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Logger } from "pino";
import type { Caller, Grants } from "../grant.ts";
import { StoreTrouble } from "../store.ts";
import { ApiRefusal, envelope, refusalOf } from "./refusal.ts";

const BUG = "Internal server error. Request id: ";

/** Null: it was refused. */
export async function admitted(req: IncomingMessage, res: ServerResponse, grants: Grants, log: Logger): Promise<Caller | null> {
  const caller = await grants.door(req.headers.authorization);
  if (caller !== null && caller !== "unready") return caller;
  log.warn({ reason: caller ?? "invalid" }, "door.refused");
  const refusal =
    caller === null
      ? new ApiRefusal(401, "authentication_error", "The gateway's token is missing, was not issued here, or has ended.")
      : new ApiRefusal(503, "api_error", "The vault proxy has no key to check tokens with yet.");
  answerRefusal(req, res, refusal, "req_unknown");
  return null;
}

/** Reads on as far as a body may go, and tells the caller what the error is to him. A1 A2 */
export async function refuse(
  { req, res, bytesMax }: { readonly req: IncomingMessage; readonly res: ServerResponse; readonly bytesMax: number },
  error: unknown,
  { requestId }: Caller,
  log: Logger,
): Promise<void> {
  await readToEnd(req, bytesMax);
  const refusal = refusalOf(error);
  if (error instanceof StoreTrouble) log.error({ requestId, reason: error.reason, detail: error.detail }, "vault_store.failed");
  if (refusal === null) log.error({ requestId, error: error instanceof Error ? error.name : typeof error, at: placeOf(error) }, "request.broke");
  answerRefusal(req, res, refusal ?? new ApiRefusal(500, "api_error", `${BUG}${requestId}`), requestId);
}

export function send(res: ServerResponse, status: number, text: string): void {
  res.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text), "cache-control": "no-store" });
  res.end(text);
}

/** One that breaks off is over, too. */
async function readToEnd(req: IncomingMessage, bytesMax: number): Promise<void> {
  let bytes = 0;
  try {
    for await (const piece of req.iterator({ destroyOnReturn: false })) {
      bytes += piece.length;
      if (bytes > bytesMax) return;
    }
  } catch {
    // The gateway has left: nobody waits for the answer.
  }
}

function answerRefusal(req: IncomingMessage, res: ServerResponse, refusal: ApiRefusal, requestId: string): void {
  if (res.headersSent) {
    res.destroy();
    return;
  }
  for (const [name, value] of Object.entries(refusal.headers)) res.setHeader(name, value);
  if (!req.complete) res.setHeader("connection", "close");
  send(res, refusal.status, JSON.stringify(envelope(refusal.type, refusal.message, requestId)));
}

const placeOf = (error: unknown): string | undefined =>
  error instanceof Error
    ? error.stack
        ?.split("\n")
        .find((line) => line.trimStart().startsWith("at "))
        ?.trim()
    : undefined;
