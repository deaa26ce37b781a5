// Who calls: one of the API keys of this installation, as a bearer or in `x-api-key` (contract §1.2).
//
//   U1  Keys are compared by hash and in constant time; neither a key nor its hash is logged or answered.

import { hash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { Refusal } from "../session-store/refusal.ts";

/** What `anthropic-version` may say; there is no difference between them here. */
export const API_VERSIONS: ReadonlySet<string> = new Set(["2026-10-21", "2023-06-01"]);

/** The only workspace until keys have one of their own. */
export const WORKSPACE = "default";

export interface Principal {
  readonly workspace: string;
  /** A stable, secret-free name of the key: what ids and digests are made from. */
  readonly name: string;
}

export type Authenticate = (headers: IncomingHttpHeaders) => Principal;

export function makeAuthenticate(apiKeys: readonly string[]): Authenticate {
  const known = apiKeys.map((key) => {
    const digest = hashOf(key);
    return { digest, principal: { workspace: WORKSPACE, name: hashOf(digest).toString("hex", 0, 12) } };
  });
  return (headers) => {
    const given = hashOf(keyOf(headers));
    let found: Principal | null = null;
    for (const { digest, principal } of known) if (timingSafeEqual(digest, given)) found = principal;
    if (!found) throw new Refusal("unauthenticated");
    return found;
  };
}

function keyOf(headers: IncomingHttpHeaders): string {
  const { authorization } = headers;
  const apiKey = headers["x-api-key"];
  if (Array.isArray(apiKey)) throw new Refusal("unauthenticated");
  const bearer = authorization === undefined ? undefined : /^bearer +(\S+) *$/i.exec(authorization)?.[1];
  if (authorization !== undefined && bearer === undefined) throw new Refusal("unauthenticated", "The authorization header holds no bearer key.");
  if (bearer !== undefined && apiKey !== undefined && !timingSafeEqual(hashOf(bearer), hashOf(apiKey)))
    throw new Refusal("unauthenticated", "The authorization and x-api-key headers hold different keys.");
  const key = bearer ?? apiKey;
  if (!key) throw new Refusal("unauthenticated", "No API key was given.");
  return key;
}

const hashOf = (text: string | Buffer): Buffer => hash("sha256", text, "buffer");
