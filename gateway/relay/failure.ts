// What a client is told when a hand does not answer as it should: clear words, and nothing of addresses, headers or the hand's own pages.

import type { IncomingHttpHeaders } from "node:http";
import { Unreachable } from "../../hands/address.ts";
import { INTERNAL_ERROR, RpcError } from "../mcp/rpc.ts";
import type { Address } from "./upstream.ts";

type Reason = "hand_unreachable" | "hand_lost" | "hand_timed_out" | "hand_refused" | "hand_unintelligible";

/** A hand's failure, not the client's mistake. To a request it is an answer like any other (HTTP 200); to anything else, a status. */
export class HandFailure extends RpcError {
  readonly reason: Reason;
  /** For our log. */
  readonly detail: string;

  constructor(reason: Reason, says: string, detail = "", status = 502) {
    super(INTERNAL_ERROR, says, { data: { reason }, status });
    this.reason = reason;
    this.detail = detail;
  }
}

/** Errors of a connection that never was: nothing was carried out. */
const NEVER_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT", "ETIMEDOUT"]);

export function failureOf(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  if (error instanceof Unreachable) return new HandFailure("hand_unreachable", "The hand's address may not be reached from here.", error.message);
  const code = error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
  if (NEVER_SENT.has(code)) return new HandFailure("hand_unreachable", "The hand can't be reached. The request was not carried out.", code);
  if (/^(ERR_TLS|CERT_|UNABLE_TO|DEPTH_|SELF_SIGNED)/.test(code))
    return new HandFailure("hand_unreachable", "The hand's certificate is not valid.", code);
  const detail = code !== "" ? code : error instanceof Error ? error.name : "unknown";
  return new HandFailure("hand_lost", "The connection to the hand ended before its answer did. The request may have been carried out.", detail);
}

export function timedOut(what: string, ms: number): HandFailure {
  return new HandFailure("hand_timed_out", `The hand ${what} within ${Math.round(ms / 100) / 10} s. The request may have been carried out.`, "", 504);
}

/** A status that says that the hand will not talk to us; null: it may be an answer. */
export function refusedStatus(status: number): HandFailure | null {
  if (status >= 300 && status < 400)
    return new HandFailure("hand_refused", "The hand answered with a redirect, which is not followed.", `HTTP ${status}`);
  if (status === 401 || status === 407)
    return new HandFailure("hand_refused", "The hand asks for a credential that this installation does not have for it.", `HTTP ${status}`);
  if (status === 403) return new HandFailure("hand_refused", "The hand refuses requests from this installation.", `HTTP ${status}`);
  return null;
}

const REFUSAL_HEADER = "x-manyhands-refusal";
const NO_CREDENTIAL: Readonly<Record<string, string>> = {
  no_credential: "None of the hand's vaults holds a credential for its address.",
  sign_in_needed: "The hand's credential can't be renewed any more: it needs a new sign-in.",
  server_refused: "The hand's address is not one that a credential may be sent to.",
  server_unreachable: "The hand can't be reached. The request was not carried out.",
  server_redirects: "The hand answered with a redirect, which is not followed.",
};

/** The vault proxy's own "no", where it stands between; null: the answer is the hand's. */
export function refusedByVault({ target }: Pick<Address, "target">, headers: IncomingHttpHeaders): HandFailure | null {
  const code = headers[REFUSAL_HEADER];
  if (target === null || typeof code !== "string") return null;
  return new HandFailure("hand_refused", NO_CREDENTIAL[code] ?? "The hand's credential can't be used now.", code);
}

/** An answer that is no message of the protocol. A client's mistake keeps its status. */
export function noMessage(status: number): RpcError {
  const says = `The hand answered with HTTP ${status} and no message.`;
  if (status >= 400 && status < 500) return new RpcError(INTERNAL_ERROR, says, { status });
  return new HandFailure("hand_unintelligible", says, `HTTP ${status}`);
}

export const tooLong = (bytes: number): HandFailure =>
  new HandFailure("hand_unintelligible", `The hand's answer is over the limit of ${bytes} bytes.`);
