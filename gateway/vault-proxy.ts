// The gateway's side of the vault proxy: it lets callers in, says for whom it asks, and passes bytes.
//
//   G1  The caller's own key stops here. What goes on is a token of ours for this one request: the workspace, the caller's name, the request's id.
//   G2  Bodies pass as they come, both ways, with back-pressure: no byte of them is collected, parsed, logged or kept.
//   G3  A caller that leaves ends the request to the proxy, and every wait has a deadline.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type CryptoKey, importJWK, SignJWT } from "jose";
import type { Logger } from "pino";
import { Agent, type Dispatcher } from "undici";
import { z } from "zod";
import { Refusal } from "../session-store/refusal.ts";
import type { Principal } from "./authenticate.ts";

const CONNECTIONS_MAX = 64;
const CONNECT_MS = 2_000;
/** The proxy's own storage may be a server elsewhere. */
const ANSWER_MS = 30_000;
/** An archive waits no longer for it. */
const REVOKE_MS = 2_000;
const TOKEN_LIFE_S = 60;
const GRANT_LIFE_S = 600;
const GRANT_LIFE_USED = 0.6;
const SMALL_BYTES_MAX = 1024 * 1024;

const SigningKey = z.object({ kty: z.literal("OKP"), crv: z.literal("Ed25519"), x: z.string(), d: z.string(), kid: z.string() });
const Checked = z.object({ unknown: z.array(z.string()), archived: z.array(z.string()) });
const Part = z.object({ paths: z.record(z.string(), z.unknown()), schemas: z.record(z.string(), z.unknown()) });
export type OpenApiPart = z.infer<typeof Part>;

/** For whom something is asked. */
export interface Asking {
  readonly principal: Principal;
  readonly requestId: string;
}

