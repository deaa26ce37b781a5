// Whether a credential's tokens may be used, and what is to be done first: one pure function over what is stored.
//
//   E1  An access token is renewed a little before its end; how little depends on how long it lives, so that a short one is not renewed at each use.
//   E2  A token that a server refused is renewed once a minute at most, whoever asks.
//   E3  After the authorization server's "no" nobody asks it again; a token that has not ended yet is still used.

import type { OAuth } from "../api/auth-schema.ts";

/** How long before its end a token is renewed, at most. E1 */
const SKEW_MS = 30_000;
/** Of the life of a token that we renewed ourselves. E1 */
const SKEW_OF_LIFE = 0.1;
const FORCED_EVERY_MS = 60_000;

/** Why somebody asks: before a use; or after a server refused this very token. */
export type Why = { readonly type: "due" } | { readonly type: "rejected"; readonly token: string };

export type Need =
  | { readonly type: "use"; readonly token: string }
  /** The server refused this token, and there is nothing to be done about it here. */
  | { readonly type: "as_it_is" }
  | { readonly type: "sign_in" }
  | { readonly type: "gone" }
  /** `token`: one that still works meanwhile. */
  | { readonly type: "renew"; readonly token: string | null };

export function needOf(auth: OAuth, why: Why, now: number): Need {
  const { access_token: token, refresh, refused, forcedAt, lease } = auth;
  if (token === null) return { type: "gone" };
  if (why.type === "rejected" && why.token !== token) return { type: "use", token };
  const hasEnded = auth.expires_at !== null && now >= Date.parse(auth.expires_at);
  if (refused !== null) return why.type === "due" && !hasEnded ? { type: "use", token } : { type: "sign_in" }; // E3
  if (refresh === null || refresh.refresh_token === null) return why.type === "due" ? { type: "use", token } : { type: "as_it_is" };
  if (why.type === "due") return isDue(auth, now) ? { type: "renew", token: hasEnded ? null : token } : { type: "use", token };
  // While somebody is at it (the lease), it is this very renewal that is waited for.
  const isTooSoon = lease === null && forcedAt !== null && now >= forcedAt && now - forcedAt < FORCED_EVERY_MS; // E2
  return isTooSoon ? { type: "as_it_is" } : { type: "renew", token: null };
}

/** E1 */
function isDue({ expires_at, refreshedAt }: OAuth, now: number): boolean {
  if (expires_at === null) return false;
  const end = Date.parse(expires_at);
  const skewMs = refreshedAt === null ? SKEW_MS : Math.min(SKEW_MS, Math.max(0, end - refreshedAt) * SKEW_OF_LIFE);
  return now >= end - skewMs;
}
