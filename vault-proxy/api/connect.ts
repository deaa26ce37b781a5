// Connecting a server: the authorization of a person ends in a credential of the vault.
//
//   X1  Tokens go from the authorization server into the record; no answer, error or log line of ours holds one, nor the code or its verifier.
//   X2  Who finishes is who began: the same workspace, caller and vault.
//   X3  The credential that the vault had for this server is archived, its secrets purged, in the same step in which the new one is written.

import { z } from "zod";
import type { Audit } from "../audit.ts";
import { AuditTrouble } from "../audit.ts";
import type { Connector, Tokens } from "../oauth/connector.ts";
import { ConnectFailure } from "../oauth/failure.ts";
import { keyOf, madeAuth, purgedAuth, type UrlRule } from "./auth.ts";
import { AuthCreate, type StoredAuth, serverUrl } from "./auth-schema.ts";
import type { ApiCall } from "./call.ts";
import { ACTIVE_MAX } from "./credentials.ts";
import { mintOrdered, time } from "./fields.ts";
import { holderOf, type StoredCredential, type StoredVault, wireOfCredential } from "./record.ts";
import { ApiRefusal, busy, invalid, notFound } from "./refusal.ts";
import { later, refuseArchived, type Vaults } from "./vaults.ts";

const text = (max: number) => z.string().min(1).max(max);
const LONG = 16_384;
const SHORT = 2_048;
const LOOPBACK = new Set(["127.0.0.1", "[::1]", "localhost"]);

export const ConnectStart = z.strictObject({
  mcp_server_url: serverUrl,
  redirect_uri: z.url().max(SHORT).describe("Where the browser ends: an address of yours, by https, or by http on this machine's loopback."),
  scope: text(4_096).nullish().describe("Wanted beside what the server asks for."),
  client: z
    .strictObject({ client_id: text(SHORT), client_secret: text(LONG).nullish() })
    .nullish()
    .describe("A client that was registered at the authorization server before."),
});
export const ConnectStarted = z.strictObject({
  type: z.literal("vault_connect"),
  authorization_url: z.url().describe("For the person's browser."),
  state: z.string(),
  expires_at: time,
});
export const ConnectFinish = z.strictObject({
  state: text(SHORT),
  code: text(LONG).nullish(),
  iss: text(SHORT).nullish(),
  error: text(SHORT).nullish(),
});

export interface ConnectParts {
  readonly connector: Connector;
  readonly audit: Audit;
}

export class Connects {
  readonly #vaults: Vaults;
  readonly #rule: UrlRule;
  readonly #connector: Connector;
  readonly #audit: Audit;

  constructor(vaults: Vaults, rule: UrlRule, { connector, audit }: ConnectParts) {
    this.#vaults = vaults;
    this.#rule = rule;
    this.#connector = connector;
    this.#audit = audit;
  }

  async start(call: ApiCall, given: z.infer<typeof ConnectStart>): Promise<z.infer<typeof ConnectStarted>> {
    const server = new URL(given.mcp_server_url);
    // Refused as a credential for this address would be.
    const probe = madeAuth({ type: "static_bearer", mcp_server_url: given.mcp_server_url, token: "x" }, this.#rule);
    refuseRedirect(given.redirect_uri);
    const { vault } = await this.#vaults.read(call.caller.workspace, call.id("vault"));
    const known = roomFor(vault, probe);
    const granted = known?.auth.type === "mcp_oauth" ? (known.auth.refresh?.scope ?? null) : null;
    const scope = given.scope ? [granted, given.scope].filter((each) => each !== null).join(" ") : null;
    const client = given.client ? { client_id: given.client.client_id, client_secret: given.client.client_secret ?? undefined } : null;
    try {
      const { authorizationUrl, state, expiresAt } = await this.#connector.start({
        server,
        redirectUri: given.redirect_uri,
        owner: ownerOf(call),
        scope,
        client,
      });
      return { type: "vault_connect", authorization_url: authorizationUrl, state, expires_at: new Date(expiresAt).toISOString() };
    } catch (error) {
      throw refusalFor(error);
    }
  }

  async finish(call: ApiCall, { state, code, iss, error }: z.infer<typeof ConnectFinish>): Promise<unknown> {
    const { workspace, requestId } = call.caller;
    const vaultId = call.id("vault");
    const { id, at } = mintOrdered("vcrd");
    let tokens: Tokens;
    try {
      tokens = await this.#connector.finish(
        { state, owner: ownerOf(call), code: code ?? null, iss: iss ?? null, error: error ?? null },
        ({ tokenEndpoint }) =>
          this.#audit.write({ use: "oauth_connect", workspace, requestId, vault: vaultId, credential: id, origin: new URL(tokenEndpoint).origin }),
      );
    } catch (failure) {
      throw refusalFor(failure);
    }
    const auth = authOf(tokens, this.#rule);
    const { vault } = await this.#vaults.change(workspace, vaultId, (before) => {
      const known = roomFor(before, auth);
      const kept = known ? before.credentials.map((each) => (each === known ? archived(known) : each)) : before.credentials;
      const made: StoredCredential = {
        id,
        display_name: known?.display_name ?? null,
        metadata: known?.metadata ?? {},
        createdAt: at,
        updatedAt: at,
        archivedAt: null,
        origin: { key: null, digest: "" },
        auth,
      };
      return { ...before, credentials: [...kept, made] };
    });
    const made = vault.credentials.find((each) => each.id === id);
    if (!made) throw new Error("a credential that was made is not in its vault");
    return wireOfCredential(vaultId, made);
  }
}

