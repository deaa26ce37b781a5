// The attack table of the vault proxy, second part: what is tried inside of a request that is let in, by a server that answers one, and by who comes back from
// an authorization. Such a request may reach its own listener; what it must not do is reach another one, or reach its own in another shape.

import { once } from "node:events";
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { until } from "../support/until.ts";
import { attack, type Change, ROUTES, type Route, sendRaw, startWorld, told, type World } from "./attack-world.ts";
import { outsideAuthority, putVault, startHost, Way } from "./egress-kit.ts";
import { startProxy } from "./proxy.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(async () => {
  expect(world.canary.seen).toEqual([]);
  await world.close();
});

const own = () => `127.0.0.1:${world.upstream.port}`;
const canary = () => `127.0.0.1:${world.canary.port}`;
const valuesOf = (headers: readonly string[], name: string) => headers.filter((_, at) => at % 2 === 1 && headers[at - 1]?.toLowerCase() === name);

const GIT = "/acme/private/info/refs?service=git-upload-pack";
type Row = readonly [route: Route, name: string, change: () => Change, url: string];
const OWN: readonly Row[] = [
  [ROUTES.mcp, "another Host", () => ({ host: canary() }), "/mcp"],
  [
    ROUTES.mcp,
    "headers that some servers take for the address",
    () => ({
      headers: [
        ...["X-Forwarded-Host", "X-Host", "X-Original-URL", "X-Rewrite-URL"].map((name) => `${name}: http://${canary()}/`),
        `Forwarded: host=${canary()}`,
        "X-HTTP-Method-Override: DELETE",
      ],
    }),
    "/mcp",
  ],
  [ROUTES.mcp, "the caller's own credentials", () => ({ headers: ["X-Api-Key: callers", "Cookie: a=b", "Proxy-Authorization: Basic eDp5"] }), "/mcp"],
  [ROUTES.mcp, "a second address", () => ({ edit: (text) => text.replace(/\r\n\r\n/, `\r\nX-Host: ${canary()}\r\n\r\n`) }), "/mcp"],
  ...[
    ["a line's end in the address", "/mcp%0d%0aX-Injected:%201", "/mcp%0d%0aX-Injected:%201"],
    ["a tab in the address", "/m\tcp/x", "/mcp/x"],
    ["an address that begins like another host", `//canary.test/x`, "//canary.test/x"],
    ["steps up in the address", "/mcp/../../x", "/x"],
    ["a space and a version in the address", "/mcp HTTP/1.1", "/mcp%20HTTP/1.1"],
  ].map(
    ([name = "", path = "", url = ""]): Row => [
      ROUTES.mcp,
      name,
      () => ({ address: `http://${own()}${path}`, headers: [`X-Manyhands-Server: http://${own()}/mcp`] }),
      url,
    ],
  ),
  [ROUTES.model, "another Host", () => ({ host: canary() }), "/v1/messages"],
  [
    ROUTES.model,
    "headers that some servers take for the address, and the caller's own key",
    () => ({ headers: [`X-Forwarded-Host: ${canary()}`, "X-Api-Key: callers", "Cookie: a=b"] }),
    "/v1/messages",
  ],
  [ROUTES.plain, "another Host", () => ({ host: canary() }), "/plain"],
  [ROUTES.plain, "two Hosts", () => ({ headers: [`Host: ${canary()}`] }), "/plain"],
  [
    ROUTES.plain,
    "a host in capitals, and a query with an address",
    () => ({ path: `HTTP://${own()}/plain?http://${canary()}/` }),
    `/plain?http://CANARY/`,
  ],
  [ROUTES.git, "another Host, and the caller's own credentials", () => ({ host: canary(), headers: ["X-Api-Key: callers", "Cookie: a=b"] }), GIT],
  [ROUTES.connect, "another Host", () => ({ host: canary() }), "/tunnel"],
];

describe("what is forged in a request that is let in goes nowhere else, and not on:", () => {
  test.each(OWN.map(([route, name, change, url]) => [route.name, name, route, change, url] as const))(
    "%s, %s",
    async (_route, _name, route, change, url) => {
      const before = world.heard.length;
      const answer = await attack(world, route, change());
      // What it answers to git is no git.
      expect(told(answer)).toBe(route === ROUTES.git ? "502" : "200");
      const [heard, ...more] = world.heard.slice(before);
      expect(more).toEqual([]);
      expect(heard?.url).toBe(url.replace("CANARY", canary()));
      if (route !== ROUTES.connect) expect(valuesOf(heard?.headers ?? [], "host")).toEqual([own()]);
      const text = JSON.stringify(heard?.headers);
      expect(text).not.toContain(canary());
      expect(text).not.toMatch(/injected|callers|cookie|forwarded|override/i);
    },
  );
});

describe("a redirect is not followed:", () => {
  const moved = async (route: Route, change: Change, how: RegExp) => {
    const before = world.heard.length;
    expect(told(await attack(world, route, change))).toMatch(how);
    expect(world.heard.length).toBe(before + 1);
    expect(world.canary.seen).toEqual([]);
  };
  test("of an MCP server", () => moved(ROUTES.mcp, { address: `http://${own()}/moved` }, /^502 server_redirects$/));
  test("on the way out of a hand, where it is the hand's", () => moved(ROUTES.plain, { path: `http://${own()}/moved` }, /^307$/));
  test("of a model", async () => {
    const other = await startProxy(world.signer, `http://${own()}/moved`);
    const before = world.heard.length;
    const authorization = `Bearer ${await world.signer.sign({ use: ["model"] })}`;
    expect(told(await sendRaw(other.url, ROUTES.model.text(world, {}, authorization)))).toBe("502 model_redirects");
    expect(world.heard.slice(before).map(({ url }) => url)).toEqual(["/moved/v1/messages"]);
    await other.close();
  });
  test("of a credential's server that is validated", async () => {
    const vault = await world.caller.vault();
    const auth = { type: "mcp_oauth", mcp_server_url: `http://${own()}/moved`, access_token: "a-token-0123456789" };
    const credential = await world.caller.credential(vault, auth);
    const before = world.heard.length;
    const { status } = await world.caller.api<{ status: string }>("POST", `/v1/vaults/${vault}/credentials/${credential}/mcp_oauth_validate`);
    expect([status === "valid", world.heard.length - before]).toEqual([false, 1]);
  });
  test("of a server that is connected", async () => {
    const before = world.heard.length;
    expect(told(await attack(world, ROUTES.connecting, { address: `http://${own()}/moved` }))).toBe("400");
    expect(world.heard.slice(before).filter(({ url }) => !url.startsWith("/moved") && !url.startsWith("/.well-known"))).toEqual([]);
  });
});

