// What tests of refreshing need: an MCP server that takes what an authorization server gave out, and a credential that is about to end.

import { type AuthorizationServer, CLIENT_SECRET } from "../support/oauth/server.ts";
import { until } from "../support/until.ts";
import type { Caller } from "./mcp-kit.ts";
import { startUpstream } from "./proxy.ts";

/** An access token that no server takes. */
export const ENDED = "ended-access-token-canary-0123456789";

export interface Guarded {
  readonly url: string;
  /** Each request's token, and what was answered. */
  readonly seen: { readonly token: string; readonly status: number }[];
  /** Another answer than 200 or 401. */
  answer: ((token: string) => Promise<number> | number) | null;
  close(): Promise<void>;
}

export async function startGuarded(authorization: AuthorizationServer): Promise<Guarded> {
  const seen: { token: string; status: number }[] = [];
  const guarded: { answer: Guarded["answer"] } = { answer: null };
  const upstream = await startUpstream(async (req, res) => {
    req.resume();
    const token = String(req.headers.authorization).replace("Bearer ", "");
    const status = guarded.answer ? await guarded.answer(token) : (await authorization.isGood(token)) ? 200 : 401;
    seen.push({ token, status });
    res.writeHead(status, { "content-type": "application/json" }).end('{"jsonrpc":"2.0","id":1,"result":{}}');
  });
  return Object.assign(guarded, { url: `${upstream.url}/mcp`, seen, close: () => upstream.close() });
}

export interface Kept {
  readonly vault: string;
  readonly credential: string;
}

type How = "none" | "client_secret_basic" | "client_secret_post";
interface Wanted {
  readonly how?: How;
  /** How long the access token lives, for all that the record says; null: the record says nothing. */
  readonly lifeMs?: number | null;
  readonly accessToken?: string;
}

/** A credential whose access token no server takes. Resolves when its time is over, if it has one. */
export async function keep(caller: Caller, authorization: AuthorizationServer, url: string, wanted: Wanted = {}): Promise<Kept> {
  const { how = "none", lifeMs = 1_000, accessToken = ENDED } = wanted;
  const { clientId, refreshToken } = await authorization.issue(how);
  const vault = await caller.vault();
  const endsAt = lifeMs === null ? null : Date.now() + lifeMs;
  const credential = await caller.credential(vault, {
    type: "mcp_oauth",
    mcp_server_url: url,
    access_token: accessToken,
    ...(endsAt === null ? {} : { expires_at: new Date(endsAt).toISOString() }),
    refresh: {
      token_endpoint: authorization.tokenEndpoint,
      client_id: clientId,
      refresh_token: refreshToken,
      token_endpoint_auth: { type: how, ...(how === "none" ? {} : { client_secret: CLIENT_SECRET }) },
    },
  });
  if (endsAt !== null && endsAt - Date.now() < 10_000) await until(() => Date.now() > endsAt);
  return { vault, credential };
}