/** X2 */
const ownerOf = (call: ApiCall): string => JSON.stringify([call.caller.workspace, call.caller.principal, call.id("vault")]);

function refuseRedirect(redirectUri: string): void {
  const { protocol, hostname, username, password, hash } = new URL(redirectUri);
  const isFine = protocol === "https:" || (protocol === "http:" && LOOPBACK.has(hostname));
  if (!isFine || username !== "" || password !== "" || hash !== "")
    throw invalid("redirect_uri: must be an https:// address, or an http:// one on loopback, without user name, password and fragment");
}

/** The active credential for the same server; refuses where no other would fit in. */
function roomFor(vault: StoredVault, auth: StoredAuth): StoredCredential | undefined {
  refuseArchived(vault);
  const known = holderOf(vault, auth);
  if (known && known.auth.type !== "mcp_oauth")
    throw invalid(`mcp_server_url: an active credential of this vault (${known.id}) is for this server and is none of OAuth; archive it first`);
  if (!known && vault.credentials.filter((each) => each.archivedAt === null && keyOf(each.auth) !== keyOf(auth)).length >= ACTIVE_MAX)
    throw invalid(`A vault holds at most ${ACTIVE_MAX} active credentials.`);
  return known;
}

/** X3 */
function archived(credential: StoredCredential): StoredCredential {
  const at = later(credential);
  return { ...credential, archivedAt: at, updatedAt: at, auth: purgedAuth(credential.auth) };
}

/** Read by the schema by which a caller's own tokens are. */
function authOf({ server, accessToken, expiresInS, refreshToken, tokenEndpoint, client, scope, resource }: Tokens, rule: UrlRule): StoredAuth {
  const { token_endpoint_auth_method: type, client_id, client_secret } = client;
  const read = AuthCreate.safeParse({
    type: "mcp_oauth",
    mcp_server_url: server.href,
    access_token: accessToken,
    expires_at: expiresInS !== null && expiresInS > 0 ? new Date(Date.now() + Math.min(expiresInS, EXPIRES_S_MAX) * 1000).toISOString() : null,
    refresh:
      refreshToken === null
        ? null
        : {
            token_endpoint: tokenEndpoint,
            client_id,
            refresh_token: refreshToken,
            scope,
            resource,
            token_endpoint_auth: { type, ...(type === "none" ? {} : { client_secret }) },
          },
  });
  if (!read.success) throw invalid("The authorization server's tokens can't be kept: they are too long, or hold characters that no header takes.");
  return madeAuth(read.data, rule);
}

const EXPIRES_S_MAX = 10 * 365 * 24 * 3_600;

function refusalFor(error: unknown): unknown {
  if (error instanceof AuditTrouble)
    return new ApiRefusal(503, "api_error", "The use of the code can't be written to the audit, and so it does not happen. Start again.");
  if (!(error instanceof ConnectFailure)) return error;
  if (error.code === "busy") return busy();
  return error.code === "unknown_state" ? notFound(error.message) : invalid(`${error.code}: ${error.message}`);
}
