// `mcp_oauth_validate`: is this credential good? The server is asked with it, and its tokens are renewed where that is due or was refused.
//
//   L1  What a server or an authorization server said is shown in a bounded piece, and no token, secret or code of the credential stands in it.
//   L2  It asks for new tokens as any use does (oauth/refresh.ts): no more often, and together with whoever asks at the same time.

import type { IncomingHttpHeaders } from "node:http";
import type { Dispatcher } from "undici";
import { z } from "zod";
import { type Audit, AuditTrouble } from "../audit.ts";
import type { Guard } from "../guard.ts";
import type { Asker, Flown, Refresher } from "../oauth/refresh.ts";
import type { Why } from "../oauth/refresh-state.ts";
import { type Place, readOAuth } from "../oauth/stored.ts";
import type { Answered } from "../oauth/token-request.ts";
import { formEncoded, Scrubber } from "../scrub.ts";
import type { OAuth } from "./auth-schema.ts";
import type { ApiCall } from "./call.ts";
import { CredentialId, rfc3339, time, VaultId } from "./fields.ts";
import { ApiRefusal, invalid, noSuchCredential } from "./refusal.ts";
import type { Vaults } from "./vaults.ts";

const BODY_BYTES_MAX = 4_096;
const PROBE_MS = 10_000;
const MASK = "********";
const METHOD = "initialize";

const HttpResponse = z.strictObject({
  status_code: z.number().int(),
  content_type: z.string().nullable(),
  body: z.string(),
  body_truncated: z.boolean(),
});
type HttpResponse = z.infer<typeof HttpResponse>;

export const Validation = z.strictObject({
  type: z.literal("vault_credential_validation"),
  credential_id: CredentialId,
  vault_id: VaultId,
  validated_at: time,
  has_refresh_token: z.boolean(),
  status: z.enum(["valid", "invalid", "unknown"]),
  mcp_probe: z.strictObject({ method: z.string(), http_response: HttpResponse.nullable() }).nullable(),
  refresh: z
    .strictObject({ status: z.enum(["succeeded", "failed", "connect_error", "no_refresh_token"]), http_response: HttpResponse.nullable() })
    .nullable(),
});
export type Validation = z.infer<typeof Validation>;

interface ValidatorOptions {
  readonly vaults: Vaults;
  readonly guard: Guard;
  readonly refresher: Refresher;
  readonly audit: Audit;
}

export class Validator {
  readonly #options: ValidatorOptions;

  constructor(options: ValidatorOptions) {
    this.#options = options;
  }

  async validate(call: ApiCall): Promise<Validation> {
    const place: Place = { workspace: call.caller.workspace, vault: call.id("vault"), credential: call.id("credential") };
    const auth = await this.#find(place);
    const hidden = new Hidden(auth);
    const asker = { requestId: call.caller.requestId };
    let flown = await this.#usable(place, auth, { type: "due" }, asker, hidden);
    let refresh = refreshOf(flown, auth);
    let probe = flown.usable.type === "use" ? await this.#probe(place, auth, flown.usable.token, asker) : null;
    if (flown.usable.type === "use" && probe?.status === 401) {
      flown = await this.#usable(place, auth, { type: "rejected", token: flown.usable.token }, asker, hidden);
      refresh = refreshOf(flown, auth) ?? refresh;
      if (flown.usable.type === "use") probe = await this.#probe(place, auth, flown.usable.token, asker);
    }
    return {
      type: "vault_credential_validation",
      credential_id: place.credential,
      vault_id: place.vault,
      validated_at: rfc3339(Date.now()),
      has_refresh_token: auth.refresh?.refresh_token != null,
      status: statusOf(flown, probe),
      mcp_probe: probe && { method: METHOD, http_response: probe.http && hidden.shown(probe.http) },
      refresh: refresh && { status: refresh.status, http_response: refresh.http && hidden.shown(refresh.http) },
    };
  }

