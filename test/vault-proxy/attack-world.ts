// What an attack on a vault proxy's injecting routes needs: the routes with a request that is good, the listeners that must not hear of a bad one, and raw
// bytes where a client would tidy up what it sends.

import { createHash } from "node:crypto";
import { once } from "node:events";
import { connect } from "node:net";
import { Repositories } from "../../vault-proxy/git/repositories.ts";
import { type Host, startHost, startTcp } from "./egress-kit.ts";
import { Caller } from "./mcp-kit.ts";
import { KEY, Signer, startProxy, type TestProxy } from "./proxy.ts";

const ANSWER_MS = 8_000;
export const TOKEN = "canary-bearer-0123456789abcdef";
const NETWORK = JSON.stringify({ type: "unrestricted" });
const HASH = createHash("sha256").update(NETWORK).digest("base64url");

/** What an attack changes of a good request. */
export interface Change {
  readonly method?: string;
  /** The request's target, as it stands in its first line. */
  readonly path?: string;
  readonly version?: string;
  readonly host?: string;
  /** Null: there is none. */
  readonly authorization?: string | null;
  /** Where the vault proxy is to go. */
  readonly address?: string;
  /** Whole lines, without their ends. */
  readonly headers?: readonly string[];
  readonly body?: string;
  /** Anything else. */
  readonly edit?: (text: string) => string;
}

export interface World {
  readonly signer: Signer;
  readonly proxy: TestProxy;
  readonly caller: Caller;
  /** Allowed by the operator: where a good request goes. */
  readonly upstream: Host;
  /** Requests that came to it: method, target and headers. */
  readonly heard: { readonly method: string; readonly url: string; readonly headers: readonly string[] }[];
  /** At an address that is not allowed. */
  readonly canary: Host;
  readonly vault: string;
  readonly oauth: string;
  close(): Promise<void>;
}

export async function startWorld(): Promise<World> {
  const signer = new Signer();
  await signer.rotate("k1");
  const heard: { method: string; url: string; headers: string[] }[] = [];
  const upstream = await startHost((req, res) => {
    heard.push({ method: req.method ?? "", url: req.url ?? "", headers: req.rawHeaders });
    req.resume();
    if (req.url?.startsWith("/moved")) return void res.writeHead(307, { location: `http://127.0.0.1:${canary.port}/` }).end();
    res.writeHead(req.url === "/renews" ? 401 : 200, { "content-type": "application/json" }).end("{}");
  });
  const canary = await startTcp((socket) => void socket.destroy());
  const allowed = [`127.0.0.1:${upstream.port}`];
  const proxy = await startProxy(signer, `http://127.0.0.1:${upstream.port}`, {
    internalHosts: allowed,
    egress: { hosts: allowed },
    gitOrigins: [`http://${allowed[0]}`],
  });
  const caller = new Caller(proxy.url, signer);
  const vault = await caller.vault();
  for (const path of ["mcp", "moved"])
    await caller.credential(vault, { type: "static_bearer", mcp_server_url: `http://127.0.0.1:${upstream.port}/${path}`, token: TOKEN });
  await new Repositories(proxy.parts.vaults).put("default", "sesn_1", [{ url: `http://127.0.0.1:${upstream.port}/acme/private`, token: TOKEN }]);
  const oauth = await caller.credential(vault, {
    type: "mcp_oauth",
    mcp_server_url: `http://127.0.0.1:${upstream.port}/oauth`,
    access_token: `${TOKEN}-oauth`,
  });
  return {
    ...{ signer, proxy, caller, upstream, heard, canary, vault, oauth },
    async close() {
      await proxy.close();
      await upstream.close();
      await canary.close();
      signer.remove();
    },
  };
}

/** A door of the vault proxy behind which a credential, or the way out, is. */
export interface Route {
  readonly name: string;
  /** The claims that open it. */
  claims(world: World): Record<string, unknown>;
  text(world: World, change: Change, authorization: string): string;
}

const session = (use: string) => (world: World) => ({ sub: "sesn_1", vaults: [world.vault], workspace: "default", use: [use], network: HASH });
const gateway = () => ({
  ...{ sub: "gateway", workspace: "default", principal: "test", jti: "req_1", use: ["vaults"] },
  exp: Math.floor(Date.now() / 1000) + 50,
});

function request(given: { method: string; path: string; headers?: readonly string[]; body?: string }, change: Change, authorization: string): string {
  const { method = given.method, path = given.path, version = "1.1", host = "vault-proxy", headers = [], edit = (text) => text } = change;
  const shown = change.authorization === undefined ? authorization : change.authorization;
  const body = change.body ?? given.body ?? "";
  const lines = [
    `${method} ${path} HTTP/${version}`,
    `Host: ${host}`,
    ...(shown === null ? [] : [`Authorization: ${shown}`]),
    ...(given.headers ?? []),
    ...headers,
    ...(given.body === undefined ? [] : [`Content-Length: ${Buffer.byteLength(body)}`, "Content-Type: application/json"]),
    "Connection: close",
  ];
  return edit(`${lines.join("\r\n")}\r\n\r\n${body}`);
}

