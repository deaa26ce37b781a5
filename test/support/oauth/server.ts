// A real authorization server (oidc-provider) on loopback, with refresh tokens that work once: one that is shown a second time revokes all that came of
// its grant. A door in front of it counts requests for tokens, and can hold, break or replace their answers.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import Provider from "oidc-provider";

export const CLIENT_SECRET = "canary-client-secret/0123456789+ab%cd";
const LIFE_S = 3_600;
const SCOPE = "offline_access";

export interface TokenAnswer {
  status: number;
  contentType: string;
  body: string;
}

/** What becomes of a request for tokens. `ask` has the real server answer it. */
export type Behaviour = (
  ask: () => Promise<TokenAnswer>,
  request: { readonly form: URLSearchParams; readonly headers: IncomingMessage["headers"] },
) => Promise<TokenAnswer>;

type ClientAuth = "none" | "client_secret_basic" | "client_secret_post";

export interface AuthorizationServer {
  readonly tokenEndpoint: string;
  /** How often tokens were asked for. */
  count(): number;
  behave(behaviour: Behaviour | null): void;
  /** A refresh token of a fresh grant, for the client that authenticates this way. */
  issue(how?: ClientAuth): Promise<{ readonly clientId: string; readonly refreshToken: string }>;
  /** Is this an access token that is good now? */
  isGood(accessToken: string): Promise<boolean>;
  close(): Promise<void>;
}

export async function startAuthorizationServer(): Promise<AuthorizationServer> {
  const inner = createServer();
  const innerUrl = await listening(inner);
  const clients = (["none", "client_secret_basic", "client_secret_post"] as const).map((how) => ({
    client_id: `client-${how}`,
    ...(how === "none" ? {} : { client_secret: CLIENT_SECRET }),
    token_endpoint_auth_method: how,
    redirect_uris: ["http://127.0.0.1/callback"],
    application_type: "native" as const,
    grant_types: ["authorization_code", "refresh_token"],
  }));
  const provider = new Provider(innerUrl, {
    clients,
    rotateRefreshToken: true,
    ttl: { AccessToken: LIFE_S, RefreshToken: LIFE_S * 24, Grant: LIFE_S * 24 },
    features: { devInteractions: { enabled: false } },
    findAccount: (_context: unknown, id: string) => ({ accountId: id, claims: () => ({ sub: id }) }),
  });
  inner.on("request", provider.callback());

  let count = 0;
  let behaviour: Behaviour | null = null;
  const front = createServer((req, res) => void answer(req, res));
  const answer = async (req: IncomingMessage, res: ServerResponse) => {
    let text = "";
    for await (const piece of req) text += String(piece);
    count += 1;
    const { authorization, "content-type": type } = req.headers;
    const ask = async (): Promise<TokenAnswer> => {
      const headers = { "content-type": type ?? "", ...(authorization === undefined ? {} : { authorization }) };
      const given = await fetch(`${innerUrl}/token`, { method: "POST", headers, body: text });
      return { status: given.status, contentType: given.headers.get("content-type") ?? "", body: await given.text() };
    };
    const given = await (behaviour ?? ((real) => real()))(ask, { form: new URLSearchParams(text), headers: req.headers });
    res.writeHead(given.status, { "content-type": given.contentType }).end(given.body);
  };
  const url = await listening(front);

  return {
    tokenEndpoint: `${url}/token`,
    count: () => count,
    behave: (next) => {
      behaviour = next;
    },
    async issue(how = "none") {
      const client = await provider.Client.find(`client-${how}`);
      if (client === undefined) throw new Error("no client");
      const grant = new provider.Grant({ accountId: "person", clientId: client.clientId });
      grant.addOIDCScope(SCOPE);
      const grantId = await grant.save();
      const made = new provider.RefreshToken({ accountId: "person", client, grantId, scope: SCOPE, gty: "authorization_code" });
      return { clientId: client.clientId, refreshToken: await made.save() };
    },
    isGood: async (token) => (await provider.AccessToken.find(token)) !== undefined,
    async close() {
      for (const server of [front, inner]) {
        server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
      }
    },
  };
}

async function listening(server: ReturnType<typeof createServer>): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
