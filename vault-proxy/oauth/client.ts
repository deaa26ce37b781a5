// As which client we come to an authorization server: one that was registered before, the published metadata document, or one registered now.
//
//   K1  A client belongs to the authorization server that it was made for: each connect finds its client anew, and nothing of another server's is shown.
//   K2  A registered client that needs no secret has none; otherwise the secret stays with the credential that it was made for.
//   K3  A registration names the scope, since some servers hold a client to it; one that refuses it is asked once more without.

import {
  type AuthorizationServerMetadata,
  OAuthError,
  RegistrationRejectedError,
  registerClient,
  selectClientAuthMethod,
} from "@modelcontextprotocol/client";
import { z } from "zod";
import type { Guard } from "../guard.ts";
import { ConnectFailure, plainCode, unreachable } from "./failure.ts";

const METHODS = ["none", "client_secret_basic", "client_secret_post"] as const;
type Method = (typeof METHODS)[number];

export interface GivenClient {
  readonly client_id: string;
  readonly client_secret?: string | undefined;
}

export interface OAuthClient {
  readonly client_id: string;
  readonly client_secret?: string | undefined;
  readonly token_endpoint_auth_method: Method;
}

/** One that was kept. */
export const OAuthClient: z.ZodType<OAuthClient> = z.strictObject({
  client_id: z.string(),
  client_secret: z.string().optional(),
  token_endpoint_auth_method: z.enum(METHODS),
});

interface Wanted {
  readonly issuer: AuthorizationServerMetadata;
  readonly given: GivenClient | null;
  /** The published document's address; null: there is none, or the redirect is not in it. */
  readonly documentUrl: string | null;
  readonly redirectUri: string;
  readonly scope: string | null;
}

export async function clientFor(guard: Guard, wanted: Wanted, signal: AbortSignal): Promise<OAuthClient> {
  const { issuer, given, documentUrl } = wanted;
  if (given !== null) return withMethod(given, issuer);
  if (documentUrl !== null && issuer.client_id_metadata_document_supported === true)
    return { client_id: documentUrl, token_endpoint_auth_method: "none" };
  if (issuer.registration_endpoint !== undefined) return registered(guard, wanted, signal);
  throw new ConnectFailure(
    "no_client",
    `${new URL(issuer.issuer).host} registers no clients by itself: register one there with the redirect address ${wanted.redirectUri} and give its client_id.`,
  );
}

/** K2 K3 */
async function registered(guard: Guard, { issuer, redirectUri, scope }: Wanted, signal: AbortSignal): Promise<OAuthClient> {
  const supported = issuer.token_endpoint_auth_methods_supported;
  const clientMetadata = {
    client_name: "Manyhands",
    redirect_uris: [redirectUri],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: METHODS.find((each) => supported?.includes(each)) ?? "none",
    application_type: new URL(redirectUri).protocol === "http:" ? "native" : "web",
  };
  const fetchFn = (url: string | URL, init?: RequestInit) => guard.fetch(url, { ...init, signal });
  const ask = (more: { readonly scope?: string }) => registerClient(issuer.issuer, { metadata: issuer, clientMetadata, ...more, fetchFn });
  try {
    return withMethod(await (scope === null ? ask({}) : ask({ scope }).catch((error: unknown) => againWithout(error, () => ask({})))), issuer);
  } catch (error) {
    throw failureOf(error, new URL(issuer.issuer).host);
  }
}

/** K3 */
function againWithout<T>(error: unknown, ask: () => Promise<T>): Promise<T> {
  if (error instanceof RegistrationRejectedError && error.status === 400) return ask();
  throw error;
}

function failureOf(error: unknown, host: string): unknown {
  if (error instanceof RegistrationRejectedError)
    return new ConnectFailure(
      "registration_refused",
      `${host} refuses to register a client (status ${error.status}): register one there and give its client_id.`,
    );
  if (error instanceof OAuthError)
    return new ConnectFailure("registration_refused", `${host} refuses to register a client (${plainCode(error.code)}).`);
  if (error instanceof z.core.$ZodError || error instanceof SyntaxError)
    return new ConnectFailure("registration_refused", `${host} answers a registration with something that is none.`);
  return unreachable("The authorization server's registration", error);
}

function withMethod(
  client: GivenClient & { readonly token_endpoint_auth_method?: string | undefined },
  issuer: AuthorizationServerMetadata,
): OAuthClient {
  const { client_id, client_secret, token_endpoint_auth_method } = client;
  const known = {
    client_id,
    ...(client_secret === undefined ? {} : { client_secret }),
    ...(token_endpoint_auth_method === undefined ? {} : { token_endpoint_auth_method }),
  };
  const method = selectClientAuthMethod(known, issuer.token_endpoint_auth_methods_supported ?? []);
  const found = METHODS.find((each) => each === method) ?? "none";
  if (found !== "none" && client_secret === undefined)
    throw new ConnectFailure("no_client", `${new URL(issuer.issuer).host} wants a client secret: give it along with the client_id.`);
  return found === "none" || client_secret === undefined
    ? { client_id, token_endpoint_auth_method: "none" }
    : { client_id, client_secret, token_endpoint_auth_method: found };
}
