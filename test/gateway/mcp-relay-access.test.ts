// Access tokens at the door of a hand: for this door or for the installation's own, with the scope for hands.

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Api, startApi } from "../support/api.ts";
import { send, stateless } from "../support/mcp.ts";
import { registerHand, type ScriptedHand, startScriptedHand } from "../support/relay.ts";

const PUBLIC = "https://hands.example.com/here";
const RESOURCE = `${PUBLIC}/mcp/hands/one`;
const ISSUER = "https://login.example.com/realm";
const METADATA = "/.well-known/oauth-protected-resource/here/mcp/hands/one";

let key: Awaited<ReturnType<typeof generateKeyPair>>;
let jwks: Server;
let api: Api;
let hand: ScriptedHand;

beforeAll(async () => {
  key = await generateKeyPair("RS256", { extractable: true });
  const keys = [{ ...(await exportJWK(key.publicKey)), kid: "first", alg: "RS256" }];
  jwks = createServer((_request, response) => response.setHeader("content-type", "application/json").end(JSON.stringify({ keys })));
  await new Promise<void>((resolve) => jwks.listen(0, "127.0.0.1", resolve));
  const jwksUrl = `http://127.0.0.1:${(jwks.address() as AddressInfo).port}/keys`;
  api = await startApi({ mcp: { publicUrl: PUBLIC, issuer: { issuer: ISSUER, jwksUrl } } });
  hand = await startScriptedHand({ eras: ["stateless"] });
  await registerHand(api.store, { name: "one", url: hand.url });
});
afterAll(async () => {
  await api.close();
  await hand.close();
  await new Promise((resolve) => jwks.close(resolve));
});

async function call(claims: Record<string, unknown>) {
  const now = Math.floor(Date.now() / 1_000);
  const all = { iss: ISSUER, aud: RESOURCE, sub: "user-1", exp: now + 600, iat: now, scope: "hands:use", ...claims };
  const token = await new SignJWT(all).setProtectedHeader({ alg: "RS256", kid: "first", typ: "at+jwt" }).sign(key.privateKey);
  return stateless(`${api.url}/mcp/hands/one`, { authorization: `Bearer ${token}` }, { id: 1, method: "tools/call", params: { name: "t" } });
}

test.each([RESOURCE, `${PUBLIC}/mcp`, ["https://other.example.com", RESOURCE]])("a token for %s opens it", async (aud) => {
  expect((await call({ aud })).status).toBe(200);
  expect(hand.seen.at(-1)?.headers.authorization).toBeUndefined();
});

test.each([`${RESOURCE}/`, `${PUBLIC}/mcp/hands/other`, `${PUBLIC}/mcp/hands`, `${PUBLIC}/mcp/`, PUBLIC, "https://other.example.com"])(
  "a token for %s does not, and the hand hears nothing",
  async (aud) => {
    const before = hand.seen.length;
    const { status, headers } = await call({ aud });
    expect([status, headers["www-authenticate"]]).toEqual([
      401,
      `Bearer realm="manyhands", error="invalid_token", scope="hands:use", resource_metadata="https://hands.example.com${METADATA}"`,
    ]);
    expect(hand.seen).toHaveLength(before);
  },
);

test("a token without the scope is told all that it needs", async () => {
  const { status, headers } = await call({ scope: "sessions:read" });
  expect(status).toBe(403);
  expect(headers["www-authenticate"]).toContain('error="insufficient_scope", scope="sessions:read hands:use"');
});

test("the metadata names this door as configured, whatever the request says", async () => {
  const { status, text } = await send(`${api.url}${METADATA}`, "GET", { host: "evil.example", "x-forwarded-host": "evil.example" });
  expect(status).toBe(200);
  expect(JSON.parse(text)).toMatchObject({ resource: RESOURCE, authorization_servers: [ISSUER], scopes_supported: ["hands:use"] });
});
