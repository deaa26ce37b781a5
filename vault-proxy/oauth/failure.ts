// What can go wrong when a person connects a server: each with a code, and words that say what to do.
//
//   H1  A text names hosts and our own settings. What a server wrote is not said again, but for an error code of the protocol's own alphabet.

import { Unreachable } from "../guard.ts";

export type FailureCode =
  /** Nothing was sent there, or nothing of use came back. */
  | "unreachable"
  | "no_metadata"
  | "bad_metadata"
  | "resource_mismatch"
  | "issuer_mismatch"
  | "no_pkce"
  | "no_client"
  | "registration_refused"
  /** The authorization server said no to the person, or the person to it. */
  | "denied"
  | "token_refused"
  | "bad_tokens"
  | "unknown_state"
  | "busy";

export class ConnectFailure extends Error {
  override readonly name = "ConnectFailure";
  readonly code: FailureCode;

  constructor(code: FailureCode, says: string, cause?: unknown) {
    super(says, { cause });
    this.code = code;
  }
}

/** `what` could not be asked, because of what the guard says; anything else is thrown on as it is. */
export function unreachable(what: string, error: unknown): unknown {
  return error instanceof Unreachable ? new ConnectFailure("unreachable", `${what} can't be asked: ${error.message}.`, error) : error;
}

/** A protocol's error code, or a stand-in: it comes from outside and is shown. H1 */
export const plainCode = (text: unknown): string => (typeof text === "string" && /^[a-z_]{1,60}$/.test(text) ? text : "unknown_error");
