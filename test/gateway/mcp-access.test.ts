// Who may come in by the door for MCP clients: keys, tokens of an outside authorization server, pages and names.

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, exportSPKI, generateKeyPair, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { readConfig } from "../../gateway/config.ts";
import { API_KEY, type Api, startApi } from "../support/api.ts";
import { handshake, post, send, stateless } from "../support/mcp.ts";

const PUBLIC = "https://hands.example.com/here";
const RESOURCE = `${PUBLIC}/mcp`;
const ISSUER = "https://login.example.com/realm";

type Key = Awaited<ReturnType<typeof generateKeyPair>>;
let keys: { first: Key; second: Key };
let published: object[] = [];
let fetched = 0;
let jwks: Server;
let api: Api;
let door: string;

beforeAll(async () => {
  keys = { first: await generateKeyPair("RS256", { extractable: true }), second: await generateKeyPair("ES256", { extractable: true }) };
  published = [{ ...(await exportJWK(keys.first.publicKey)), kid: "first", alg: "RS256" }];
  jwks = createServer((_request, response) => {
    fetched += 1;
    response.setHeader("content-type", "application/json").end(JSON.stringify({ keys: published }));
  });
  await new Promise<void>((resolve) => jwks.listen(0, "127.0.0.1", resolve));
  const jwksUrl = `http://127.0.0.1:${(jwks.address() as AddressInfo).port}/keys`;
  api = await startApi({ mcp: { publicUrl: PUBLIC, issuer: { issuer: ISSUER, jwksUrl } } });
  door = `${api.url}/mcp`;
});
afterAll(async () => {
  await api.close();
  await new Promise((resolve) => jwks.close(resolve));
});

interface Made {
  claims?: Record<string, unknown>;
  header?: Record<string, unknown>;
  key?: Parameters<SignJWT["sign"]>[0];
}

function token({ claims = {}, header = {}, key = keys.first.privateKey }: Made = {}): Promise<string> {
  const now = Math.floor(Date.now() / 1_000);
  const all = { iss: ISSUER, aud: RESOURCE, sub: "user-1", exp: now + 600, iat: now, scope: "sessions:read sessions:write", ...claims };
  const given = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  return new SignJWT(given).setProtectedHeader({ alg: "RS256", kid: "first", typ: "at+jwt", ...header }).sign(key);
}
const list = { id: 1, method: "tools/list" };
const withToken = async (made?: Made) => stateless(door, { authorization: `Bearer ${await token(made)}` }, list);

test("a token that this resource's authorization server made for it is let in, in both eras", async () => {
  const answer = await withToken();
  expect(answer.status, answer.text).toBe(200);
  const opened = await handshake(door, { authorization: `Bearer ${await token({ claims: { aud: ["https://other.example.com", RESOURCE] } })}` });
  expect((await opened.call(1, "tools/list")).status).toBe(200);
});

const later = () => Math.floor(Date.now() / 1_000);
const REFUSED: [string, () => Promise<Made>][] = [
  ["another server's", async () => ({ claims: { aud: "https://other.example.com/mcp" } })],
  ["for nobody in particular", async () => ({ claims: { aud: undefined } })],
  ["for others", async () => ({ claims: { aud: ["https://a.example.com", "https://b.example.com"] } })],
  ["for the start of our address", async () => ({ claims: { aud: PUBLIC } })],
  ["for more than our address", async () => ({ claims: { aud: `${RESOURCE}/more` } })],
  ["for our address with a slash", async () => ({ claims: { aud: `${RESOURCE}/` } })],
  ["for our host without a path", async () => ({ claims: { aud: "https://hands.example.com" } })],
  ["expired", async () => ({ claims: { exp: later() - 60 } })],
  ["without an end", async () => ({ claims: { exp: undefined } })],
  ["not valid yet", async () => ({ claims: { nbf: later() + 60 } })],
  ["of another issuer", async () => ({ claims: { iss: `${ISSUER}/` } })],
  ["of nobody", async () => ({ claims: { sub: undefined } })],
  ["an id token by its type", async () => ({ header: { typ: "id+jwt" } })],
  ["signed by a key that is not published", async () => ({ key: (await generateKeyPair("RS256")).privateKey })],
  ["with a key id that is not published", async () => ({ header: { kid: "none" } })],
  ["signed with the public key as a secret", async () => ({ header: { alg: "HS256" }, key: Buffer.from(await exportSPKI(keys.first.publicKey)) })],
];

test.each(REFUSED)("a token that is %s is refused as invalid", async (_what, make) => {
  const answer = await withToken(await make());
  expect(answer.status).toBe(401);
  expect(answer.headers["www-authenticate"]).toContain('error="invalid_token"');
});

test("an unsigned token is refused", async () => {
  const [, body] = (await token()).split(".");
  const header = Buffer.from(JSON.stringify({ alg: "none", typ: "at+jwt" })).toString("base64url");
  const answer = await stateless(door, { authorization: `Bearer ${header}.${body}.` }, list);
  expect(answer.status).toBe(401);
});

test("a key that came new is fetched, and unknown ones don't fetch again and again", async () => {
  const before = fetched;
  for (let n = 0; n < 20; n += 1) await withToken({ header: { kid: `unknown-${n}` } });
  expect(fetched - before).toBeLessThanOrEqual(1);
});