  async #find({ workspace, vault: vaultId, credential }: Place): Promise<OAuth> {
    const { vault } = await this.#options.vaults.read(workspace, vaultId);
    const found = vault.credentials.find((each) => each.id === credential);
    if (found === undefined) throw noSuchCredential();
    if (found.auth.type !== "mcp_oauth") throw invalid(`The credential is of the type ${found.auth.type}; only mcp_oauth can be validated.`);
    if (found.archivedAt !== null) throw invalid("The credential is archived.");
    return found.auth;
  }

  async #usable(place: Place, auth: OAuth, why: Why, asker: Asker, hidden: Hidden): Promise<Flown> {
    // What is stored now: the tokens may be others than a moment ago.
    const now = why.type === "due" ? auth : ((await readOAuth(this.#options.vaults, place)) ?? auth);
    const flown = await this.#options.refresher.usable(place, now, why, asker);
    if (flown.answer?.type === "tokens") hidden.hide(flown.answer.tokens.access, flown.answer.tokens.refresh);
    if (flown.usable.type === "use") hidden.hide(flown.usable.token);
    return flown;
  }

  /** Asks the server as a client does that opens a session. `http` null: it could not be asked. */
  async #probe(place: Place, auth: OAuth, token: string, asker: Asker): Promise<{ readonly status: number | null; readonly http: Answered | null }> {
    const { audit, guard } = this.#options;
    const url = new URL(auth.mcp_server_url);
    try {
      await audit.write({ use: "validate", ...asker, ...place, origin: url.origin });
    } catch (error) {
      if (!(error instanceof AuditTrouble)) throw error;
      throw new ApiRefusal(503, "api_error", "The use of a credential can't be written to the audit, and so it does not happen.");
    }
    if (guard.refuses(url) !== null) return { status: null, http: null };
    const signal = AbortSignal.timeout(PROBE_MS);
    const at = { origin: url.origin, path: url.pathname + url.search, signal };
    const headers = { authorization: `Bearer ${token}`, accept: "application/json, text/event-stream", "accept-encoding": "identity" };
    const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "manyhands", version: "1" } };
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: METHOD, params: hello });
    let answer: Dispatcher.ResponseData;
    try {
      answer = await guard.agent.request({ ...at, method: "POST", headers: { ...headers, "content-type": "application/json" }, body });
    } catch {
      return { status: null, http: null }; // Whatever it was, the server could not be asked: that is what is told.
    }
    const http = { status: answer.statusCode, contentType: textOf(answer.headers, "content-type"), body: await beginningOf(answer) };
    const session = textOf(answer.headers, "mcp-session-id");
    if (session !== null) await endSession(guard, { ...at, headers: { ...headers, "mcp-session-id": session } });
    return { status: answer.statusCode, http };
  }
}

/** L1 */
class Hidden {
  readonly #secrets = new Set<string>();

  constructor({ access_token, refresh }: OAuth) {
    const secret = refresh?.token_endpoint_auth.client_secret;
    this.hide(access_token, refresh?.refresh_token, secret);
    // As it is sent: encoded as in a form, before it is encoded with the client's name in one.
    if (secret) this.hide(formEncoded(secret));
  }

  hide(...secrets: readonly (string | null | undefined)[]): void {
    for (const secret of secrets) if (secret) this.#secrets.add(secret);
  }

  shown({ status, contentType, body }: Answered): HttpResponse {
    const masked = new Scrubber(...this.#secrets).body();
    const bytes = Buffer.concat([masked.push(Buffer.from(withoutTokens(body))), masked.end()]);
    const isCut = bytes.length > BODY_BYTES_MAX;
    const text = bytes.subarray(0, BODY_BYTES_MAX).toString("utf8").toWellFormed();
    return { status_code: status, content_type: contentType?.slice(0, 255) ?? null, body: text, body_truncated: isCut };
  }
}

/** Tokens that a server gave out and that nobody took are hidden by their names. */
const withoutTokens = (body: string): string =>
  body.replace(/("(?:[A-Za-z_]*token|client_secret|code|assertion)"\s*:\s*)"(?:[^"\\]|\\.)*"?/gi, `$1"${MASK}"`);

interface Refreshed {
  readonly status: NonNullable<Validation["refresh"]>["status"];
  readonly http: Answered | null;
}

function refreshOf({ usable, answer }: Flown, auth: OAuth): Refreshed | null {
  switch (answer?.type) {
    case "tokens":
      return { status: "succeeded", http: answer.http };
    case "refused":
      return { status: "failed", http: answer.http };
    case "trouble":
      return { status: answer.http === null ? "connect_error" : "failed", http: answer.http };
    case undefined:
      break;
  }
  if (usable.type === "sign_in") return { status: "failed", http: null };
  if (usable.type === "later") return { status: "connect_error", http: null };
  return usable.type === "as_it_is" && auth.refresh?.refresh_token == null ? { status: "no_refresh_token", http: null } : null;
}

function statusOf({ usable }: Flown, probe: { readonly status: number | null } | null): Validation["status"] {
  if (usable.type === "sign_in") return "invalid";
  if (usable.type === "later" || probe === null || probe.status === null) return "unknown";
  if (probe.status === 401) return "invalid";
  return probe.status >= 200 && probe.status < 300 ? "valid" : "unknown";
}

/** As much as is shown, and one byte that says that there was more. A stream that stays open is left. */
async function beginningOf({ body }: Dispatcher.ResponseData): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const piece of body) {
      pieces.push(piece);
      bytes += piece.length;
      // More is read than shown: a secret that the end cuts in two would not be found.
      if (bytes > 2 * BODY_BYTES_MAX || /\n\r?\n$/.test(piece.toString("latin1"))) break;
    }
  } catch {
    // What came before it broke off is what is shown.
  }
  body.destroy();
  return Buffer.concat(pieces).toString("utf8");
}

async function endSession(guard: Guard, request: { origin: string; path: string; headers: Record<string, string> }): Promise<void> {
  try {
    const answer = await guard.agent.request({ ...request, method: "DELETE", signal: AbortSignal.timeout(PROBE_MS) });
    await answer.body.dump();
  } catch {
    // The server ends it by itself.
  }
}

function textOf(headers: IncomingHttpHeaders, name: string): string | null {
  const value = headers[name];
  return typeof value === "string" ? value : null;
}
