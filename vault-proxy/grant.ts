// The grant: what a caller may use, for one session, for a short while. A JWT that a worker signed, or a gateway for a client that uses a hand
// directly; we hold public keys only.
//
//   R1  Only EdDSA by a key in grant.public.jwk, from our issuer, for us, with an end at most ten minutes ahead.
//   R2  A grant opens only what its `use` names. One that names vaults says in which workspace they are.
//   R3  A revoked session's grants are refused from then on, until every one of them has ended by itself.
//   R4  The gateway shows a token of another form: for one request, for a minute, with the workspace and the caller that it let in. Neither form
//       passes for the other.

import { createLocalJWKSet, errors, jwtVerify } from "jose";
import { z } from "zod";
import { WatchedFile } from "./watched-file.ts";

const ISSUER = "manyhands";
const AUDIENCE = "vault-proxy";
const AGE_S_MAX = 600;
const TOLERANCE_S = 5;
const GRANT_CHARS_MAX = 4_096;
/** Checked grants that are remembered, so that a turn's second request costs no signature check. */
const REMEMBERED_MAX = 2_000;
/** Revocations that are kept at a time. They leave after ten minutes; one too many is refused, never an old one forgotten. */
const REVOKED_MAX = 100_000;
/** A gateway's token is for the request that it comes with. */
const DOOR_AGE_S_MAX = 60;

const WORKSPACE = /^[0-9A-Za-z_-]{1,64}$/;

const Claims = z.object({
  /** A session, or a registered hand that a client uses directly. */
  sub: z.string().regex(/^(?:sesn_[0-9A-Za-z]{1,64}|hand:[a-z0-9][a-z0-9_-]{0,62})$/),
  exp: z.number(),
  iat: z.number().optional(),
  fence: z.number().int().min(0),
  vaults: z.array(z.string()),
  use: z.array(z.string()),
  workspace: z.string().regex(WORKSPACE).optional(),
  network: z.string().max(64).optional(),
});

const DoorClaims = z.object({
  sub: z.literal("gateway"),
  exp: z.number(),
  workspace: z.string().regex(WORKSPACE),
  principal: z.string().min(1).max(128),
  jti: z.string().regex(/^req_[0-9A-Za-z]{1,64}$/),
  use: z.tuple([z.literal("vaults")]),
});

const PublicJwk = z.object({
  kty: z.literal("OKP"),
  crv: z.literal("Ed25519"),
  x: z.string(),
  kid: z.string().optional(),
  d: z.never().optional(),
});
const KeyFile = z.union([z.object({ keys: z.array(PublicJwk).min(1) }), PublicJwk.transform((key) => ({ keys: [key] }))]);

export interface Grant {
  readonly sessionId: string;
  readonly fence: number;
  readonly vaults: readonly string[];
  readonly use: readonly string[];
  /** Where its vaults are; null: it names none. */
  readonly workspace: string | null;
  /** The hash of the policy by which hands may go out (egress/policy.ts); absent: they may not. */
  readonly network?: string;
}

/** Whom a gateway let in, and for which request. */
export interface Caller {
  readonly workspace: string;
  /** A stable name of the caller's key; no secret. */
  readonly principal: string;
  readonly requestId: string;
}

/** Why a grant doesn't open the door. `unready`: there is no key to check it with yet. */
export type GrantRefusal = "missing" | "invalid" | "expired" | "revoked" | "unready" | "other_use";
export type Checked = { readonly type: "granted"; readonly grant: Grant } | { readonly type: "refused"; readonly reason: GrantRefusal };

type Keys = ReturnType<typeof createLocalJWKSet>;
type Remembered = { readonly grant: Grant; readonly endsAtS: number; readonly keys: Keys };

export class Grants {
  readonly #file: WatchedFile<Keys>;
  readonly #now: () => number;
  readonly #remembered = new Map<string, Remembered>();
  /** Session id → when its last grant has ended. */
  readonly #revoked = new Map<string, number>();

  /** `now` gives the time in ms; `complain` hears why the key file can't be used. */
  constructor(keyFile: string, complain: (reason: string) => void, now: () => number = Date.now) {
    this.#file = new WatchedFile(keyFile, (text) => createLocalJWKSet(readKeys(text)), complain);
    this.#now = now;
  }

  /** Whether there is a key to check grants with. */
  isReady(): boolean {
    return this.#file.read() !== null;
  }

