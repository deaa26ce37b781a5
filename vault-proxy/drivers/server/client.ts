// A Vault or OpenBao server, reached by node-vault over an HTTP client of ours.
//
//   S1  node-vault builds paths, headers and reads envelopes; its own HTTP client is not used. That one follows redirects with the token in a header, obeys
//       proxy variables, has no time-out and puts the token and the body into its errors. Ours does none of that.
//   S2  The token is got by a login (AppRole, or a file) and renewed by itself before it ends; when the server denies, there is one new login and one more try.
//   S3  What went wrong leaves here as a `StoreTrouble` with a status and no text of the server's: that may quote a path or a token.

import { readFile } from "node:fs/promises";
import vault, { type client as VaultClient } from "node-vault";
import type { Logger } from "pino";
import { Agent } from "undici";
import { z } from "zod";
import { StoreTrouble } from "../../store.ts";

const CONNECT_MS = 3_000;
const ANSWER_MS = 10_000;
const CONNECTIONS_MAX = 32;
const ANSWER_BYTES_MAX = 16 * 1024 * 1024;
const SECRET_CHARS_MAX = 8_192;
/** Of a token's life, after which it is renewed. */
const LIFE_USED = 0.66;
const RENEW_AGAIN_MS = 5_000;
const TIMER_MS_MAX = 2 ** 31 - 1;

export interface ServerLogin {
  readonly url: string;
  readonly namespace: string | null;
  readonly login:
    | { readonly type: "token"; readonly file: string }
    | { readonly type: "approle"; readonly roleIdFile: string; readonly secretIdFile: string; readonly mount: string };
}

const Auth = z.object({ auth: z.object({ client_token: z.string(), lease_duration: z.number(), renewable: z.boolean() }) });
const Own = z.object({ data: z.object({ ttl: z.number(), renewable: z.boolean().default(false) }) });
const ServerError = z.object({ response: z.object({ statusCode: z.number(), body: z.unknown() }) });

/** What the server said no to. `says` is matched against, and never passed on. */
export class ServerRefusal extends Error {
  override readonly name = "ServerRefusal";
  readonly status: number;
  readonly says: string;
  readonly body: unknown;

  constructor(status: number, says: string, body: unknown) {
    super(`The vault server answered ${status}.`);
    this.status = status;
    this.says = says;
    this.body = body;
  }
}

