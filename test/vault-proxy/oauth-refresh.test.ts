// Refreshing against a real authorization server whose refresh tokens work once (C-31, C-32): one proxy on a file vault.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type AuthorizationServer, startAuthorizationServer } from "../support/oauth/server.ts";
import { Caller } from "./mcp-kit.ts";
import { ENDED, type Guarded, keep, startGuarded } from "./oauth-kit.ts";
import { Signer, startProxy, type TestProxy } from "./proxy.ts";

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

const ask = (vault: string) => caller.send({ target: server.url, vaults: [vault] });
/** What was asked for since. */
function counting(): () => number {
  const from = authorization.count();
  return () => authorization.count() - from;
}
const shown = async (kept: { vault: string; credential: string }) =>
  (await caller.api<{ auth: Record<string, unknown> }>("GET", `/v1/vaults/${kept.vault}/credentials/${kept.credential}`)).auth;

describe("a credential that is due", () => {
  for (const how of ["none", "client_secret_basic", "client_secret_post"] as const)
    test(`is renewed once for all who ask, by a client that authenticates by ${how}; nobody uses the old token`, async () => {
      const kept = await keep(caller, authorization, server.url, { how });
      const count = counting();
      const got = await Promise.all(Array.from({ length: 20 }, () => ask(kept.vault)));
      expect(got.map(({ status }) => status)).toEqual(got.map(() => 200));
      expect([count(), new Set(server.seen.map(({ token }) => token)).size]).toEqual([1, 1]);
      expect(server.seen.map(({ token }) => token)).not.toContain(ENDED);
      const auth = await shown(kept);
      expect(auth.needs_sign_in).toBe(false);
      expect(Date.parse(String(auth.expires_at))).toBeGreaterThan(Date.now() + 3_000_000);
      const audit = await readFile(join(proxy.parts.folder, "audit", "audit-00000001.jsonl"), "utf8");
      expect(audit.split("\n").filter((line) => line.includes('"oauth_refresh"'))).toHaveLength(1);
    });

  test("is renewed a little before its end, and its token is used meanwhile", async () => {
    server.answer = () => 200;
    const kept = await keep(caller, authorization, server.url, { lifeMs: 20_000 });
    const count = counting();
    expect((await ask(kept.vault)).status).toBe(200);
    expect((await ask(kept.vault)).status).toBe(200);
    expect([count(), server.seen.some(({ token }) => token === ENDED)]).toEqual([1, false]);
  });

  test("that lives a few seconds is not renewed at each use", async () => {
    const kept = await keep(caller, authorization, server.url);
    authorization.behave(async (real) => {
      const given = await real();
      return { ...given, body: JSON.stringify({ ...JSON.parse(given.body), expires_in: 20 }) };
    });
    const count = counting();
    for (let n = 0; n < 5; n += 1) expect((await ask(kept.vault)).status).toBe(200);
    expect(count()).toBe(1);
  });
});

describe("what an answer brings", () => {
  test("omit, omit, rotate, omit, across a restart: four renewals, each with the refresh token that counts (C-31)", async () => {
    let known = "";
    const used: string[] = [];
    const plan = [null, null, "rotated-refresh-token", null];
    authorization.behave(async (_real, { form }) => {
      used.push(form.get("refresh_token") ?? "");
      const refresh_token = plan[used.length - 1];
      known = `access-token-number-${used.length}`;
      const body = JSON.stringify({ access_token: known, token_type: "Bearer", expires_in: 1, ...(refresh_token ? { refresh_token } : {}) });
      return { status: 200, contentType: "application/json", body };
    });
    server.answer = (token) => (token === known ? 200 : 401);
    const kept = await keep(caller, authorization, server.url);
    for (let n = 1; n <= 4; n += 1) {
      expect((await ask(kept.vault)).status).toBe(200);
      expect(used).toHaveLength(n);
      const { expires_at } = await shown(kept);
      while (Date.now() <= Date.parse(String(expires_at))) await new Promise((resolve) => setTimeout(resolve, 20));
      if (n === 2) {
        proxy = await proxy.again();
        caller = new Caller(proxy.url, signer);
      }
    }
    const [first] = used;
    expect(used).toEqual([first, first, first, "rotated-refresh-token"]);
  });
});

