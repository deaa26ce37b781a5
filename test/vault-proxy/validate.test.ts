// `mcp_oauth_validate` (contract §15): what it says of each state of a credential, and what it never shows.

import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type AuthorizationServer, startAuthorizationServer } from "../support/oauth/server.ts";
import { Caller } from "./mcp-kit.ts";
import { ENDED, type Guarded, type Kept, keep, startGuarded } from "./oauth-kit.ts";
import { Signer, startProxy, startUpstream, type TestProxy } from "./proxy.ts";

let authorization: AuthorizationServer;
let signer: Signer;
let proxy: TestProxy;
let caller: Caller;
let server: Guarded;

beforeAll(async () => {
  authorization = await startAuthorizationServer();
  signer = new Signer();
  await signer.rotate("k1");
});
afterAll(async () => {
  await authorization.close();
  signer.remove();
});
beforeEach(async () => {
  authorization.behave(null);
  server = await startGuarded(authorization);
  proxy = await startProxy(signer, "http://127.0.0.1:9", { internalHosts: ["127.0.0.1"] });
  caller = new Caller(proxy.url, signer);
});
afterEach(async () => {
  await proxy.close();
  await server.close();
});

interface Http {
  readonly status_code: number;
  readonly content_type: string | null;
  readonly body: string;
  readonly body_truncated: boolean;
}
interface Validation {
  readonly status: string;
  readonly has_refresh_token: boolean;
  readonly mcp_probe: { readonly method: string; readonly http_response: Http | null } | null;
  readonly refresh: { readonly status: string; readonly http_response: Http | null } | null;
}
const validate = ({ vault, credential }: Kept) => caller.api<Validation>("POST", `/v1/vaults/${vault}/credentials/${credential}/mcp_oauth_validate`);
const brief = ({ status, mcp_probe, refresh }: Validation) => [
  status,
  mcp_probe?.http_response?.status_code ?? null,
  refresh?.status ?? null,
  refresh?.http_response?.status_code ?? null,
];

test("a good one is valid, in the contract's whole form", async () => {
  server.answer = () => 200;
  const kept = await keep(caller, authorization, server.url, { lifeMs: 3_600_000 });
  expect(await validate(kept)).toEqual({
    type: "vault_credential_validation",
    credential_id: kept.credential,
    vault_id: kept.vault,
    validated_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    has_refresh_token: true,
    status: "valid",
    mcp_probe: {
      method: "initialize",
      http_response: { status_code: 200, content_type: "application/json", body: '{"jsonrpc":"2.0","id":1,"result":{}}', body_truncated: false },
    },
    refresh: null,
  });
});

test("one that has ended, or that its server refuses, is renewed, and valid then", async () => {
  for (const lifeMs of [1_000, null]) {
    const kept = await keep(caller, authorization, server.url, { lifeMs });
    expect(brief(await validate(kept))).toEqual(["valid", 200, "succeeded", 200]);
    expect(brief(await validate(kept))).toEqual(["valid", 200, null, null]);
  }
});

test("one that can't be renewed is invalid; whether nobody could be asked, or said something else, is unknown", async () => {
  const refused = await keep(caller, authorization, server.url);
  authorization.behave(async () => ({ status: 400, contentType: "application/json", body: '{"error":"invalid_grant"}' }));
  expect(brief(await validate(refused))).toEqual(["invalid", null, "failed", 400]);
  expect(brief(await validate(refused))).toEqual(["invalid", null, "failed", null]);
  authorization.behave(async () => ({ status: 503, contentType: "text/plain", body: "down" }));
  expect(brief(await validate(await keep(caller, authorization, server.url)))).toEqual(["unknown", null, "failed", 503]);
  server.answer = () => 500;
  expect(brief(await validate(await keep(caller, authorization, server.url, { lifeMs: null })))).toEqual(["unknown", 500, null, null]);

  server.answer = () => 401;
  const vault = await caller.vault();
  const bare = { type: "mcp_oauth", mcp_server_url: server.url, access_token: ENDED };
  const kept = { vault, credential: await caller.credential(vault, bare) };
  const told = await validate(kept);
  expect([brief(told), told.has_refresh_token]).toEqual([["invalid", 401, "no_refresh_token", null], false]);
  const away = { vault, credential: await caller.credential(vault, { ...bare, mcp_server_url: "http://127.0.0.1:9/mcp" }) };
  expect(brief(await validate(away))).toEqual(["unknown", null, null, null]);
});

test("another type, an archived one and one that is not there are refused", async () => {
  const vault = await caller.bearer(server.url, "a-token-of-a-server");
  const [bearer] = (await caller.api<{ data: { id: string }[] }>("GET", `/v1/vaults/${vault}/credentials`)).data;
  await expect(validate({ vault, credential: bearer?.id ?? "" })).rejects.toThrow("only mcp_oauth can be validated");
  await expect(validate({ vault, credential: "vcrd_unknown" })).rejects.toThrow("There is no such credential");
  const kept = await keep(caller, authorization, server.url, { lifeMs: null });
  await caller.api("POST", `/v1/vaults/${kept.vault}/credentials/${kept.credential}/archive`);
  await expect(validate(kept)).rejects.toThrow("archived");
});

test("what servers say is shown in part, without any token of the credential or of the answer", async () => {
  const echo = await startUpstream((req, res) => res.end(`${req.headers.authorization} ${"x".repeat(20_000)}`));
  try {
    const bodies: string[] = [];
    authorization.behave(async (real, { form }) => {
      const given = await real();
      bodies.push(given.body, form.get("refresh_token") ?? "");
      return { ...given, body: `${given.body.slice(0, -1)},"id_token":"canary-id-token-of-a-person"}` };
    });
    const told = await validate(await keep(caller, authorization, `${echo.url}/mcp`, { how: "client_secret_post" }));
    expect(brief(told)).toEqual(["valid", 200, "succeeded", 200]);
    const probe = told.mcp_probe?.http_response;
    expect([probe?.body_truncated, probe?.body.length, probe?.body.startsWith("Bearer ****")]).toEqual([true, 4_096, true]);
    expect(told.refresh?.http_response?.body).toContain('"expires_in"');
    const { access_token, refresh_token } = JSON.parse(bodies[0] ?? "{}");
    for (const secret of [access_token, refresh_token, bodies[1], ENDED, "canary-client-secret", "canary-id-token"]) {
      expect(String(secret).length).toBeGreaterThan(10);
      expect(JSON.stringify(told)).not.toContain(secret);
    }
  } finally {
    await echo.close();
  }
});

test("what an authorization server says back of a refused request shows neither the form nor the client's secret in it", async () => {
  const said: string[] = [];
  authorization.behave(async (_real, { form, headers }) => {
    const basic = Buffer.from(String(headers.authorization).slice("Basic ".length), "base64").toString();
    said.push(form.get("refresh_token") ?? "", form.toString(), String(headers.authorization), basic.slice(basic.indexOf(":") + 1));
    return { status: 400, contentType: "application/json", body: JSON.stringify({ error: "invalid_grant", said }) };
  });
  const told = await validate(await keep(caller, authorization, server.url, { how: "client_secret_basic", lifeMs: 1_000 }));
  expect(brief(told).slice(2)).toEqual(["failed", 400]);
  const body = String(told.refresh?.http_response?.body);
  expect(body).toContain("invalid_grant");
  const [refreshToken = "", , authorizationHeader = "", secret = ""] = said;
  for (const text of [refreshToken, secret, decodeURIComponent(secret), authorizationHeader.slice(-24)]) {
    expect(text.length).toBeGreaterThan(10);
    expect(body).not.toContain(text);
  }
});
