// An MCP server behind a real authorization server (oidc-provider) with its pages for people, and a browser that fills in what those pages ask.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import Provider from "oidc-provider";

const SCOPE = "tools:use";
const HOPS_MAX = 20;

export interface PersonServer {
  readonly mcpUrl: string;
  /** Of the authorization server, as an operator allows it. */
  readonly host: string;
  readonly issuer: string;
  isGood(accessToken: string): Promise<boolean>;
  close(): Promise<void>;
}

export async function startPersonServer(): Promise<PersonServer> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const issuer = `http://localhost:${(server.address() as AddressInfo).port}`;
  const mcpUrl = `${issuer}/mcp`;
  const provider = new Provider(issuer, {
    scopes: ["openid", "offline_access"],
    pkce: { required: () => true },
    rotateRefreshToken: true,
    cookies: { keys: ["of a test"] },
    clients: [
      {
        client_id: "registered-before",
        client_secret: "canary-client-secret",
        application_type: "native",
        token_endpoint_auth_method: "client_secret_basic",
        grant_types: ["authorization_code", "refresh_token"],
        redirect_uris: ["http://127.0.0.1/callback"],
      },
    ],
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({ scope: SCOPE, audience: mcpUrl, accessTokenFormat: "opaque" }),
      },
    },
    findAccount: (_context: unknown, id: string) => ({ accountId: id, claims: () => ({ sub: id }) }),
  });
  const answer = provider.callback();
  const json = (res: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) =>
    res.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
  server.on("request", (req: IncomingMessage, res: ServerResponse) => {
    if (req.url === "/.well-known/oauth-protected-resource/mcp")
      return json(res, 200, { resource: mcpUrl, authorization_servers: [issuer], scopes_supported: [SCOPE] });
    if (req.url === "/mcp") {
      req.resume();
      return json(res, 401, {}, { "www-authenticate": `Bearer resource_metadata="${issuer}/.well-known/oauth-protected-resource/mcp"` });
    }
    answer(req, res);
  });
  return {
    mcpUrl,
    host: new URL(issuer).host,
    issuer,
    isGood: async (token) => (await provider.AccessToken.find(token)) !== undefined,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/**
 * Opens an address as a person does: signs in, agrees (or not), and follows every redirect. Gives the last page, or the address that begins with
 * `stopAt`, which is not opened.
 */
export async function browse(address: string, { isWilling = true, stopAt = "" } = {}): Promise<{ readonly url: string; readonly text: string }> {
  const cookies = new Map<string, string>();
  let next: { url: string; form: URLSearchParams | null } = { url: address, form: null };
  for (let hop = 0; hop < HOPS_MAX; hop += 1) {
    const { url, form } = next;
    if (stopAt !== "" && url.startsWith(stopAt)) return { url, text: "" };
    const answer = await fetch(url, {
      method: form === null ? "GET" : "POST",
      redirect: "manual",
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join("; ") },
      ...(form === null ? {} : { body: form }),
    });
    for (const line of answer.headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      cookies.set(name, value);
    }
    const location = answer.headers.get("location");
    const text = await answer.text();
    if (location !== null) {
      next = { url: new URL(location, url).href, form: null };
      continue;
    }
    const action = /<form[^>]* action="([^"]+)"/.exec(text)?.[1];
    if (action === undefined) return { url, text };
    const prompt = /name="prompt" value="(\w+)"/.exec(text)?.[1] ?? "";
    next = isWilling
      ? { url: new URL(action, url).href, form: new URLSearchParams({ prompt, login: "somebody", password: "a-password" }) }
      : { url: new URL(`${action}/abort`, url).href, form: null };
  }
  throw new Error("the browser was sent around in circles");
}