export class ServerClient {
  readonly #options: ServerLogin;
  readonly #log: Logger;
  readonly #agent = new Agent({ connections: CONNECTIONS_MAX, connect: { timeout: CONNECT_MS }, headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS });
  readonly #vault: VaultClient;
  #login: Promise<void> | null = null;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: ServerLogin, log: Logger) {
    this.#options = options;
    this.#log = log;
    this.#vault = vault({
      apiVersion: "v1",
      endpoint: options.url,
      namespace: options.namespace ?? "",
      noCustomHTTPVerbs: true,
      // Its own would print bodies and tokens to whoever sets DEBUG.
      debug: () => {},
      "request-promise": { defaults: () => (asked: Asked) => this.#send(asked) },
    });
    // What it reads from the environment by itself is not ours to obey.
    Object.assign(this.#vault, { token: "", namespace: options.namespace ?? "", pathPrefix: "" });
  }

  /** Runs `act` with a token that is good. S2 S3 */
  async run<T>(act: (client: VaultClient) => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new StoreTrouble("away", "the vault is closed");
    if (this.#vault.token === "") await this.#logIn();
    const used = this.#vault.token;
    try {
      return await this.#try(act);
    } catch (error) {
      if (!(error instanceof ServerRefusal) || error.status !== 403) throw error;
    }
    // Of many that were denied with one token, the first one logs in.
    if (this.#vault.token === used || this.#vault.token === "") await this.#logIn();
    try {
      return await this.#try(act);
    } catch (error) {
      if (error instanceof ServerRefusal && error.status === 403) throw new StoreTrouble("denied", "403 with a new login");
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#agent.destroy();
  }

  async #try<T>(act: (client: VaultClient) => Promise<T>): Promise<T> {
    try {
      return await act(this.#vault);
    } catch (error) {
      const refused = ServerError.safeParse(error);
      if (!refused.success) throw error;
      const { statusCode, body } = refused.data.response;
      if (statusCode === 503) throw new StoreTrouble("sealed", "503");
      if (statusCode === 429) throw new StoreTrouble("busy", "429");
      if (statusCode === 413 || statusCode === 507) throw new StoreTrouble("full", String(statusCode));
      if (statusCode >= 500) throw new StoreTrouble("away", String(statusCode));
      if (statusCode >= 300 && statusCode < 400) throw new StoreTrouble("away", `${statusCode}: a redirect, which is not followed`);
      throw new ServerRefusal(statusCode, error instanceof Error ? error.message : "", body);
    }
  }

  /** One login at a time, however many ask. */
  #logIn(): Promise<void> {
    this.#login ??= this.#authenticate().finally(() => {
      this.#login = null;
    });
    return this.#login;
  }

  async #authenticate(): Promise<void> {
    clearTimeout(this.#timer);
    const { login } = this.#options;
    try {
      if (login.type === "approle") {
        const [role_id, secret_id] = [await readSecret(login.roleIdFile), await readSecret(login.secretIdFile)];
        this.#vault.token = "";
        const answer = read(Auth, await this.#try((client) => client.write(`auth/${login.mount}/login`, { role_id, secret_id })));
        this.#vault.token = answer.auth.client_token;
        this.#renewAfter(answer.auth.lease_duration, answer.auth.renewable);
      } else {
        this.#vault.token = await readSecret(login.file);
        const { data } = read(Own, await this.#try((client) => client.tokenLookupSelf()));
        this.#renewAfter(data.ttl, data.renewable);
      }
      this.#log.info({ login: login.type }, "vault_server.entered");
    } catch (error) {
      this.#vault.token = "";
      if (error instanceof ServerRefusal) throw new StoreTrouble("denied", `the login was answered with ${error.status}`);
      throw error;
    }
  }

  /** A life of 0 has no end. */
  #renewAfter(lifeS: number, isRenewable: boolean, waitMs = lifeS * 1000 * LIFE_USED): void {
    clearTimeout(this.#timer);
    if (lifeS <= 0 || this.#isClosed) return;
    this.#timer = setTimeout(() => void this.#renew(isRenewable), Math.min(waitMs, TIMER_MS_MAX));
    this.#timer.unref();
  }

  async #renew(isRenewable: boolean): Promise<void> {
    try {
      if (!isRenewable) return await this.#logIn();
      const { auth } = read(Auth, await this.#try((client) => client.write("auth/token/renew-self", {})));
      this.#log.debug({ lifeS: auth.lease_duration }, "vault_server.renewed");
      this.#renewAfter(auth.lease_duration, auth.renewable);
    } catch (error) {
      const detail = error instanceof StoreTrouble ? error.reason : error instanceof ServerRefusal ? String(error.status) : "";
      if (detail === "") throw error;
      this.#log.warn({ detail }, "vault_server.not_renewed");
      // Refused: a token that has reached its end, so a new login. Away: asked again; the first request that is denied logs in, too.
      this.#renewAfter(1, !(error instanceof ServerRefusal) && isRenewable, RENEW_AGAIN_MS);
    }
  }

  /** S1 */
  async #send({ method, uri, headers, json }: Asked): Promise<Answered> {
    const { origin, pathname, search } = new URL(uri);
    const body = typeof json === "object" ? JSON.stringify(json) : null;
    try {
      const answer = await this.#agent.request({
        origin,
        method: method as "GET",
        path: `${pathname}${search}`,
        headers: { ...headers, accept: "application/json", ...(body !== null && { "content-type": "application/json" }) },
        body,
        signal: AbortSignal.timeout(ANSWER_MS),
      });
      let text = "";
      answer.body.setEncoding("utf8");
      for await (const piece of answer.body) {
        text += String(piece);
        if (text.length > ANSWER_BYTES_MAX) throw new StoreTrouble("away", "the vault server's answer is too long");
      }
      return { statusCode: answer.statusCode, body: parsed(text), request: { path: pathname } };
    } catch (error) {
      if (error instanceof StoreTrouble || !(error instanceof Error)) throw error;
      const code = "code" in error && typeof error.code === "string" ? error.code : error.name;
      const neverSent = method === "GET" || code === "ECONNREFUSED" || code === "ENOTFOUND" || code === "UND_ERR_CONNECT_TIMEOUT";
      throw new StoreTrouble(neverSent ? "away" : "in_doubt", code);
    }
  }
}

/** An answer of the server's, or a trouble: whatever it says, it ends no process of ours. */
export function read<T>(schema: z.ZodType<T>, answer: unknown): T {
  const found = schema.safeParse(answer);
  if (!found.success) throw new StoreTrouble("unreadable", "the vault server's answer is not of its kind");
  return found.data;
}

interface Asked {
  readonly method: string;
  readonly uri: string;
  readonly headers: Record<string, string>;
  readonly json?: unknown;
}

interface Answered {
  readonly statusCode: number;
  readonly body: unknown;
  readonly request: { readonly path: string };
}

/** Read anew at each login: whoever replaces a file need not start us again. */
async function readSecret(file: string): Promise<string> {
  let text: string;
  try {
    text = (await readFile(file, "utf8")).trim();
  } catch (error) {
    throw new StoreTrouble("denied", `${file} can't be read (${error instanceof Error && "code" in error ? String(error.code) : "unknown"})`);
  }
  if (text === "" || text.length > SECRET_CHARS_MAX || /\s/.test(text)) throw new StoreTrouble("denied", `${file} does not hold one word`);
  return text;
}

function parsed(text: string): unknown {
  if (text === "") return "";
  try {
    return JSON.parse(text);
  } catch {
    throw new StoreTrouble("away", "the vault server's answer is not JSON");
  }
}