/** A line, opened by an honest hand host; what a program in the hand says on it. */
function onLine(inside: string, authorization: string): string {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(Buffer.byteLength(NETWORK));
  return `CONNECT egress:1 HTTP/1.1\r\nHost: x\r\nAuthorization: ${authorization}\r\n\r\n${length.toString("latin1")}${NETWORK}${inside}`;
}

const at = (world: World): string => `127.0.0.1:${world.upstream.port}`;

export const ROUTES = {
  mcp: {
    name: "mcp",
    claims: session("mcp"),
    text: (world, change, authorization) => {
      const target = `X-Manyhands-Target: ${change.address ?? `http://${at(world)}/mcp`}`;
      return request({ method: "POST", path: "/mcp", headers: [target], body: "{}" }, change, authorization);
    },
  },
  model: {
    name: "model",
    claims: session("model"),
    text: (_world, change, authorization) => request({ method: "POST", path: "/model/v1/messages", body: "{}" }, change, authorization),
  },
  line: {
    name: "a line of the egress",
    claims: session("egress"),
    text: (world, change, authorization) => {
      const opens = request({ method: "CONNECT", path: "egress:1" }, change, authorization);
      const rest = onLine(`GET http://${at(world)}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`, "").split("\r\n\r\n");
      return `${opens}${rest.slice(1).join("\r\n\r\n")}`;
    },
  },
  plain: {
    name: "a request of the egress",
    claims: session("egress"),
    text: (world, change, authorization) => {
      const path = `http://${change.address ?? at(world)}/plain`;
      return onLine(request({ method: "GET", path }, { authorization: null, ...change }, ""), authorization);
    },
  },
  connect: {
    name: "a CONNECT of the egress",
    claims: session("egress"),
    text: (world, change, authorization) => {
      const opens = request({ method: "CONNECT", path: change.address ?? at(world) }, { authorization: null, ...change }, "");
      return onLine(`${opens}GET /tunnel HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`, authorization);
    },
  },
  git: {
    name: "git",
    claims: session("git"),
    text: (world, change, authorization) => {
      const path = `/git/${change.address ?? at(world)}/acme/private/info/refs?service=git-upload-pack`;
      return onLine(request({ method: "GET", path }, { authorization: null, ...change }, ""), authorization);
    },
  },
  api: {
    name: "the vaults' API",
    claims: gateway,
    text: (world, change, authorization) => {
      const path = `/v1/vaults/${world.vault}/credentials/${world.oauth}/mcp_oauth_validate`;
      return request({ method: "POST", path, body: "{}" }, change, authorization);
    },
  },
  connecting: {
    name: "the connect flow",
    claims: gateway,
    text: (world, change, authorization) => {
      const body = JSON.stringify({
        mcp_server_url: change.address ?? `http://${at(world)}/somewhere`,
        redirect_uri: "http://127.0.0.1:41999/callback",
      });
      return request({ method: "POST", path: `/v1/vaults/${world.vault}/connect`, body }, change, authorization);
    },
  },
} as const satisfies Readonly<Record<string, Route>>;

/** What gateways ask without anybody being gone to. */
export const gatewayDoor = (path: string, body: object): Route => ({
  name: path,
  claims: gateway,
  text: (_world, change, authorization) => request({ method: "POST", path, body: JSON.stringify(body) }, change, authorization),
});

/** Sends what a change makes of a good request; gives the answer, from its own first line on. */
export async function attack(world: World, route: Route, change: Change): Promise<string> {
  const authorization = `Bearer ${await world.signer.sign(route.claims(world))}`;
  const text = route.text(world, change, authorization);
  const answer = await sendRaw(world.proxy.url, text);
  // On a line the first answer is the line's own.
  return answer.startsWith("HTTP/1.1 200 Connected") ? answer.slice(answer.indexOf("\r\n\r\n") + 4) : answer;
}

/** Bytes as they are; everything that comes back, up to the connection's end. */
export async function sendRaw(url: string, text: string): Promise<string> {
  const { hostname, port } = new URL(url);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  let answer = "";
  socket.on("data", (piece: Buffer) => (answer += piece.toString("latin1")));
  socket.on("error", () => {});
  socket.write(Buffer.from(text, "latin1"));
  const late = setTimeout(() => socket.destroy(), ANSWER_MS);
  await Promise.race([once(socket, "end"), once(socket, "close")]);
  clearTimeout(late);
  socket.destroy();
  return answer;
}

/** Status and which "no" of ours it is: "401 no_grant". */
export function told(answer: string): string {
  const status = /^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1] ?? "nothing";
  const code = /^x-manyhands-(?:refusal|egress): (\w+)/im.exec(answer)?.[1];
  return code === undefined ? status : `${status} ${code}`;
}

export { KEY };
