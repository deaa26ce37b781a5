// Who may come in at the door of one session's hands.
//
//   N1  An API key of the session's workspace, or a key of this door for this very session; a key of another session is 403, whether that exists or not.
//   N2  A turn's key is good while the lease that it is bound to is held, a client's until the session next begins to run. The host that holds the
//       lease judges that again (harnesses/asks.ts K3).
//   N3  An MCP session that was opened here belongs to this session's callers: no other door knows it, and this one knows no other's.

import type { IncomingMessage } from "node:http";
import type { HandsKeys } from "../../../harnesses/hands-key.ts";
import type { AskedBy } from "../../../session-store/events/log.ts";
import { parseSessionId, type SessionId } from "../../../session-store/ids.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import type { SessionRecord } from "../../../session-store/session.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import type { Authenticate } from "../../authenticate.ts";
import { ownSession } from "../../http/call.ts";
import { Challenge } from "../access.ts";
import type { Caller } from "../caller.ts";
import { SCOPES } from "../surface.ts";
import { looksLikeToken } from "../token.ts";

const PATH = /^\/mcp\/sessions\/([^/?]+)/;

export interface EnterOptions {
  readonly store: SessionStore;
  readonly authenticate: Authenticate;
  readonly keys: Pick<HandsKeys, "read">;
}

/** Gives who asks for which session's hands; refuses with a challenge, or `session_not_found`. N1–N3 */
export function makeEnter({ store, authenticate, keys }: EnterOptions): (request: IncomingMessage) => Promise<Caller> {
  const byKey = async (key: string, id: SessionId | null): Promise<{ caller: Caller; record: SessionRecord }> => {
    const claims = await keys.read(key);
    if (!claims) throw challenge(401, "The key is not valid here, or has expired.");
    if (claims.session !== id) throw challenge(403, "The key is for the hands of another session.");
    const record = await store.getSession(id);
    if (!(await isCurrent(store, record, claims.by))) throw challenge(403, "The key is of an earlier turn of this session. Ask for a new one.");
    const name = `hands:${id}:${claims.by.type === "turn" ? `turn ${claims.by.fence}` : "client"}`;
    return { caller: callerOf(record, name, claims.by), record };
  };
  return async (request) => {
    const { url = "/", headers } = request;
    const id = parseSessionId(decoded(PATH.exec(url)?.[1] ?? ""));
    const bearer = headers.authorization === undefined ? undefined : /^bearer +(\S+) *$/i.exec(headers.authorization)?.[1];
    if (bearer !== undefined && looksLikeToken(bearer)) return (await byKey(bearer, id)).caller;
    const principal = authenticated(authenticate, request);
    if (!id) throw new Refusal("session_not_found");
    const record = await ownSession({ store }, { principal }, id);
    return callerOf(record, `hands:${id}:${principal.name}`, { type: "workspace", isConfirmed: false });
  };
}

/** N2 */
async function isCurrent(store: SessionStore, record: SessionRecord, by: AskedBy): Promise<boolean> {
  if (by.type === "turn") return record.fence === by.fence && record.isHeld;
  if (by.type !== "client" || by.at >= record.head) return true;
  return (await store.getEvents(record.id, { after: by.at, types: ["session.status_running"], limit: 1 })).length === 0;
}

function callerOf({ id, workspace }: SessionRecord, name: string, by: AskedBy): Caller {
  return { workspace, name, scopes: new Set(SCOPES), hands: { session: id, by } };
}

function authenticated(authenticate: Authenticate, { headers }: IncomingMessage): ReturnType<Authenticate> {
  try {
    return authenticate(headers);
  } catch (error) {
    if (!(error instanceof Refusal && error.code === "unauthenticated")) throw error;
    throw challenge(401, error.message);
  }
}

const challenge = (status: 401 | 403, says: string): Challenge =>
  new Challenge(status, says, `Bearer realm="manyhands", error="${status === 401 ? "invalid_token" : "insufficient_scope"}"`);

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