describe("a token that is refused before its time", () => {
  test("is renewed once and the request sent once more, whole; asked for again within a minute, the 401 is the answer (C-32)", async () => {
    const kept = await keep(caller, authorization, server.url, { lifeMs: null });
    const count = counting();
    expect((await ask(kept.vault)).status).toBe(200);
    expect([count(), server.seen.map(({ status }) => status)]).toEqual([1, [401, 200]]);
    server.answer = () => 401;
    expect((await ask(kept.vault)).status).toBe(401);
    expect((await ask(kept.vault)).status).toBe(401);
    expect(count()).toBe(1);
  });

  test("by many requests at once is renewed once, and all of them succeed", async () => {
    const kept = await keep(caller, authorization, server.url, { lifeMs: null });
    const count = counting();
    const got = await Promise.all(Array.from({ length: 32 }, () => ask(kept.vault)));
    expect(got.map(({ status }) => status)).toEqual(got.map(() => 200));
    expect(count()).toBe(1);
  });

  test("with a 403 is not renewed", async () => {
    server.answer = () => 403;
    const kept = await keep(caller, authorization, server.url, { lifeMs: null });
    const count = counting();
    expect([(await ask(kept.vault)).status, count()]).toEqual([403, 0]);
  });
});

describe("an authorization server", () => {
  test("that refuses the grant is asked once: the credential needs a sign-in, says so, and a new one is picked up at once (C-32)", async () => {
    const kept = await keep(caller, authorization, server.url);
    authorization.behave(async () => ({ status: 400, contentType: "application/json", body: '{"error":"invalid_grant"}' }));
    const count = counting();
    for (let n = 0; n < 3; n += 1) {
      const got = await ask(kept.vault);
      expect([got.status, got.refusal]).toEqual([401, "sign_in_needed"]);
    }
    expect([count(), (await shown(kept)).needs_sign_in, server.seen]).toEqual([1, true, []]);
    authorization.behave(null);
    server.answer = (token) => (token === "signed-in-anew" ? 200 : 401);
    const auth = { type: "mcp_oauth", access_token: "signed-in-anew", expires_at: new Date(Date.now() + 3_600_000).toISOString() };
    await caller.api("POST", `/v1/vaults/${kept.vault}/credentials/${kept.credential}`, { auth });
    expect([(await ask(kept.vault)).status, (await shown(kept)).needs_sign_in, count()]).toEqual([200, false, 1]);
  });

  for (const [name, answer] of [
    ["answers with 503", { status: 503, contentType: "text/plain", body: "down" }],
    ["answers with 429", { status: 429, contentType: "application/json", body: '{"error":"invalid_request"}' }],
    ["answers with a page", { status: 200, contentType: "text/html", body: "<html>sign in</html>" }],
    ["answers with a redirect", { status: 302, contentType: "text/plain", body: "" }],
  ] as const)
    test(`that ${name} costs no tokens: the call fails, is not repeated at once, and works later`, async () => {
      const kept = await keep(caller, authorization, server.url);
      authorization.behave(async () => answer);
      const count = counting();
      for (let n = 0; n < 3; n += 1) expect((await ask(kept.vault)).refusal).toBe("not_refreshed");
      expect([count(), (await shown(kept)).needs_sign_in, server.seen]).toEqual([1, false, []]);
      authorization.behave(null);
      await expect.poll(async () => (await ask(kept.vault)).status, { timeout: 8_000, interval: 200 }).toBe(200);
    });

  test("whose trouble comes before the token's end leaves the token in use", async () => {
    server.answer = () => 200;
    const kept = await keep(caller, authorization, server.url, { lifeMs: 20_000 });
    authorization.behave(async () => ({ status: 500, contentType: "text/plain", body: "" }));
    expect([(await ask(kept.vault)).status, server.seen.map(({ token }) => token)]).toEqual([200, [ENDED]]);
  });
});

test("no token, old or new, and no client's secret is in a log line or an audit line", async () => {
  const bodies: string[] = [];
  authorization.behave(async (real, { form }) => {
    const given = await real();
    bodies.push(given.body, form.get("refresh_token") ?? "");
    return given;
  });
  const kept = await keep(caller, authorization, server.url, { how: "client_secret_post" });
  expect((await ask(kept.vault)).status).toBe(200);
  const [answer = "{}", refresh = ""] = bodies;
  const { access_token, refresh_token } = JSON.parse(answer);
  const audit = await readFile(join(proxy.parts.folder, "audit", "audit-00000001.jsonl"), "utf8");
  for (const secret of [access_token, refresh_token, refresh, ENDED, "canary-client-secret"]) {
    expect(String(secret).length).toBeGreaterThan(10);
    expect([...proxy.log, audit].filter((line) => line.includes(String(secret)))).toEqual([]);
  }
});
