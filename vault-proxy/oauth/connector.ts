// Getting tokens for an MCP server on behalf of a person (MCP authorization, revision 2026-07-28, and the ones before it).
//
//   `start` finds out who gives out tokens and gives the address that the person opens; `finish` takes what came back from there and gives the tokens.
//
//   U1  A code is asked for and exchanged with PKCE S256 only; an authorization server that does not say it knows that is refused.
//   U2  What comes back is believed only from the issuer that was asked (RFC 9207): checked before an error of it is read and before a code is sent.
//   U3  Requests go through the guard and follow no redirect; a `start` and a `finish` each end within a bound.

import {
  type AuthorizationServerMetadata,
  exchangeAuthorization,
  InsecureTokenEndpointError,
  IssuerMismatchError,
  OAuthError,
  startAuthorization,
  validateAuthorizationResponseIssuer,
} from "@modelcontextprotocol/client";
import { z } from "zod";
import type { Guard } from "../guard.ts";
import type { VaultStore } from "../store.ts";
import { challengeOf } from "./challenge.ts";
import { clientFor, type GivenClient, OAuthClient } from "./client.ts";
import { type Discovered, discover, ServerMetadata, withoutAbsent } from "./discovery.ts";
import { ConnectFailure, plainCode, unreachable } from "./failure.ts";
import { Flows } from "./flows.ts";
import { scopeFor } from "./scope.ts";

/** Shorter than the gateway waits for us. */
const STEP_MS = 25_000;

export interface ConnectorOptions {
  readonly guard: Guard;
  /** Where an authorization rests while a person is in the middle of it. */
  readonly store: VaultStore;
  /** Our client metadata document, and the redirect that stands in it: on loopback, with any port. */
  readonly document: { readonly url: string; readonly redirectUri: string } | null;
  readonly now?: () => number;
}

export interface StartAsk {
  readonly server: URL;
  readonly redirectUri: string;
  /** Whom the answer must come from, and for what: compared as it is. */
  readonly owner: string;
  /** What is wanted beside what the server asks for. */
  readonly scope: string | null;
  readonly client: GivenClient | null;
}

export interface Started {
  /** For the person's browser. */
  readonly authorizationUrl: string;
  readonly state: string;
  readonly expiresAt: number;
}

/** What the redirect brought. */
export interface Returned {
  readonly state: string;
  readonly owner: string;
  readonly code: string | null;
  readonly iss: string | null;
  readonly error: string | null;
}

export interface Tokens {
  readonly server: URL;
  readonly accessToken: string;
  readonly expiresInS: number | null;
  readonly refreshToken: string | null;
  readonly tokenEndpoint: string;
  readonly client: OAuthClient;
  readonly scope: string | null;
  readonly resource: string | null;
}

const Flow = z.strictObject({
  server: z.url().transform((text) => new URL(text)),
  resource: z.string().nullable(),
  issuer: ServerMetadata.transform(withoutAbsent),
  client: OAuthClient,
  redirectUri: z.string(),
  scope: z.string().nullable(),
  verifier: z.string(),
});
type Flow = z.infer<typeof Flow>;

export class Connector {
  readonly #guard: Guard;
  readonly #document: ConnectorOptions["document"];
  readonly #flows: Flows<Flow>;

  constructor({ guard, store, document, now }: ConnectorOptions) {
    this.#guard = guard;
    this.#document = document;
    this.#flows = new Flows(store, Flow, now);
  }

