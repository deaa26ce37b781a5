// Access tokens of an outside authorization server (RFC 9068): signed for us, by it, for now.
//
//   K1  Only asymmetric signatures, by a key of the configured JWKS; an unknown `kid` fetches the set again, at most once in COOLDOWN_MS.
//   K2  `iss` is the configured issuer, `aud` holds this resource (of the door of a hand: that door's or the installation's own) byte for byte, `exp` is there and ahead, `nbf` is not.
//   K3  Who calls is issuer and subject, never the token: a renewed one is the same caller.
//   K4  A token is never logged or said back; of what is wrong with it, no more than the kind.

import { createRemoteJWKSet, errors, jwtVerify } from "jose";
import { z } from "zod";
import { Refusal } from "../../session-store/refusal.ts";
import { digestOf } from "../idempotency.ts";
import type { Caller } from "./caller.ts";
import type { Scope } from "./surface.ts";
import { HAND_SCOPES, SCOPES } from "./surface.ts";

const ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"];
const COOLDOWN_MS = 30_000;
const FETCH_MS = 5_000;
const CACHE_MS = 600_000;
const SKEW_S = 5;
const TYPES = new Set(["at+jwt", "application/at+jwt", "jwt"]);

export interface Issuer {
  readonly issuer: string;
  readonly jwksUrl: string;
}

const Claims = z.object({ sub: z.string().min(1).max(1_024), scope: z.string().max(8_192).optional() });

export const looksLikeToken = (text: string): boolean => /^[\w-]+\.[\w-]+\.[\w-]*$/.test(text);

/** Gives who a token is for, or null when it is not valid here. K1–K4 */
export function makeTokenCheck(
  { issuer, jwksUrl }: Issuer,
  workspace: string,
): (token: string, audiences: readonly string[]) => Promise<Caller | null> {
  const keys = createRemoteJWKSet(new URL(jwksUrl), { cooldownDuration: COOLDOWN_MS, timeoutDuration: FETCH_MS, cacheMaxAge: CACHE_MS });
  return async (token, audiences) => {
    try {
      const { payload, protectedHeader } = await jwtVerify(token, keys, {
        issuer,
        audience: [...audiences],
        algorithms: ALGORITHMS,
        requiredClaims: ["exp", "sub"],
        clockTolerance: SKEW_S,
      });
      const claims = Claims.safeParse(payload);
      if (!claims.success || !TYPES.has((protectedHeader.typ ?? "jwt").toLowerCase())) return null;
      const given = new Set((claims.data.scope ?? "").split(" "));
      const scopes: ReadonlySet<Scope> = new Set([...SCOPES, ...HAND_SCOPES].filter((scope) => given.has(scope)));
      return { workspace, name: `sub_${digestOf(issuer, claims.data.sub).slice(0, 24)}`, scopes };
    } catch (error) {
      if (error instanceof errors.JWKSTimeout || !(error instanceof errors.JOSEError))
        throw new Refusal("keys_unreachable", undefined, { cause: error });
      return null;
    }
  };
}
