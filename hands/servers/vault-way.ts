// The way to a server that leads through the vault proxy, where a session's vaults may hold a credential for it.
//
//   V1  The credential is put in there; here is a grant for each hand, in memory only, the newest that a worker brought. A stream that was opened
//       under an older one stays open.
//   V2  A server for which the vaults have nothing is spoken to directly, as for a session without vaults.
//   V3  What the vault proxy refuses is told apart from what the server answers, and says whether the server may have had the request.

import { Agent, fetch, type Response } from "undici";
import { z } from "zod";
import { counted, type Fetch } from "./reach.ts";

/** In requests to the vault proxy: where they go, and whose credential they want. */
const TARGET = "x-manyhands-target";
const SERVER = "x-manyhands-server";
/** On its own refusals. */
const REFUSAL = "x-manyhands-refusal";
const NO_CREDENTIAL = "no_credential";

const CONNECTIONS_MAX = 4_096;
const CONNECT_MS = 3_000;
const HANDS_MAX = 10_000;

/** Refusals after which the server may have had the request. */
const MAY_HAVE_RUN = new Set(["server_broke", "server_encodes"]);
/** Refusals that a person must put right. */
const AUTHENTICATION = new Set(["sign_in_needed"]);

const Refusal = z.object({ error: z.object({ message: z.string().max(500) }) });

/** The vault proxy's "no", or that it can't be reached. V3 */
export class VaultRefused extends Error {
  override readonly name = "VaultRefused";
  readonly kind: "connection" | "authentication";
  readonly mayHaveRun: boolean;

  constructor(code: string, says: string, options?: ErrorOptions) {
    super(says, options);
    this.kind = AUTHENTICATION.has(code) ? "authentication" : "connection";
    this.mayHaveRun = MAY_HAVE_RUN.has(code);
  }
}

/** The grants of hands whose sessions, or whose registrations, have vaults. V1 */
export class HandGrants {
  readonly #grants = new Map<string, { readonly text: string; readonly fence: number }>();

  /** Keeps the newest; an older worker's is not taken. */
  take({ hand, fence }: { readonly hand: string; readonly fence: number }, text: string): void {
    if ((this.#grants.get(hand)?.fence ?? 0) > fence) return;
    this.#grants.delete(hand);
    this.#grants.set(hand, { text, fence });
    const oldest = this.#grants.keys().next();
    if (this.#grants.size > HANDS_MAX && !oldest.done) this.#grants.delete(oldest.value);
  }

  of(hand: string): string | null {
    return this.#grants.get(hand)?.text ?? null;
  }

  forget(hand: string): void {
    this.#grants.delete(hand);
  }
}

export class VaultWay {
  readonly #url: string;
  readonly #agent = new Agent({ connections: CONNECTIONS_MAX, headersTimeout: 0, bodyTimeout: 0, connect: { timeout: CONNECT_MS } });

  /** `url`: the vault proxy's. */
  constructor(url: string) {
    this.#url = url.replace(/\/+$/, "");
  }

  /** A fetch for one server: through the vault proxy while there is a grant, otherwise, and for what the vaults don't have, `direct`. V2 */
  fetchFor(server: URL, grant: () => string | null, direct: Fetch): Fetch {
    return async (url, init = {}) => {
      const text = grant();
      if (text === null) return await direct(url, init);
      const answer = await this.#ask(vaultRequest(this.#url, { grant: text, target: new URL(url), server }), init);
      const code = answer.headers.get(REFUSAL);
      // The two Response types are one at run time; the globals' declaration comes from an older release of the same package.
      if (code === null) return counted(answer, init.method === "GET") as unknown as globalThis.Response;
      const says = await saysOf(answer);
      if (code === NO_CREDENTIAL) return await direct(url, init);
      throw new VaultRefused(code, says);
    };
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  async #ask({ url, headers }: VaultRequest, { headers: given, body, method, signal }: RequestInit): Promise<Response> {
    const sent = new Headers(given);
    for (const [name, value] of Object.entries(headers)) sent.set(name, value);
    try {
      return await fetch(url, {
        method: method ?? "GET",
        headers: [...sent],
        ...(typeof body === "string" ? { body } : {}),
        signal: signal ?? null,
        redirect: "manual",
        dispatcher: this.#agent,
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw away(error);
    }
  }
}

export interface VaultRequest {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
}

/** How the vault proxy is asked to pass a request on: at which address, and with which headers beside the request's own. */
export function vaultRequest(
  vaultUrl: string,
  { grant, target, server = target }: { readonly grant: string; readonly target: URL; readonly server?: URL },
): VaultRequest {
  const headers = { authorization: `Bearer ${grant}`, [TARGET]: target.href, [SERVER]: server.href };
  return { url: new URL(`${vaultUrl}/mcp`), headers };
}

async function saysOf(answer: Response): Promise<string> {
  const read = Refusal.safeParse(await answer.json().catch(() => null));
  return read.success ? read.data.error.message : "the vault proxy refused it";
}

/** V3 */
function away(error: unknown): VaultRefused {
  const codes: string[] = [];
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth += 1)
    if ("code" in at && typeof at.code === "string") codes.push(at.code);
  const isUnsent = codes.some((code) => ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"].includes(code));
  return new VaultRefused(isUnsent ? "away" : "server_broke", `the vault proxy can't be reached (${codes.at(-1) ?? "no connection"})`, {
    cause: error,
  });
}