  /** Checks an `authorization` header for one use. */
  async check(authorization: string | undefined, use: string): Promise<Checked> {
    const token = bearerOf(authorization);
    if (token === null) return refused("missing");
    if (token.length > GRANT_CHARS_MAX) return refused("invalid");
    const keys = this.#file.read();
    if (keys === null) return refused("unready");
    const known = this.#remembered.get(token);
    if (known?.keys === keys && known.endsAtS + TOLERANCE_S > this.#now() / 1000) return this.#judge(known.grant, use);
    const found = await this.#verify(token, keys);
    return "reason" in found ? refused(found.reason) : this.#judge(found, use);
  }

  /** Checks the `authorization` of a gateway; null: it is none. R4 */
  async door(authorization: string | undefined): Promise<Caller | null | "unready"> {
    const token = bearerOf(authorization);
    if (token === null || token.length > GRANT_CHARS_MAX) return null;
    // A gateway makes a token for each request: there is nothing to remember, and a replaced key is looked for at once.
    for (const fresh of [false, true]) {
      const keys = this.#file.read(fresh);
      if (keys === null) return "unready";
      const payload = await this.#open(token, keys);
      if (payload === "unknown_key") continue;
      const claims = DoorClaims.safeParse(payload);
      if (!claims.success || claims.data.exp > this.#now() / 1000 + DOOR_AGE_S_MAX + TOLERANCE_S) return null;
      const { workspace, principal, jti } = claims.data;
      return { workspace, principal, requestId: jti };
    }
    return null;
  }

  /**
   * Refuses a session's grants from now on, and gives when the last of them has ended by itself. Null: too many are kept already, try again later.
   * `endsAt`: where that is known, since it was revoked elsewhere. R3
   */
  revoke(sessionId: string, endsAt = this.#now() + (AGE_S_MAX + 2 * TOLERANCE_S) * 1000): number | null {
    const now = this.#now();
    for (const [id, end] of this.#revoked) {
      if (end > now) break; // Nearly in the order of their ends: one that is out of it waits for those before it.
      this.#revoked.delete(id);
    }
    const known = this.#revoked.get(sessionId);
    if (this.#revoked.size >= REVOKED_MAX && known === undefined) return null;
    const last = Math.max(endsAt, known ?? 0);
    this.#revoked.delete(sessionId);
    this.#revoked.set(sessionId, last);
    return last;
  }

  isRevoked(sessionId: string): boolean {
    return (this.#revoked.get(sessionId) ?? 0) > this.#now();
  }

  #judge(grant: Grant, use: string): Checked {
    const revokedUntil = this.#revoked.get(grant.sessionId);
    if (revokedUntil !== undefined && revokedUntil > this.#now()) return refused("revoked");
    return grant.use.includes(use) ? { type: "granted", grant } : refused("other_use");
  }

  async #verify(token: string, keys: Keys): Promise<Grant | { reason: GrantRefusal }> {
    let used = keys;
    let payload = await this.#open(token, used);
    if (payload === "unknown_key") {
      // A key that was replaced just now must not cost its first second of grants: look again, once.
      const fresh = this.#file.read(true);
      if (fresh === null) return { reason: "unready" };
      used = fresh;
      payload = fresh === keys ? "invalid" : await this.#open(token, fresh);
    }
    if (payload === "expired") return { reason: "expired" };
    const claims = Claims.safeParse(payload);
    if (!claims.success) return { reason: "invalid" };
    const { sub, exp, iat, fence, vaults, use, workspace, network } = claims.data;
    if (exp > this.#now() / 1000 + AGE_S_MAX + TOLERANCE_S || (iat !== undefined && exp - iat > AGE_S_MAX)) return { reason: "invalid" };
    const grant: Grant = { sessionId: sub, fence, vaults, use, workspace: workspace ?? null, ...(network === undefined ? {} : { network }) };
    if (this.#remembered.size >= REMEMBERED_MAX) this.#forgetOldest();
    this.#remembered.set(token, { grant, endsAtS: exp, keys: used });
    return grant;
  }

  async #open(token: string, keys: Keys): Promise<unknown> {
    try {
      const { payload } = await jwtVerify(token, keys, {
        algorithms: ["EdDSA", "Ed25519"],
        issuer: ISSUER,
        audience: AUDIENCE,
        requiredClaims: ["sub", "exp"],
        clockTolerance: TOLERANCE_S,
        currentDate: new Date(this.#now()),
      });
      return payload;
    } catch (error) {
      if (error instanceof errors.JWTExpired) return "expired";
      if (error instanceof errors.JWKSNoMatchingKey || error instanceof errors.JWSSignatureVerificationFailed) return "unknown_key";
      if (error instanceof errors.JOSEError) return "invalid";
      throw error;
    }
  }

  #forgetOldest(): void {
    const oldest = this.#remembered.keys().next();
    if (!oldest.done) this.#remembered.delete(oldest.value);
  }
}

function readKeys(text: string): { keys: { kty: "OKP"; crv: "Ed25519"; x: string; kid?: string }[] } {
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch {
    // The parser's own message would quote the file.
    throw new Error("is not JSON");
  }
  const file = KeyFile.safeParse(read);
  if (!file.success) throw new Error(text.includes('"d"') ? "holds a private key" : "holds no public Ed25519 JWK");
  return { keys: file.data.keys.map(({ kty, crv, x, kid }) => ({ kty, crv, x, ...(kid === undefined ? {} : { kid }) })) };
}

const bearerOf = (authorization: string | undefined): string | null => /^Bearer ([\w.-]+)$/i.exec(authorization ?? "")?.[1] ?? null;

const refused = (reason: GrantRefusal): Checked => ({ type: "refused", reason });