test("a token or key in the query string is not looked at", async () => {
  for (const secret of [await token(), API_KEY])
    for (const name of ["access_token", "api_key", "x-api-key"]) {
      const answer = await stateless(`${door}?${name}=${secret}`, {}, list);
      expect(answer.status).toBe(401);
    }
  expect(api.logged.join("")).not.toContain(API_KEY);
});

describe("the metadata of the protected resource", () => {
  const path = "/.well-known/oauth-protected-resource/here/mcp";
  const expected = {
    resource: RESOURCE,
    authorization_servers: [ISSUER],
    scopes_supported: ["sessions:read", "sessions:write", "hands:read", "hands:write"],
    bearer_methods_supported: ["header"],
    resource_name: "Manyhands",
  };

  test("is at the inserted path, as configured, whatever the request says about hosts", async () => {
    for (const headers of [{}, { host: "evil.example.com", "x-forwarded-host": "evil.example.com", "x-forwarded-proto": "http" }]) {
      const answer = await send(`${api.url}${path}`, "GET", headers);
      expect(JSON.parse(answer.text)).toEqual(expected);
      expect(answer.headers["access-control-allow-origin"]).toBe("*");
    }
    expect((await send(`${api.url}${path}`, "HEAD")).status).toBe(200);
    expect((await send(`${api.url}/.well-known/oauth-protected-resource`, "GET")).status).toBe(404);
  });

  test("is named by every challenge, with the scopes", async () => {
    const where = `resource_metadata="https://hands.example.com${path}"`;
    const asked = await post(door, { jsonrpc: "2.0", id: 1, method: "initialize" });
    expect(asked.status).toBe(401);
    expect(asked.headers["www-authenticate"]).toBe(`Bearer realm="manyhands", scope="sessions:read sessions:write hands:read hands:write", ${where}`);
    const wrong = await stateless(door, { authorization: "Bearer nonsense" }, list);
    expect(wrong.headers["www-authenticate"]).toContain(where);
  });
});

describe("what a token does not allow", () => {
  const reading = () => token({ claims: { scope: "sessions:read other" } });

  test("is not listed, and refused with all that it takes", async () => {
    const headers = { authorization: `Bearer ${await reading()}` };
    const { messages } = await stateless(door, headers, list);
    const names = namesIn(messages[0]?.result);
    expect(names).toContain("get_events");
    expect(names).not.toContain("send_message");
    const params = { name: "send_message", arguments: {} };
    const opened = await handshake(door, headers);
    for (const answer of [await stateless(door, headers, { id: 2, method: "tools/call", params }), await opened.call(2, "tools/call", params)]) {
      expect(answer.status).toBe(403);
      expect(answer.headers["www-authenticate"]).toContain('error="insufficient_scope", scope="sessions:read sessions:write"');
    }
  });
});

describe("pages and names", () => {
  const cases: [string, Record<string, string>, number][] = [
    ["no origin", {}, 200],
    ["an origin on this machine", { origin: "http://localhost:5173" }, 200],
    ["the public origin", { origin: "https://hands.example.com" }, 200],
    ["the public name", { host: "hands.example.com" }, 200],
    ["a foreign origin", { origin: "https://evil.example.com" }, 403],
    ["an origin that looks like ours", { origin: "https://hands.example.com.evil.example.com" }, 403],
    ["the null origin", { origin: "null" }, 403],
    ["a foreign host", { host: "evil.example.com" }, 403],
    ["a name that leads here", { host: "127.0.0.1.evil.example.com:4100" }, 403],
  ];
  test.each(cases)("%s", async (_what, headers, status) => {
    const answer = await stateless(door, { "x-api-key": API_KEY, ...headers }, list);
    expect(answer.status, answer.text).toBe(status);
    if (status === 403) for (const verb of ["GET", "DELETE", "PUT"] as const) expect((await send(door, verb, headers)).status).toBe(403);
  });
});

test("without a key calls are taken only where the operator said so, and that on loopback only", () => {
  expect(readConfig({}).isMcpOpen).toBe(false);
  expect(readConfig({ MANYHANDS_MCP_OPEN: "1" }).isMcpOpen).toBe(true);
  for (const host of ["0.0.0.0", "::", "0", "0.0.0.0.", "127.evil.example.com", "127.0.0.1.example.com", "localhost.example.com"])
    expect(() => readConfig({ MANYHANDS_MCP_OPEN: "1", MANYHANDS_HOST: host }), host).toThrow("MANYHANDS_MCP_OPEN");
  expect(() => readConfig({ MANYHANDS_MCP_ISSUER: ISSUER })).toThrow("MANYHANDS_MCP_JWKS_URL");
  expect(() => readConfig({ MANYHANDS_MCP_ISSUER: ISSUER, MANYHANDS_MCP_JWKS_URL: ISSUER })).toThrow("MANYHANDS_PUBLIC_URL");
});

const Tools = z.looseObject({ tools: z.array(z.looseObject({ name: z.string() })) });
const namesIn = (result: unknown): readonly string[] => Tools.parse(result).tools.map(({ name }) => name);
