// Keys of the door to one session's hands: short-lived tokens, signed with the installation's key by whoever holds the lease or by a gateway, and
// checked by every gateway.
//
//   Y1  A key opens one session's hands and nothing else: its audience is no other door's, and no other door takes it.
//   Y2  It lasts LIFE_S at most. A turn's key ends with its lease, a client's key when the session next begins to run.
//   Y3  Neither a key nor the signing key is logged or said back.

import { errors, importJWK, jwtVerify, SignJWT } from "jose";
import { z } from "zod";
import type { AskedBy } from "../session-store/events/log.ts";
import type { Fence, Position, SessionId } from "../session-store/ids.ts";
import { signingKey } from "./grant.ts";

const LIFE_S = 600;
const ISSUER = "manyhands";
const AUDIENCE = "session-hands";
const SKEW_S = 5;

/** Whose hands, as of which fence, and by what right. */
export interface HandsKeyClaims {
  readonly session: SessionId;
  readonly fence: Fence;
  readonly by: Exclude<AskedBy, { type: "workspace" }>;
}

export interface HandsKeys {
  mint(claims: HandsKeyClaims): Promise<{ readonly key: string; readonly expiresAt: number }>;
  /** Null: it is no key of this door, or it has expired. Y1 Y2 */
  read(key: string): Promise<HandsKeyClaims | null>;
}

const Claims = z.looseObject({ sub: z.string().min(1), fence: z.int().min(0), turn: z.boolean(), at: z.int().min(0) });

export async function openHandsKeys(privateKeyFile: string): Promise<HandsKeys> {
  const { jwk, key: secret } = await signingKey(privateKeyFile);
  const { kid } = jwk;
  const open = await importJWK({ kty: jwk.kty, crv: jwk.crv, x: jwk.x, kid }, "EdDSA");
  return {
    async mint({ session, fence, by }) {
      const expires = Math.floor(Date.now() / 1000) + LIFE_S;
      const key = await new SignJWT({ fence, turn: by.type === "turn", at: by.type === "client" ? by.at : 0 })
        .setProtectedHeader({ alg: "EdDSA", kid })
        .setIssuer(ISSUER)
        .setAudience(AUDIENCE)
        .setSubject(session)
        .setIssuedAt()
        .setExpirationTime(expires)
        .sign(secret);
      return { key, expiresAt: expires * 1000 };
    },
    async read(key) {
      try {
        const { payload } = await jwtVerify(key, open, {
          issuer: ISSUER,
          audience: AUDIENCE,
          algorithms: ["EdDSA"],
          requiredClaims: ["exp", "sub"],
          clockTolerance: SKEW_S,
        });
        const { sub, fence, turn, at } = Claims.parse(payload);
        const by = turn ? { type: "turn" as const, fence: fence as Fence } : { type: "client" as const, at: at as Position };
        return { session: sub as SessionId, fence: fence as Fence, by };
      } catch (error) {
        if (error instanceof errors.JOSEError || error instanceof z.ZodError || error instanceof TypeError) return null;
        throw error;
      }
    },
  };
}