describe("TLS that ends at the vault proxy carries requests to the host that was connected to alone:", () => {
  const outside = outsideAuthority("api.test");
  const heard: string[] = [];
  let api: Awaited<ReturnType<typeof startHost>>;
  let proxy: Awaited<ReturnType<typeof startProxy>>;
  let vault = "";
  beforeAll(async () => {
    api = await startHost((req, res) => {
      heard.push(`${req.method} ${req.url} ${req.headers.authorization}`);
      res.end("{}");
    }, outside.of["api.test"]);
    const hosts = [`api.test:${api.port}`];
    proxy = await startProxy(world.signer, "http://127.0.0.1:9", {
      egress: { hosts, authorities: [outside.certificate], lookup: async () => [{ address: "127.0.0.1", family: 4 }] },
    });
    vault = await putVault(proxy.parts.vaults, [{ name: "API_TOKEN", value: "env-canary-0123456789", hosts: ["api.test"] }]);
  });
  afterAll(async () => {
    await proxy.close();
    await api.close();
  });
  async function within(text: (host: string, placeholder: string) => string): Promise<string> {
    const way = new Way(proxy, world.signer, { vaults: [vault] });
    const { variables, certificate } = await way.environment();
    const secure = await way.tls(`api.test:${api.port}`, { ca: certificate ?? "" });
    secure.write(text(`api.test:${api.port}`, variables[0]?.placeholder ?? ""));
    let answer = "";
    secure.on("data", (piece) => (answer += String(piece)));
    await Promise.race([once(secure, "end"), once(secure, "close")]);
    secure.destroy();
    return answer;
  }
  const line = (first: string, host: string, placeholder: string, more = "") =>
    `${first} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${placeholder}\r\n${more}Connection: close\r\n\r\n`;

  test("without an attack the credential is in its place", async () => {
    expect(told(await within((host, placeholder) => line("GET /a", host, placeholder)))).toBe("200");
    expect(heard.splice(0)).toEqual(["GET /a Bearer env-canary-0123456789"]);
  });

  const ROWS: readonly [name: string, text: (host: string, placeholder: string) => string, how: RegExp][] = [
    ["another Host", (_host, placeholder) => line("GET /", "other.test", placeholder), /^421 other_host$/],
    ["the host without its port", (_host, placeholder) => line("GET /", "api.test", placeholder), /^421 other_host$/],
    ["the host with a dot", (host, placeholder) => line("GET /", host.replace(".test", ".test."), placeholder), /^421 other_host$/],
    ["two Hosts", (host, placeholder) => line("GET /", host, placeholder, "Host: other.test\r\n"), /^421 other_host$/],
    ["an address in absolute form", (host, placeholder) => line("GET https://other.test/", host, placeholder), /^421 other_host$/],
    ["a CONNECT", (host, placeholder) => line(`CONNECT ${host}`, host, placeholder), /^nothing$/],
    ["TRACE", (host, placeholder) => line("TRACE /", host, placeholder), /^405 no_trace$/],
    ["an upgrade", (host, placeholder) => line("GET /", host, placeholder, "Upgrade: websocket\r\n"), /^501 no_upgrade$/],
    ["a length and pieces", (host, placeholder) => line("POST /", host, placeholder, "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), /^400$/],
    ["a bare CR", (host, placeholder) => line("GET /", host, placeholder, "X-A: 1\rX-B: 2\r\n"), /^400$/],
  ];
  test.each(ROWS)("%s is refused", async (_name, text, how) => {
    expect(told(await within(text))).toMatch(how);
    expect(heard).toEqual([]);
  });

  test("a placeholder behind a line's end stays one", async () => {
    const answer = await within((host, placeholder) => line("GET /a", host, "x", `X-A: %0d%0aAuthorization: ${placeholder}x\r\n`));
    expect(told(answer)).toBe("200");
    expect(heard.splice(0)).toEqual(["GET /a Bearer x"]);
  });
});

test("who is refused leaves nothing open, whatever was sent behind the CONNECT", async () => {
  const proxy = await startProxy(world.signer, `http://${own()}`);
  const { hostname, port } = new URL(proxy.url);
  const sockets = Array.from({ length: 5 }, () => connect({ host: hostname, port: Number(port), allowHalfOpen: true }));
  for (const socket of sockets) {
    socket.on("error", () => {});
    socket.write(`CONNECT egress:1 HTTP/1.1\r\nHost: x\r\n\r\n${"x".repeat(1_000)}`);
    await once(socket, "data");
    socket.destroy();
  }
  const closed = await Promise.race([proxy.close().then(() => "closed"), once(AbortSignal.timeout(3_500), "abort").then(() => "still open")]);
  expect(closed).toBe("closed");
  await until(() => sockets.every((socket) => socket.destroyed));
});
