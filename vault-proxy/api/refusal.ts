// What the vaults' API refuses, in the wire's envelope.
//
//   W1  A message names a field and what is wrong with it, never a value; what went wrong inside is in our log under the request id.
//   W2  `x-should-retry: false` wherever another try can't help (409) or might do it twice (a write in doubt).

import { StoreTrouble, type TroubleReason } from "../store.ts";

export type WireType =
  | "invalid_request_error"
  | "authentication_error"
  | "not_found_error"
  | "conflict_error"
  | "request_too_large"
  | "overloaded_error"
  | "api_error";

export class ApiRefusal extends Error {
  override readonly name = "ApiRefusal";
  readonly status: number;
  readonly type: WireType;
  readonly headers: Readonly<Record<string, string>>;

  constructor(status: number, type: WireType, says: string, headers: Readonly<Record<string, string>> = {}) {
    super(says);
    this.status = status;
    this.type = type;
    this.headers = headers;
  }
}

const LATER = { "retry-after": "1" };
const NEVER = { "x-should-retry": "false" };

export const invalid = (says: string): ApiRefusal => new ApiRefusal(400, "invalid_request_error", says);
export const conflict = (says: string): ApiRefusal => new ApiRefusal(409, "conflict_error", says, NEVER);
export const notFound = (says: string): ApiRefusal => new ApiRefusal(404, "not_found_error", says);
export const noSuchVault = (): ApiRefusal => notFound("There is no such vault.");
export const noSuchCredential = (): ApiRefusal => notFound("There is no such credential.");
export const busy = (): ApiRefusal => new ApiRefusal(503, "overloaded_error", "The credential store can't take this now.", LATER);

const TROUBLE: Readonly<Record<TroubleReason, ApiRefusal>> = {
  sealed: new ApiRefusal(503, "overloaded_error", "The credential store is sealed: its operator must unseal it.", LATER),
  denied: new ApiRefusal(
    503,
    "overloaded_error",
    "The credential store denies access: its operator must look at the vault proxy's login and policy.",
    LATER,
  ),
  away: new ApiRefusal(503, "overloaded_error", "The credential store can't be reached.", LATER),
  full: new ApiRefusal(503, "overloaded_error", "The credential store has no room left.", LATER),
  busy: busy(),
  in_doubt: new ApiRefusal(503, "overloaded_error", "The credential store did not answer; the change may have been made.", { ...LATER, ...NEVER }),
  unreadable: new ApiRefusal(500, "api_error", "The stored record can't be opened: its operator must look at the vault's key.", NEVER),
};

/** The refusal for something thrown; null: it is a bug. */
export function refusalOf(error: unknown): ApiRefusal | null {
  if (error instanceof ApiRefusal) return error;
  return error instanceof StoreTrouble ? TROUBLE[error.reason] : null;
}

export const envelope = (type: WireType, message: string, requestId: string): unknown => ({
  type: "error",
  error: { type, message },
  request_id: requestId,
});