export interface Passed {
  readonly method: "GET" | "POST" | "DELETE";
  /** With its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Dispatcher.DispatchOptions["body"];
  readonly signal: AbortSignal;
}

export class VaultProxy {
  readonly #url: string;
  readonly #key: CryptoKey | Uint8Array;
  readonly #kid: string;
  readonly #log: Logger;
  readonly #agent = new Agent({
    connections: CONNECTIONS_MAX,
    connect: { timeout: CONNECT_MS },
    headersTimeout: ANSWER_MS,
    bodyTimeout: ANSWER_MS,
  });

  private constructor(url: string, signing: { key: CryptoKey | Uint8Array; kid: string }, log: Logger) {
    this.#url = url;
    this.#key = signing.key;
    this.#kid = signing.kid;
    this.#log = log;
  }

  static async open({ url, keysDir, log }: { url: string; keysDir: string; log: Logger }): Promise<VaultProxy> {
    // Written and checked by keys.ts.
    const { kid, ...jwk } = SigningKey.parse(JSON.parse(await readFile(join(keysDir, "grant.private.jwk"), "utf8")));
    return new VaultProxy(url, { key: await importJWK(jwk, "EdDSA"), kid }, log);
  }

  /** Passes a request on; gives the answer as it begins. G1 G2 */
  async pass(asking: Asking, { method, path, headers, body, signal }: Passed): Promise<Dispatcher.ResponseData> {
    const authorization = await this.#token(
      { principal: asking.principal.name, workspace: asking.principal.workspace, use: ["vaults"] },
      "gateway",
      asking,
    );
    try {
      return await this.#agent.request({ origin: this.#url, method, path, headers: { ...headers, authorization }, body: body ?? null, signal });
    } catch (error) {
      throw refusalOf(error, method);
    }
  }

  /** Which of a session's vaults are not there, and which are archived. */
  async check(asking: Asking, ids: readonly string[]): Promise<z.infer<typeof Checked>> {
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ vault_ids: ids });
    const answer = await this.pass(asking, { method: "POST", path: "/vaults/check", headers, body, signal: AbortSignal.timeout(ANSWER_MS) });
    const text = await smallText(answer);
    if (answer.statusCode !== 200)
      throw new Refusal("vault_away", undefined, { detail: `a check of vaults was answered with ${answer.statusCode}: ${text.slice(0, 300)}` });
    return Checked.parse(JSON.parse(text));
  }

  /**
   * Refuses a session's grants from now on, and forgets its repositories. Best effort: grants end by themselves within ten minutes, and a sweep finds
   * the repositories.
   */
  async revoke(session: string, asking: Asking): Promise<void> {
    try {
      const authorization = await this.#token({ fence: 0, vaults: [], workspace: asking.principal.workspace, use: ["revoke"] }, session, asking);
      const answer = await this.#agent.request({
        origin: this.#url,
        method: "POST",
        path: "/revoke",
        headers: { authorization, "content-type": "application/json" },
        body: JSON.stringify({ session }),
        signal: AbortSignal.timeout(REVOKE_MS),
      });
      await answer.body.dump();
      if (answer.statusCode !== 200) this.#log.warn({ sessionId: session, status: answer.statusCode }, "grant.not_revoked");
    } catch (error) {
      this.#log.warn({ sessionId: session, code: codeOf(error) }, "grant.not_revoked");
    }
  }

  /**
   * A grant for a client's direct use of a registered hand: for its MCP route, with these vaults. It lives as long as a session's; the caller asks
   * for a new one after `lifeMs`. It goes with a request as `authorization`, beside `x-manyhands-target`.
   */
  async handGrant(asking: Asking, hand: string, vaults: readonly string[]): Promise<{ readonly text: string; readonly lifeMs: number }> {
    const claims = { fence: 0, vaults: [...vaults], workspace: asking.principal.workspace, use: ["mcp"] };
    const text = await this.#token(claims, `hand:${hand}`, asking, GRANT_LIFE_S);
    return { text: text.slice("Bearer ".length), lifeMs: GRANT_LIFE_S * GRANT_LIFE_USED * 1000 };
  }

  /** The proxy's part of the API's document. */
  async openApi(): Promise<OpenApiPart> {
    let answer: Dispatcher.ResponseData;
    try {
      answer = await this.#agent.request({ origin: this.#url, method: "GET", path: "/openapi.json", signal: AbortSignal.timeout(ANSWER_MS) });
    } catch (error) {
      throw refusalOf(error, "GET");
    }
    const text = await smallText(answer);
    if (answer.statusCode !== 200) throw new Refusal("vault_away", undefined, { detail: `the document was answered with ${answer.statusCode}` });
    return Part.parse(JSON.parse(text));
  }

  get url(): string {
    return this.#url;
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  async #token(claims: Record<string, unknown>, subject: string, { requestId }: Asking, lifeS = TOKEN_LIFE_S): Promise<string> {
    const token = await new SignJWT(claims)
      .setProtectedHeader({ alg: "EdDSA", kid: this.#kid })
      .setIssuer("manyhands")
      .setAudience("vault-proxy")
      .setSubject(subject)
      .setJti(requestId)
      .setIssuedAt()
      .setExpirationTime(`${lifeS}s`)
      .sign(this.#key);
    return `Bearer ${token}`;
  }
}

async function smallText(answer: Dispatcher.ResponseData): Promise<string> {
  let text = "";
  answer.body.setEncoding("utf8");
  for await (const piece of answer.body) {
    text += String(piece);
    if (text.length > SMALL_BYTES_MAX) throw new Refusal("vault_away", undefined, { detail: "the vault proxy's answer is too long" });
  }
  return text;
}

/** A write that may have got there is in doubt; what never got there can be sent again. */
function refusalOf(error: unknown, method: string): unknown {
  const code = codeOf(error);
  if (code === null) return error;
  const neverSent = method === "GET" || code === "ECONNREFUSED" || code === "UND_ERR_CONNECT_TIMEOUT";
  return new Refusal(neverSent ? "vault_away" : "vault_in_doubt", undefined, { detail: code });
}

function codeOf(error: unknown): string | null {
  if (!(error instanceof Error)) return null;
  if ("code" in error && typeof error.code === "string") return error.code;
  return error.name === "TimeoutError" || error.name === "AbortError" ? error.name : null;
}
