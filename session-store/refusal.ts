// Every expected "no" of this project, with its code, its HTTP status and what helps the caller.

export const REFUSALS = {
  // the store
  fenced: { status: 409, wire: "conflict_error", retry: "never", says: "Another worker holds this session." },
  out_of_step: { status: 409, wire: "conflict_error", retry: "never", says: "Another append of this lease came between." },
  session_not_found: { status: 404, wire: "not_found_error", retry: "never", says: "There is no such session." },
  session_exists: { status: 409, wire: "conflict_error", retry: "never", says: "A session with this id exists." },
  session_busy: { status: 400, wire: "invalid_request_error", retry: "never", says: "The session is running." },
  document_not_found: { status: 404, wire: "not_found_error", retry: "never", says: "There is no such object." },
  document_changed: { status: 409, wire: "conflict_error", retry: "never", says: "The object was changed in the meantime." },
  document_in_use: { status: 400, wire: "invalid_request_error", retry: "never", says: "The object is in use." },
  name_taken: { status: 409, wire: "conflict_error", retry: "never", says: "The name is taken." },
  idempotency_conflict: { status: 409, wire: "conflict_error", retry: "never", says: "This idempotency key was used with another body." },
  store_busy: { status: 503, wire: "overloaded_error", retry: "later", says: "The store can't take this now." },
  store_in_doubt: { status: 503, wire: "overloaded_error", retry: "ask", says: "The store did not answer; the request may have been stored." },
  store_unfit: { status: 500, wire: "api_error", retry: "never", says: "The store is not fit for use." },
  // the doors
  invalid_request: { status: 400, wire: "invalid_request_error", retry: "never", says: "The request is not valid." },
  unauthenticated: { status: 401, wire: "authentication_error", retry: "never", says: "The API key is missing or not valid." },
  forbidden: { status: 403, wire: "permission_error", retry: "never", says: "The key may not do this." },
  not_found: { status: 404, wire: "not_found_error", retry: "never", says: "There is no such path or object." },
  method_not_allowed: { status: 405, wire: "invalid_request_error", retry: "never", says: "The method is not allowed on this path." },
  conflict: { status: 409, wire: "conflict_error", retry: "never", says: "The request is in conflict with the present state." },
  too_many_waiting: { status: 429, wire: "rate_limit_error", retry: "later", says: "Too many events wait in this session already." },
  too_large: { status: 413, wire: "request_too_large", retry: "never", says: "The request is over the limit." },
  shutting_down: { status: 503, wire: "overloaded_error", retry: "later", says: "This node is shutting down." },
  keys_unreachable: { status: 503, wire: "overloaded_error", retry: "later", says: "The authorization server's keys can't be had now." },
  // hands and vault proxy
  hand_lost: { status: 502, wire: "api_error", retry: "later", says: "The hand host can't be reached." },
  vault_away: { status: 503, wire: "overloaded_error", retry: "later", says: "The vault proxy can't be reached." },
  vault_in_doubt: { status: 503, wire: "overloaded_error", retry: "ask", says: "The vault proxy did not answer; the change may have been made." },
  grant_invalid: { status: 401, wire: "authentication_error", retry: "never", says: "The grant is missing, expired or for something else." },
} as const;

export type RefusalCode = keyof typeof REFUSALS;

/** An expected "no". `message` is for the caller; `detail` is for our log only: it may name hosts, keys or sizes. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly code: RefusalCode;
  readonly detail: string;
  /** `error.details` of the wire envelope, where the contract names an `error_code`. */
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(code: RefusalCode, says?: string, options?: ErrorOptions & { detail?: string; details?: Record<string, unknown> }) {
    super(says ?? REFUSALS[code].says, options);
    this.code = code;
    this.detail = options?.detail ?? "";
    this.details = options?.details;
  }
}
