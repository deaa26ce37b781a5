// What to ask an authorization server for.

import { computeScopeUnion } from "@modelcontextprotocol/client";
import type { Challenge } from "./challenge.ts";
import type { Discovered } from "./discovery.ts";

const LASTING = "offline_access";

/**
 * What the server's challenge names; without one, all that its metadata lists; without that, nothing. What was granted before, or was asked for, is
 * asked for as well. Access that lasts is asked for where the authorization server knows the word.
 */
export function scopeFor(challenge: Challenge, { resourceScopes, issuer }: Discovered, more: string | null): string | null {
  const scope = computeScopeUnion(challenge.scope ?? resourceScopes ?? undefined, more ?? undefined);
  if (scope === undefined) return null;
  return issuer.scopes_supported?.includes(LASTING) ? (computeScopeUnion(scope, LASTING) ?? scope) : scope;
}
