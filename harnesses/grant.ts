// Grants: what lets a session use a credential, for ten minutes, without anyone here seeing it. Signed here, checked by the vault proxy.

import { readFile } from "node:fs/promises";
import { importJWK, SignJWT } from "jose";
import { z } from "zod";
import type { Fence, SessionId } from "../session-store/ids.ts";

const LIFE_S = 600;

/** What a grant opens: the model for a harness; MCP servers, or the way out of a sandbox and its repositories, for a hand host. None is given another's. */
export type GrantUse = "model" | "mcp" | "egress" | "git";

interface GrantClaims {
  readonly session: SessionId;
  readonly fence: Fence;
  readonly vaults: readonly string[];
  readonly workspace: string;
  readonly use: GrantUse | readonly GrantUse[];
  /** For `egress` and `git`: the hash of the policy. */
  readonly network?: string;
}

interface Minted {
  readonly text: Promise<string>;
  readonly lifeMs: number;
}

export type MintGrant = (claims: GrantClaims) => Minted;

type SigningKey = Awaited<ReturnType<typeof importJWK>>;
const PrivateJwk = z.looseObject({ kty: z.literal("OKP"), crv: z.literal("Ed25519"), x: z.string(), d: z.string(), kid: z.string() });

/** Reads the signing key once. The key itself never appears in an error. */
export async function signingKey(privateKeyFile: string): Promise<{ readonly jwk: z.infer<typeof PrivateJwk>; readonly key: SigningKey }> {
  const jwk = PrivateJwk.safeParse(parse(await readFile(privateKeyFile, "utf8")));
  if (!jwk.success) throw new Error(`The file ${privateKeyFile} is not an Ed25519 signing key with a key id.`);
  return { jwk: jwk.data, key: await importJWK(jwk.data, "EdDSA") };
}

export async function grantMinter(privateKeyFile: string): Promise<MintGrant> {
  const { jwk, key } = await signingKey(privateKeyFile);
  const { kid } = jwk;
  return ({ session, fence, vaults, workspace, use, network }) => ({
    lifeMs: LIFE_S * 1000,
    text: new SignJWT({ fence, vaults: [...vaults], workspace, use: [use].flat(), ...(network === undefined ? {} : { network }) })
      .setProtectedHeader({ alg: "EdDSA", kid })
      .setIssuer("manyhands")
      .setAudience("vault-proxy")
      .setSubject(session)
      .setIssuedAt()
      .setExpirationTime(`${LIFE_S}s`)
      .sign(key),
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // The syntax error would quote the key.
    return null;
  }
}
