// What the vault proxy answers by itself: the model API's error envelope, so that every caller's client understands it. A header says which "no" of
// ours it is, so that it is not taken for a server's own.

import type { ServerResponse } from "node:http";

/** Every "no" of ours. Texts name no address, no header and no credential. */
const REFUSALS = {
  no_route: { status: 404, type: "not_found_error", says: "There is nothing here." },
  no_grant: { status: 401, type: "authentication_error", says: "The grant is missing, was not issued here, or has ended." },
  grant_unready: { status: 503, type: "api_error", says: "The vault proxy has no key to check grants with yet." },
  other_use: { status: 403, type: "permission_error", says: "The grant is for another use." },
  no_model_key: {
    status: 401,
    type: "authentication_error",
    says: "No model key is set: set MANYHANDS_MODEL_KEY_FILE or ANTHROPIC_API_KEY and start again.",
  },
  not_a_session: { status: 400, type: "invalid_request_error", says: "The body must be {session} and name the session of the grant." },
  too_large: { status: 413, type: "request_too_large", says: "The request is over the limit of 32 MB." },
  odd_framing: { status: 400, type: "invalid_request_error", says: "A body has a length or comes in chunks, and nothing else." },
  encoded: { status: 415, type: "invalid_request_error", says: "A compressed request can't be taken." },
  no_audit: { status: 503, type: "api_error", says: "The use of a credential can't be written to the audit, and so it does not happen." },
  spent: {
    status: 403,
    type: "permission_error",
    says: "This session has spent what the operator lets a session spend (session_limit_usd in MANYHANDS_MODELS_FILE).",
  },
  no_price: {
    status: 403,
    type: "permission_error",
    says: "Spending is limited, and this model has no price (prices in MANYHANDS_MODELS_FILE).",
  },
  no_model_name: { status: 400, type: "invalid_request_error", says: "The body must be a JSON object that names its model, and each field once." },
  no_such_request: { status: 400, type: "invalid_request_error", says: "The provider of this model takes no such request." },
  busy: { status: 529, type: "overloaded_error", says: "The vault proxy has too many requests open." },
  model_unreachable: { status: 502, type: "api_error", says: "The model can't be reached." },
  model_silent: { status: 504, type: "api_error", says: "The model did not answer in time." },
  model_redirects: { status: 502, type: "api_error", says: "The model answered with a redirect, which is not followed." },
  not_allowed: { status: 405, type: "invalid_request_error", says: "The method is not allowed on this path." },
  bad_target: {
    status: 400,
    type: "invalid_request_error",
    says: "x-manyhands-target must be an http or https address, and x-manyhands-server one of the same origin.",
  },
  no_credential: { status: 404, type: "not_found_error", says: "No vault of this grant has a credential for this server." },
  sign_in_needed: { status: 401, type: "authentication_error", says: "The server's credential can't be renewed any more: it needs a new sign-in." },
  not_refreshed: {
    status: 503,
    type: "api_error",
    says: "The credential has ended and could not be renewed now; its authorization server can't be used.",
  },
  refresh_busy: { status: 503, type: "overloaded_error", says: "The credential is being renewed elsewhere, and that takes too long." },
  unstored: { status: 503, type: "api_error", says: "The renewed credential can't be stored, and so it is not used." },
  renewed: { status: 503, type: "overloaded_error", says: "The credential was renewed while a long request was on its way: send it again." },
  not_kept: {
    status: 503,
    type: "api_error",
    says: "The session's grants are revoked at this vault proxy; the others and a restart hear of it once the credential store can be used.",
  },
  no_vault_store: { status: 503, type: "api_error", says: "The credential store can't be used now." },
  server_refused: { status: 502, type: "api_error", says: "The server's address is not one that a credential may be sent to." },
  server_unreachable: { status: 502, type: "api_error", says: "The server can't be reached." },
  server_broke: { status: 502, type: "api_error", says: "The connection to the server broke before its answer came." },
  server_redirects: { status: 502, type: "api_error", says: "The server answered with a redirect, which is not followed." },
  server_encodes: { status: 502, type: "api_error", says: "The server answered in an encoding that was not asked for." },
  model_encodes: { status: 502, type: "api_error", says: "The model answered with a compressed body, which was not asked for." },
} as const;

/** On every refusal; an answer of a server never has it. */
const REFUSAL_HEADER = "x-manyhands-refusal";

export type RefusalCode = keyof typeof REFUSALS;

/** Answers with a refusal, if nothing was answered yet. Gives the status. */
export function refuse(res: ServerResponse, code: RefusalCode): number {
  const { status, type, says } = REFUSALS[code];
  if (!res.headersSent) answer(res, status, { type: "error", error: { type, message: says } }, { [REFUSAL_HEADER]: code });
  return status;
}

export function answer(res: ServerResponse, status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): void {
  const text = JSON.stringify(body);
  res.writeHead(status, { ...headers, "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  res.end(text);
}