  /** Rejects with a `ConnectFailure`, or the storage's trouble. */
  async start({ server, redirectUri, owner, scope: more, client: given }: StartAsk): Promise<Started> {
    const signal = AbortSignal.timeout(STEP_MS);
    try {
      const challenge = await challengeOf(this.#guard, server, signal);
      const found = await discover(this.#guard, server, challenge, signal);
      refuseWeak(found);
      const scope = scopeFor(challenge, found, more);
      const { issuer, resource } = found;
      const documentUrl = this.#document !== null && isSameButPort(redirectUri, this.#document.redirectUri) ? this.#document.url : null;
      const client = await clientFor(this.#guard, { issuer, given, documentUrl, redirectUri, scope }, signal);
      const { state, expiresAt } = this.#flows.mint();
      const { authorizationUrl, codeVerifier: verifier } = await startAuthorization(issuer.issuer, {
        metadata: issuer,
        clientInformation: client,
        redirectUrl: redirectUri,
        state,
        ...(scope === null ? {} : { scope }),
        ...(resource === null ? {} : { resource }),
      });
      const isKept = await this.#flows.keep(state, owner, { server, resource, issuer, client, redirectUri, scope, verifier });
      if (!isKept) throw new ConnectFailure("busy", "Too many authorizations are open; try again later.");
      return { authorizationUrl: authorizationUrl.href, state, expiresAt };
    } catch (error) {
      throw late(error, signal);
    }
  }

  /** Rejects with a `ConnectFailure`, or the storage's trouble; the state is used up all the same. `before` runs before the code is sent. */
  async finish({ state, owner, code, iss, error }: Returned, before: (flow: { tokenEndpoint: string }) => Promise<void>): Promise<Tokens> {
    const flow = await this.#flows.take(state, owner);
    if (flow === null)
      throw new ConnectFailure(
        "unknown_state",
        "There is no such authorization: it was used already, has ended, or somebody else began it. Start again.",
      );
    const { issuer } = flow;
    const host = new URL(issuer.issuer).host;
    checkIssuer(issuer, iss);
    if (error !== null) throw new ConnectFailure("denied", `${host} gave no access (${plainCode(error)}).`);
    if (code === null) throw new ConnectFailure("denied", `${host} sent back neither a code nor an error.`);
    await before({ tokenEndpoint: issuer.token_endpoint });
    return this.#exchange(flow, code, iss);
  }

  async #exchange({ server, resource, issuer, client, redirectUri, scope, verifier }: Flow, code: string, iss: string | null): Promise<Tokens> {
    const signal = AbortSignal.timeout(STEP_MS);
    try {
      const tokens = await exchangeAuthorization(issuer.issuer, {
        metadata: issuer,
        clientInformation: client,
        authorizationCode: code,
        codeVerifier: verifier,
        redirectUri,
        ...(iss === null ? {} : { iss }),
        ...(resource === null ? {} : { resource }),
        fetchFn: (url, init) => this.#guard.fetch(url, { ...init, signal }),
      });
      if (tokens.token_type.toLowerCase() !== "bearer")
        throw new ConnectFailure(
          "bad_tokens",
          `${new URL(issuer.issuer).host} gives tokens of a kind that is not known here; only bearer tokens are.`,
        );
      return {
        server,
        accessToken: tokens.access_token,
        expiresInS: tokens.expires_in ?? null,
        refreshToken: tokens.refresh_token ?? null,
        tokenEndpoint: issuer.token_endpoint,
        client,
        scope: tokens.scope ?? scope,
        resource,
      };
    } catch (error) {
      throw late(refusedToken(error, new URL(issuer.issuer).host), signal);
    }
  }
}

/** U1 */
function refuseWeak({ issuer }: Discovered): void {
  const { host } = new URL(issuer.issuer);
  if (!issuer.code_challenge_methods_supported?.includes("S256"))
    throw new ConnectFailure("no_pkce", `${host} does not say that it protects codes by PKCE (S256): no code is asked of it.`);
  if (!issuer.response_types_supported.includes("code"))
    throw new ConnectFailure("bad_metadata", `${host} gives out no codes, and other ways are not taken.`);
}

/** U2 */
function checkIssuer(issuer: AuthorizationServerMetadata, iss: string | null): void {
  try {
    validateAuthorizationResponseIssuer({
      iss: iss ?? undefined,
      expectedIssuer: issuer.issuer,
      issParameterSupported: issuer.authorization_response_iss_parameter_supported === true,
    });
  } catch (error) {
    if (!(error instanceof IssuerMismatchError)) throw error;
    throw new ConnectFailure(
      "issuer_mismatch",
      "The answer does not come from the authorization server that was asked: it is not used. Start again.",
    );
  }
}

function refusedToken(error: unknown, host: string): unknown {
  if (error instanceof OAuthError)
    return new ConnectFailure("token_refused", `${host} does not exchange the code (${plainCode(error.code)}). Start again.`);
  if (error instanceof InsecureTokenEndpointError)
    return new ConnectFailure("unreachable", `The token endpoint of ${host} is not spoken to without TLS.`);
  if (error instanceof z.core.$ZodError || error instanceof SyntaxError)
    return new ConnectFailure("bad_tokens", `${host} answers the code with something that is no token.`);
  return unreachable("The token endpoint", error);
}

function late(error: unknown, signal: AbortSignal): unknown {
  return signal.aborted && error === signal.reason
    ? new ConnectFailure("unreachable", `The servers did not answer within ${STEP_MS / 1000} seconds; try again.`)
    : error;
}

function isSameButPort(one: string, other: string): boolean {
  const [a, b] = [new URL(one), new URL(other)];
  return a.protocol === b.protocol && a.hostname === b.hostname && a.pathname === b.pathname && a.search === b.search;
}
