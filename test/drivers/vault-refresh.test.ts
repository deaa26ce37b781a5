// Refreshing on several vault proxies that share a storage (C-30): two real processes on a Vault server's test double, and a real authorization
// server whose refresh tokens work once and revoke everything when one is shown twice.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { type AuthorizationServer, startAuthorizationServer } from "../support/oauth/server.ts";
import { type Program, startProgram } from "../support/process.ts";
import { proves } from "../support/proves.ts";
import { until } from "../support/until.ts";
import { ROOT_TOKEN } from "../support/vault-double/server.ts";
import { Caller, type Got } from "../vault-proxy/mcp-kit.ts";
import { ENDED, type Guarded, keep, startGuarded } from "../vault-proxy/oauth-kit.ts";
import { Signer } from "../vault-proxy/signer.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let authorization: AuthorizationServer;
let signer: Signer;
let double: Program;
let doubleUrl = "";
let folder = "";
let server: Guarded;
let proxies: Program[] = [];
let callers: Caller[] = [];
let count = () => 0;

async function start(name: string): Promise<void> {
  const env = {
    MANYHANDS_DATA_DIR: join(folder, name),
    MANYHANDS_KEYS_DIR: signer.folder,
    MANYHANDS_INTERNAL_HOSTS: "127.0.0.1",
    // A lease lives for this and ten seconds more.
    MANYHANDS_OAUTH_TIMEOUT_MS: "1500",
    VAULT_ADDR: doubleUrl,
    MANYHANDS_VAULT_TOKEN_FILE: join(folder, "token"),
  };
  const proxy = startProgram("vault-proxy/main", { env });
  proxies.push(proxy);
  callers.push(new Caller(await proxy.listening(), signer));
}
const behave = (behaviour: object) => fetch(`${doubleUrl}/double`, { method: "POST", body: JSON.stringify(behaviour) });
const ask = (at: number, vault: string): Promise<Got> => {
  const caller = callers[at % callers.length];
  if (caller === undefined) throw new Error("no proxy");
  return caller.send({ target: server.url, vaults: [vault] });
};
const first = (): Caller => {
  const [caller] = callers;
  if (caller === undefined) throw new Error("no proxy");
  return caller;
};
const needsSignIn = async ({ vault, credential }: { vault: string; credential: string }) =>
  (await first().api<{ auth: { needs_sign_in: boolean } }>("GET", `/v1/vaults/${vault}/credentials/${credential}`)).auth.needs_sign_in;

beforeAll(async () => {
  authorization = await startAuthorizationServer();
  signer = new Signer();
  await signer.rotate("k1");
  folder = await mkdtemp(join(tmpdir(), "manyhands-refresh-"));
  await writeFile(join(folder, "token"), ROOT_TOKEN);
  double = startProgram("test/support/vault-double/main");
  doubleUrl = await double.listening();
});
afterAll(async () => {
  await double[Symbol.asyncDispose]();
  await authorization.close();
  signer.remove();
  await rm(folder, { recursive: true });
});
beforeEach(async () => {
  authorization.behave(null);
  server = await startGuarded(authorization);
  await start("one");
  await start("two");
  const from = authorization.count();
  count = () => authorization.count() - from;
});
afterEach(async () => {
  await behave({});
  await Promise.all(proxies.map((proxy) => proxy[Symbol.asyncDispose]()));
  proxies = [];
  callers = [];
  await server.close();
});

describe("50 calls over two proxies", () => {
  proves("credential:renewed-once", "at a token's end: one request for tokens, 50 successes, and nobody uses the old one", async () => {
    const { vault } = await keep(first(), authorization, server.url);
    const got = await Promise.all(Array.from({ length: 50 }, (_, at) => ask(at, vault)));
    expect(got.map(({ status }) => status)).toEqual(got.map(() => 200));
    expect([count(), new Set(server.seen.map(({ token }) => token)).size]).toEqual([1, 1]);
    expect(server.seen.map(({ token }) => token)).not.toContain(ENDED);
    // And the next renewal has the newest refresh token: the grant is alive.
    server.answer = () => 401;
    await ask(0, vault);
    server.answer = null;
    expect([(await ask(1, vault)).status, count()]).toEqual([200, 2]);
  });

  test("whose token is refused before its end: one request for tokens, 50 successes", async () => {
    const { vault } = await keep(first(), authorization, server.url, { lifeMs: null });
    const got = await Promise.all(Array.from({ length: 50 }, (_, at) => ask(at, vault)));
    expect(got.map(({ status }) => status)).toEqual(got.map(() => 200));
    expect(count()).toBe(1);
  });

  test("of a grant that was revoked: one request for tokens, 50 times the same no", async () => {
    const kept = await keep(first(), authorization, server.url);
    authorization.behave(async () => ({ status: 400, contentType: "application/json", body: '{"error":"invalid_grant"}' }));
    const got = await Promise.all(Array.from({ length: 50 }, (_, at) => ask(at, kept.vault)));
    expect(got.map(({ refusal }) => refusal)).toEqual(got.map(() => "sign_in_needed"));
    expect([count(), await needsSignIn(kept)]).toEqual([1, true]);
  });
});

describe("a proxy that is killed between the answer and its storing", () => {
  /** The real server gives out new tokens, and the one who asked is gone. */
  async function killAtTheAnswer(vault: string, isProcessed: boolean): Promise<void> {
    authorization.behave(async (real) => {
      const answer = isProcessed ? await real() : { status: 500, contentType: "text/plain", body: "" };
      proxies[0]?.kill("SIGKILL");
      await proxies[0]?.exit();
      authorization.behave(null);
      return answer;
    });
    const lost = await ask(0, vault).catch(() => "broken");
    expect(lost).toBe("broken");
    callers.shift();
  }

  test("leaves the credential to the next one, who asks once with what is stored: that was used up, and a sign-in is asked for, once", async () => {
    const kept = await keep(first(), authorization, server.url);
    await killAtTheAnswer(kept.vault, true);
    await start("three");
    const got = await Promise.all(Array.from({ length: 20 }, (_, at) => ask(at, kept.vault)));
    expect(got.map(({ refusal }) => refusal)).toEqual(got.map(() => "sign_in_needed"));
    expect([count(), await needsSignIn(kept)]).toEqual([2, true]);
    await ask(0, kept.vault);
    expect(count()).toBe(2);
  });

  test("loses nothing where the server had not taken the token yet: the next one recovers", async () => {
    const kept = await keep(first(), authorization, server.url);
    await killAtTheAnswer(kept.vault, false);
    const got = await Promise.all(Array.from({ length: 20 }, (_, at) => ask(at, kept.vault)));
    expect(got.map(({ status }) => status)).toEqual(got.map(() => 200));
    expect([count(), await needsSignIn(kept)]).toEqual([2, false]);
  });
});

test("tokens that can't be stored are not used: the call fails cleanly, the next one stores them and works, and nothing is asked for twice", async () => {
  const { vault } = await keep(first(), authorization, server.url);
  authorization.behave(async (real) => {
    const answer = await real();
    await behave({ sealed: true });
    return answer;
  });
  const failed = await ask(0, vault);
  expect([failed.status, failed.refusal, server.seen]).toEqual([503, "unstored", []]);
  await behave({});
  expect((await ask(0, vault)).status).toBe(200);
  expect((await ask(1, vault)).status).toBe(200);
  expect([count(), server.seen.map(({ status }) => status)]).toEqual([1, [200, 200]]);
  await until(() => (proxies[0]?.linesOf("credential.stored_late").length ?? 0) === 1);
});
