// Who may come in: an API key, or a token of the configured authorization server; and what is said to whom that may not.
//
//   P1  A key or token comes in a header. One in the query string is not looked at.
//   P2  A challenge names where the metadata is and which scopes are needed, all at once (RFC 9728, RFC 6750). Both come from the configuration,
//       never from the request.
//   P3  Anonymous calls are taken only where the operator said so, and that only on a loopback address.

import type { IncomingHttpHeaders } from "node:http";
import { Refusal } from "../../session-store/refusal.ts";
import { type Authenticate, WORKSPACE as TENANT } from "../authenticate.ts";
import type { Caller } from "./caller.ts";
import type { Scope } from "./surface.ts";
import { HAND_SCOPES, SCOPES } from "./surface.ts";
import { type Issuer, looksLikeToken, makeTokenCheck } from "./token.ts";

const ALL: ReadonlySet<Scope> = new Set([...SCOPES, ...HAND_SCOPES]);
const ANONYMOUS: Caller = { workspace: TENANT, name: "anonymous", scopes: ALL };

/** Not let in: what to answer. */
export class Challenge extends Error {
  override readonly name = "Challenge";
  readonly status: 401 | 403;
  readonly header: string;

  constructor(status: 401 | 403, says: string, header: string) {
    super(says);
    this.status = status;
    this.header = header;
  }
}

export interface AccessOptions {
  readonly authenticate: Authenticate;
  readonly issuer: Issuer | null;
  readonly isOpen: boolean;
  /** The URL of the door, as clients name it. */
  readonly resource: () => string;
}

export class Access {
  readonly #options: AccessOptions;
  readonly #check: ReturnType<typeof makeTokenCheck> | null;
  readonly #scopes: readonly Scope[];
  readonly #audiences: () => readonly string[];

  constructor(options: AccessOptions, scopes: readonly Scope[] = SCOPES, outer: Access | null = null) {
    this.#options = options;
    this.#scopes = scopes;
    this.#check = outer ? outer.#check : options.issuer && makeTokenCheck(options.issuer, TENANT);
    this.#audiences = () => [options.resource(), ...(outer ? [outer.#options.resource()] : [])];
  }

  /** Who may come in by another door of this installation. A token for this one opens it, too, if it has the scopes. */
  within(resource: () => string, scopes: readonly Scope[]): Access {
    return new Access({ ...this.#options, resource }, scopes, this);
  }

  /** P1 P3 */
  async caller(headers: IncomingHttpHeaders): Promise<Caller> {
    const { authorization } = headers;
    if (this.#options.isOpen && authorization === undefined && headers["x-api-key"] === undefined) return ANONYMOUS;
    const bearer = this.#check && authorization !== undefined ? /^bearer +(\S+) *$/i.exec(authorization)?.[1] : undefined;
    if (this.#check && bearer !== undefined && looksLikeToken(bearer)) {
      const caller = await this.#check(bearer, this.#audiences());
      if (!caller) throw this.#challenge(401, "The access token is not valid here.", 'error="invalid_token"', this.#scopes);
      return caller;
    }
    try {
      const { workspace, name } = this.#options.authenticate(headers);
      return { workspace, name, scopes: ALL };
    } catch (error) {
      if (!(error instanceof Refusal && error.code === "unauthenticated")) throw error;
      const isGiven = authorization !== undefined || headers["x-api-key"] !== undefined;
      throw this.#challenge(401, error.message, isGiven ? 'error="invalid_token"' : null, this.#scopes);
    }
  }

  /** P2 */
  demand(caller: Caller, scopes: readonly Scope[]): void {
    if (scopes.every((scope) => caller.scopes.has(scope))) return;
    // What the token has stays, so that a client that asks for these loses nothing.
    const union = [...ALL].filter((scope) => scopes.includes(scope) || caller.scopes.has(scope));
    throw this.#challenge(403, "The access token does not allow this.", 'error="insufficient_scope"', union);
  }

  /** RFC 9728; null when no authorization server is configured. */
  metadata(): object | null {
    const { issuer } = this.#options;
    if (!issuer) return null;
    return {
      resource: this.#options.resource(),
      authorization_servers: [issuer.issuer],
      scopes_supported: this.#scopes,
      bearer_methods_supported: ["header"],
      resource_name: "Manyhands",
    };
  }

  /** The path that the metadata is at: the resource's own, inserted. */
  metadataPath(): string {
    const { pathname } = new URL(this.#options.resource());
    return `/.well-known/oauth-protected-resource${pathname === "/" ? "" : pathname}`;
  }

  #challenge(status: 401 | 403, says: string, error: string | null, scopes: readonly Scope[]): Challenge {
    const at = this.#options.issuer ? `resource_metadata="${new URL(this.metadataPath(), this.#options.resource()).href}"` : null;
    const parts = ['realm="manyhands"', error, `scope="${scopes.join(" ")}"`, at].filter((part) => part !== null);
    return new Challenge(status, says, `Bearer ${parts.join(", ")}`);
  }
}
