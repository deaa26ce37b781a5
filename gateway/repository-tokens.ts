// Tokens of repositories on their way through the gateway: sealed by the vault proxy before anything is parsed, kept by it for one session.
//
//   K1  Bytes that may hold a token are never parsed here: they go to the vault proxy, and what comes back holds references. Bytes that hold neither the
//       field's name nor an escape by which it could be spelled otherwise hold none.
//   K2  The original bytes are overwritten once the vault proxy has answered, or could not.
//   K3  What the vault proxy keeps for a session goes with it. A sweep finds what belongs to no session: a create that failed, an end that it missed.

import type { Dispatcher } from "undici";
import { z } from "zod";
import type { SessionId } from "../session-store/ids.ts";
import { parseSessionId } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import { statusOf } from "../session-store/session.ts";
import type { SessionStore } from "../session-store/store.ts";
import { invalid } from "./answer.ts";
import type { Asking, VaultProxy } from "./vault-proxy.ts";

const ANSWER_MS = 30_000;
const ANSWER_BYTES_MAX = 36 * 1024 * 1024;
const SWEPT_AT_ONCE = 500;
const FIELD = Buffer.from("authorization_token");
/** How an escape of an ASCII character begins; a letter or a low line is of the rows 5 to 7. */
const ESCAPE = Buffer.from("\\u00");
const ROWS = [..."567"].map((digit) => digit.charCodeAt(0));

const Envelope = z.object({ error: z.object({ message: z.string() }) });
const Listed = z.object({ sessions: z.array(z.string()) });
const Swept = z.object({ swept: z.number() });

export interface RepositoryToken {
  readonly url: string;
  /** A reference; null: none; undefined: as it is kept already. */
  readonly token: string | null | undefined;
}

/** The body with references instead of tokens. K1 K2 */
export async function sealBody(proxy: VaultProxy | null, asking: Asking, bytes: Buffer): Promise<Buffer> {
  if (proxy === null || !mayHoldToken(bytes)) return bytes;
  try {
    return await ask(proxy, asking, { method: "POST", path: "/seal", body: bytes });
  } finally {
    bytes.fill(0);
  }
}

/** Looked for in the bytes: a text of them would lie in this process's heap. */
function mayHoldToken(bytes: Buffer): boolean {
  if (bytes.includes(FIELD)) return true;
  for (let at = bytes.indexOf(ESCAPE); at >= 0; at = bytes.indexOf(ESCAPE, at + 1)) if (ROWS.includes(bytes[at + ESCAPE.length] ?? 0)) return true;
  return false;
}

/** From here on the session reaches these repositories, by these tokens. */
export async function keepRepositories(
  proxy: VaultProxy | null,
  asking: Asking,
  session: SessionId,
  repositories: readonly RepositoryToken[],
): Promise<void> {
  if (proxy === null) throw new Refusal("vault_away", "This installation has no vault proxy, and so no repositories.");
  await ask(proxy, asking, { method: "POST", path: "/repositories", body: Buffer.from(JSON.stringify({ session, repositories })) });
}

/** Has the vault proxy forget what it keeps for sessions that are not there any more, or have ended. Gives how many. K3 */
export async function sweepRepositories(proxy: VaultProxy, store: Pick<SessionStore, "getSession">, asking: Asking): Promise<number> {
  const { sessions } = Listed.parse(JSON.parse(String(await ask(proxy, asking, { method: "GET", path: "/repositories", body: null }))));
  const gone: string[] = [];
  for (const session of sessions) if (await isOver(store, session)) gone.push(session);
  let count = 0;
  for (let from = 0; from < gone.length; from += SWEPT_AT_ONCE) {
    const body = Buffer.from(JSON.stringify({ sessions: gone.slice(from, from + SWEPT_AT_ONCE) }));
    count += Swept.parse(JSON.parse(String(await ask(proxy, asking, { method: "POST", path: "/repositories/sweep", body })))).swept;
  }
  return count;
}

async function isOver(store: Pick<SessionStore, "getSession">, session: string): Promise<boolean> {
  const id = parseSessionId(session);
  if (id === null) return false;
  try {
    return statusOf(await store.getSession(id)) === "terminated";
  } catch (error) {
    if (error instanceof Refusal && error.code === "session_not_found") return true;
    throw error;
  }
}

/** None of these changes twice what it changed once: whatever happened, the same can be asked again. */
async function ask(
  proxy: VaultProxy,
  asking: Asking,
  { method, path, body }: { readonly method: "GET" | "POST"; readonly path: string; readonly body: Buffer | null },
): Promise<Buffer> {
  const headers = body === null ? {} : { "content-type": "application/json", "content-length": String(body.length) };
  let answer: Dispatcher.ResponseData;
  let bytes: Buffer;
  try {
    answer = await proxy.pass(asking, { method, path, headers, body, signal: AbortSignal.timeout(ANSWER_MS) });
    bytes = await whole(answer);
  } catch (error) {
    if (error instanceof Refusal && error.code === "vault_in_doubt") throw new Refusal("vault_away", undefined, { detail: error.detail });
    throw error;
  }
  if (answer.statusCode === 200) return bytes;
  const said = answer.statusCode === 400 ? Envelope.safeParse(JSON.parse(String(bytes))) : null;
  if (said?.success) throw invalid(said.data.error.message);
  throw new Refusal("vault_away", undefined, { detail: `${method} ${path} was answered with ${answer.statusCode}` });
}

async function whole(answer: Dispatcher.ResponseData): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const piece of answer.body) {
      bytes += piece.length;
      if (bytes > ANSWER_BYTES_MAX) break;
      pieces.push(piece);
    }
  } catch (error) {
    throw new Refusal("vault_away", undefined, { detail: "the vault proxy's answer broke off", cause: error });
  }
  if (bytes > ANSWER_BYTES_MAX) throw new Refusal("vault_away", undefined, { detail: "the vault proxy's answer is too long" });
  return Buffer.concat(pieces);
}
