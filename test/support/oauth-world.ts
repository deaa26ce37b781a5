// An MCP server that wants OAuth and the authorization server beside it, on one port of loopback: each answer as a test's script says.

import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { createServer as createTcpServer, type Socket } from "node:net";
import { Guard } from "../../vault-proxy/guard.ts";
import { Connector, type ConnectorOptions, type StartAsk, type Started, type Tokens } from "../../vault-proxy/oauth/connector.ts";
import { ConnectFailure } from "../../vault-proxy/oauth/failure.ts";
import { Reach } from "../../vault-proxy/reach.ts";
import { ownVault } from "./own-vault.ts";

export interface Asked {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly authorization: string | undefined;
  readonly body: string;
}

interface Reply {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Text goes out as it is, anything else as JSON. */
  readonly body?: unknown;
}

/** By method and path. What is not there is a 404. */
export type Routes = Readonly<Record<string, Reply | ((asked: Asked) => Reply)>>;

export const REDIRECT = "http://127.0.0.1:41999/callback";

/** What an authorization server says of itself. */
export const metadataOf = (origin: string, more: object = {}): object => ({
  issuer: origin,
  authorization_endpoint: `${origin}/authorize`,
  token_endpoint: `${origin}/token`,
  registration_endpoint: `${origin}/register`,
  response_types_supported: ["code"],
  code_challenge_methods_supported: ["S256"],
  ...more,
});

export const challenge = (words: string): Reply => ({ status: 401, headers: { "www-authenticate": `Bearer ${words}` } });
export const redirect = (to: string, status = 307): Reply => ({ status, headers: { location: to } });

/** A server and an authorization server as they should be. */
function plain(origin: string): Routes {
  let expected = "";
  return {
    "POST /mcp": challenge(`resource_metadata="${origin}/prm", scope="read"`),
    "GET /prm": { body: { resource: `${origin}/mcp`, authorization_servers: [origin] } },
    "GET /.well-known/oauth-authorization-server": { body: metadataOf(origin) },
    "POST /register": ({ body }) => ({ status: 201, body: { ...(JSON.parse(body) as object), client_id: "client-1" } }),
    "GET /authorize": ({ path }) => {
      const { searchParams } = new URL(path, origin);
      expected = searchParams.get("code_challenge") ?? "";
      return redirect(`${searchParams.get("redirect_uri")}?code=code-1&state=${searchParams.get("state")}`, 302);
    },
    "POST /token": ({ body }) => {
      const verifier = new URLSearchParams(body).get("code_verifier") ?? "";
      if (createHash("sha256").update(verifier).digest("base64url") !== expected) return { status: 400, body: { error: "invalid_grant" } };
      return { body: { access_token: "access-1", token_type: "Bearer", expires_in: 3_600, refresh_token: "refresh-1" } };
    },
  };
}

export class World {
  readonly asked: Asked[] = [];
  readonly origin: string;
  readonly #close: () => Promise<void>;

  private constructor(origin: string, close: () => Promise<void>) {
    this.origin = origin;
    this.#close = close;
  }

  /** `change` gives what differs from `plain`. */
  static async start(change: (origin: string) => Routes = () => ({})): Promise<World> {
    let routes: Routes = {};
    const server = createServer((request, response) => {
      let body = "";
      request.setEncoding("utf8").on("data", (piece: string) => (body += piece));
      request.on("end", () => {
        const { method = "", url = "", headers } = request;
        const asked = { method, path: url, authorization: headers.authorization, body };
        world.asked.push(asked);
        const found = routes[`${method} ${url.split("?")[0]}`] ?? { status: 404 };
        const reply = typeof found === "function" ? found(asked) : found;
        const text = typeof reply.body === "string" ? reply.body : JSON.stringify(reply.body ?? null);
        response.writeHead(reply.status ?? 200, { "content-type": "application/json", ...reply.headers }).end(text);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("no address");
    const origin = `http://localhost:${address.port}`;
    const world = new World(origin, async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    });
    routes = { ...plain(origin), ...change(origin) };
    return world;
  }

  /** `name:port`, as an operator allows it. */
  get host(): string {
    return new URL(this.origin).host;
  }

  /** The paths that were asked for, without their queries. */
  get paths(): readonly string[] {
    return this.asked.map(({ method, path }) => `${method} ${path.split("?")[0]}`);
  }

  of(route: string): readonly Asked[] {
    return this.asked.filter(({ method, path }) => `${method} ${path.split("?")[0]}` === route);
  }

  close(): Promise<void> {
    return this.#close();
  }
}

/** A listener that nobody should come to: it counts who does. */
export async function startCanary(): Promise<{ readonly port: number; readonly visits: () => number; close(): Promise<void> }> {
  let visits = 0;
  const sockets = new Set<Socket>();
  const server = createTcpServer((socket) => {
    visits += 1;
    sockets.add(socket);
    socket.on("error", () => {});
    socket.destroy();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no address");
  return {
    port: address.port,
    visits: () => visits,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
}

export interface Person {
  readonly connector: Connector;
  /** The whole way: start, the browser, finish. `change` alters what the redirect brought. */
  connect(server: string, more?: Partial<StartAsk>, change?: (back: URLSearchParams) => void): Promise<Tokens>;
  start(server: string, more?: Partial<StartAsk>): Promise<Started>;
  close(): Promise<void>;
}

/** Somebody who connects servers, with a browser that follows one redirect. */
export function person(allowed: readonly string[], options: Partial<ConnectorOptions> = {}): Person {
  const guard = new Guard(new Reach(allowed), { connectMs: 1_000, fetchMs: 5_000 });
  const store = ownVault();
  const connector = new Connector({ guard, store, document: null, ...options });
  const start = (server: string, more: Partial<StartAsk> = {}) =>
    connector.start({ server: new URL(server), redirectUri: REDIRECT, owner: "somebody", scope: null, client: null, ...more });
  return {
    connector,
    start,
    async connect(server, more, change) {
      const { authorizationUrl } = await start(server, more);
      const answer = await fetch(authorizationUrl, { redirect: "manual" });
      const back = new URL(answer.headers.get("location") ?? "").searchParams;
      change?.(back);
      const part = (name: string) => back.get(name);
      return connector.finish(
        { state: part("state") ?? "", owner: more?.owner ?? "somebody", code: part("code"), iss: part("iss"), error: part("error") },
        async () => {},
      );
    },
    async close() {
      await guard.close();
      await store.close();
    },
  };
}

/** The failure's code, or what came instead of one. */
export async function failureOf(work: Promise<unknown>): Promise<unknown> {
  try {
    return await work;
  } catch (error) {
    return error instanceof ConnectFailure ? error.code : error;
  }
}
