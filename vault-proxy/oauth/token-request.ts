// One request for new tokens, and what its answer means (RFC 6749 §6).
//
//   K1  Only an answer that says no in the words of the protocol is a no. Everything else (5xx, a broken line, a page of somebody's proxy) is trouble:
//       it says nothing about the grant, and the tokens stay.
//   K2  Nothing of an answer is in an error, a log line or a thrown message.

import { z } from "zod";
import type { OAuth } from "../api/auth-schema.ts";
import { type Guard, Unreachable } from "../guard.ts";
import { formEncoded } from "../scrub.ts";

const SECRET_CHARS_MAX = 16_384;
const REASON_CHARS_MAX = 64;
/** A server that says a year means it; more than ten is a mistake. */
const LIFE_S_MAX = 10 * 366 * 86_400;

export interface Tokens {
  readonly access: string;
  /** Null: the answer had none, and the old one goes on. */
  readonly refresh: string | null;
  /** Null: it did not say. */
  readonly lifeS: number | null;
}

/** What a server answered, for whoever checks a credential by hand. */
export interface Answered {
  readonly status: number;
  readonly contentType: string | null;
  readonly body: string;
}

export type TokenAnswer =
  | { readonly type: "tokens"; readonly tokens: Tokens; readonly http: Answered }
  /** The server's own "no". */
  | { readonly type: "refused"; readonly reason: string; readonly http: Answered }
  | { readonly type: "trouble"; readonly reason: string; readonly http: Answered | null };

const Given = z.looseObject({
  access_token: z
    .string()
    .max(SECRET_CHARS_MAX)
    .regex(/^[!-~]+$/),
  token_type: z.string().optional(),
  refresh_token: z.string().min(1).max(SECRET_CHARS_MAX).nullish().catch(null),
  expires_in: z.coerce.number().positive().max(LIFE_S_MAX).nullish().catch(null),
});
const Refused = z.looseObject({ error: z.string().regex(/^[\x20-\x7e]+$/) });

/** Beyond these the server was asked wrongly or is not well; some say them with status 200. */
const FINAL = new Set([
  "invalid_grant",
  "invalid_client",
  "unauthorized_client",
  "unsupported_grant_type",
  "invalid_scope",
  "invalid_target",
  "invalid_request",
  "bad_refresh_token",
]);

type Refresh = NonNullable<OAuth["refresh"]>;

/** Asks once. Never throws for what the other side did. */
export async function requestTokens(guard: Guard, refresh: Refresh, signal: AbortSignal): Promise<TokenAnswer> {
  const { token_endpoint_auth: how, client_id } = refresh;
  const form = new URLSearchParams({ grant_type: "refresh_token", refresh_token: refresh.refresh_token ?? "" });
  if (refresh.scope !== null) form.set("scope", refresh.scope);
  if (refresh.resource !== null) form.set("resource", refresh.resource);
  const headers: Record<string, string> = { "content-type": "application/x-www-form-urlencoded", accept: "application/json" };
  if (how.type === "client_secret_basic") headers.authorization = `Basic ${basicOf(client_id, how.client_secret ?? "")}`;
  else form.set("client_id", client_id);
  if (how.type === "client_secret_post") form.set("client_secret", how.client_secret ?? "");
  let answer: Response;
  let body: string;
  try {
    answer = await guard.fetch(refresh.token_endpoint, { method: "POST", headers, body: form, signal });
    body = await answer.text();
  } catch (error) {
    if (error instanceof Unreachable) return { type: "trouble", reason: error.reason, http: null };
    if (signal.aborted) return { type: "trouble", reason: "time", http: null };
    throw error;
  }
  return read({ status: answer.status, contentType: answer.headers.get("content-type"), body });
}

/** K1 */
function read(http: Answered): TokenAnswer {
  const json = parsed(http.body);
  const isGood = http.status >= 200 && http.status < 300;
  const given = isGood ? Given.safeParse(json) : null;
  if (given?.success) {
    const { access_token, token_type, refresh_token, expires_in } = given.data;
    if (token_type !== undefined && token_type.toLowerCase() !== "bearer") return { type: "trouble", reason: "not_a_bearer_token", http };
    return { type: "tokens", tokens: { access: access_token, refresh: refresh_token ?? null, lifeS: expires_in ?? null }, http };
  }
  const refused = Refused.safeParse(json);
  if (refused.success && http.status < 500 && http.status !== 429 && FINAL.has(refused.data.error))
    return { type: "refused", reason: refused.data.error.slice(0, REASON_CHARS_MAX), http };
  return { type: "trouble", reason: isGood ? "no_tokens" : `status_${http.status}`, http };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Both parts are form-encoded before they are joined. RFC 6749 §2.3.1 */
function basicOf(id: string, secret: string): string {
  return Buffer.from(`${formEncoded(id)}:${formEncoded(secret)}`).toString("base64");
}
