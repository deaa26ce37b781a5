// Who gives out tokens for an MCP server, and for which resource (RFC 9728, RFC 8414, OpenID Connect Discovery).
//
//   V1  The metadata that the server's challenge names is asked first, then the one under the server's path, then the one at its root. A place that
//       has nothing (an error, a redirect, a page) is passed over; one that must not be reached ends the search.
//   V2  The resource is sent as it was advertised, to the letter. It must be the server itself or what is above it on the same origin; a slash at the
//       end says nothing either way.
//   V3  An authorization server's document must name the issuer that it was asked for: another one is a mix-up and ends the search.
//   V4  A server without resource metadata is from before there was any: its own origin is asked, and no resource is named.
//   V5  An authorization server without a document is not used. Revision 2025-03-26 let a client go on at /authorize, /token and /register of the origin;
//       later ones have it refuse where no document says that codes are protected by PKCE (S256), and guessed addresses are nobody's word.

import { type AuthorizationServerMetadata, buildDiscoveryUrls } from "@modelcontextprotocol/client";
import { z } from "zod";
import { type Guard, Unreachable } from "../guard.ts";
import type { Challenge } from "./challenge.ts";
import { ConnectFailure, unreachable } from "./failure.ts";

const URL_CHARS_MAX = 2_048;
const LIST_MAX = 256;

const url = z.url({ protocol: /^https?$/ }).max(URL_CHARS_MAX);
const names = z.array(z.string().max(URL_CHARS_MAX)).max(LIST_MAX);
const ResourceMetadata = z.object({
  resource: url,
  authorization_servers: z.array(url).max(LIST_MAX).optional(),
  scopes_supported: names.optional(),
});
type ResourceMetadata = z.infer<typeof ResourceMetadata>;

/** What both kinds of documents have in common, and all that is used of them. */
export const ServerMetadata = z.object({
  issuer: url,
  authorization_endpoint: url,
  token_endpoint: url,
  registration_endpoint: url.optional(),
  response_types_supported: names.default(["code"]),
  code_challenge_methods_supported: names.optional(),
  token_endpoint_auth_methods_supported: names.optional(),
  scopes_supported: names.optional(),
  client_id_metadata_document_supported: z.boolean().optional(),
  authorization_response_iss_parameter_supported: z.boolean().optional(),
});

export interface Discovered {
  /** As advertised; null: the server advertises none. V2 V4 */
  readonly resource: string | null;
  readonly resourceScopes: string | null;
  readonly issuer: AuthorizationServerMetadata;
}

export async function discover(guard: Guard, server: URL, challenge: Challenge, signal: AbortSignal): Promise<Discovered> {
  const found = await resourceMetadataOf(guard, server, challenge, signal);
  if (found !== null && !covers(found.resource, server))
    throw new ConnectFailure(
      "resource_mismatch",
      `The metadata of ${server.host} is for another resource than the address that was given; check the address.`,
    );
  const at = found?.authorization_servers?.[0] ?? new URL("/", server).href;
  const scopes = found?.scopes_supported?.join(" ");
  return { resource: found?.resource ?? null, resourceScopes: scopes || null, issuer: await issuerAt(guard, at, signal) };
}

/** V1 */
async function resourceMetadataOf(guard: Guard, server: URL, challenge: Challenge, signal: AbortSignal): Promise<ResourceMetadata | null> {
  const places = [...(challenge.resourceMetadata ? [challenge.resourceMetadata] : []), ...wellKnown(server)];
  for (const place of places) {
    const document = await documentAt(guard, place, "The server's resource metadata", signal);
    if (document.body === undefined) continue;
    const read = ResourceMetadata.safeParse(document.body);
    if (read.success) return read.data;
    if (place === challenge.resourceMetadata)
      throw new ConnectFailure("bad_metadata", `The resource metadata at ${place.host} can't be used: ${fieldsOf(read.error)}.`);
  }
  return null;
}

function wellKnown(server: URL): readonly URL[] {
  const path = server.pathname.replace(/\/+$/, "");
  const paths = path === "" ? [""] : [`${path}${server.search}`, ...(server.pathname === path ? [] : [`${path}/${server.search}`]), ""];
  return paths.map((each) => new URL(`/.well-known/oauth-protected-resource${each}`, server.origin));
}

/** V2 */
function covers(resource: string, server: URL): boolean {
  const { origin, pathname, hash } = new URL(resource);
  const withSlash = (path: string) => (path.endsWith("/") ? path : `${path}/`);
  return origin === server.origin && hash === "" && withSlash(server.pathname).startsWith(withSlash(pathname));
}

/** V3 */
async function issuerAt(guard: Guard, at: string, signal: AbortSignal): Promise<AuthorizationServerMetadata> {
  let troubled = "";
  for (const { url: place } of buildDiscoveryUrls(at)) {
    const document = await documentAt(guard, place, "The authorization server", signal);
    if (document.status >= 500) troubled = ` (it answered with status ${document.status})`;
    if (document.body === undefined) continue;
    const read = ServerMetadata.safeParse(document.body);
    if (!read.success) throw new ConnectFailure("bad_metadata", `The metadata of ${place.host} can't be used: ${fieldsOf(read.error)}.`);
    if (bare(read.data.issuer) !== bare(at))
      throw new ConnectFailure(
        "issuer_mismatch",
        `The metadata of ${place.host} names another issuer than the one it was asked for: it is not used.`,
      );
    for (const name of ["authorization_endpoint", "token_endpoint", "registration_endpoint"] as const) {
      const refused = read.data[name] === undefined ? null : guard.refuses(new URL(read.data[name]));
      if (refused !== null) throw unreachable(`The authorization server's ${name}`, refused);
    }
    return withoutAbsent(read.data);
  }
  throw new ConnectFailure(
    "no_metadata",
    `${new URL(at).host} tells nowhere how tokens are given out${troubled}, and default addresses are not tried, since nothing says that codes are protected there (PKCE). If this is an MCP server that wants OAuth, get a token from it in another way and put it into the vault as a credential.`,
  );
}

const bare = (text: string): string => text.replace(/\/$/, "");

/** The fields that are there: the client's types tell an absent one from an undefined one. */
export function withoutAbsent(found: z.infer<typeof ServerMetadata>): AuthorizationServerMetadata {
  // Every field is one of that type's own, read by the schema above.
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined)) as AuthorizationServerMetadata;
}

/** `body` undefined: nothing of use is there. V1 */
async function documentAt(
  guard: Guard,
  place: URL,
  what: string,
  signal: AbortSignal,
): Promise<{ readonly status: number; readonly body?: unknown }> {
  try {
    const answer = await guard.fetch(place, { headers: { accept: "application/json" }, signal });
    if (answer.status !== 200) return { status: answer.status };
    return { status: answer.status, body: jsonOf(await answer.text()) };
  } catch (error) {
    if (error instanceof Unreachable && error.reason === "redirect") return { status: 0 };
    throw unreachable(what, error);
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // A page for people: the same as nothing.
  }
}

const fieldsOf = (error: z.ZodError): string =>
  [...new Set(error.issues.map(({ path }) => path.join(".") || "it is no object"))].slice(0, 5).join(", ");
