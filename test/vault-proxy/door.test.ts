// Who may speak to the vaults' API of a vault proxy: a gateway with a token for this one request, and nobody else.

import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { request } from "undici";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { ApiCall } from "../../vault-proxy/api/call.ts";
import { Vaults } from "../../vault-proxy/api/vaults.ts";
import { Signer, startProxy, startUpstream, type TestProxy } from "./proxy.ts";

vi.setConfig({ testTimeout: 30_000 });

const signer = new Signer();
let proxy: TestProxy;
let upstream: Awaited<ReturnType<typeof startUpstream>>;
beforeAll(async () => {
  await signer.rotate("k1");
  upstream = await startUpstream((_req, res) => res.end("{}"));
  proxy = await startProxy(signer, upstream.url);
});
afterAll(async () => {
  await proxy.close();
  await upstream.close();
  signer.remove();
});

const door = (claims: Record<string, unknown> = {}) => {
  const exp = Math.floor(Date.now() / 1000) + 60;
  return signer.sign({ sub: "gateway", workspace: "default", principal: "p1", jti: "req_1", use: ["vaults"], exp, ...claims });
};
async function ask(token: string, method: "GET" | "POST" | "DELETE", path: string, body?: unknown, headers: Record<string, string> = {}) {
  const answer = await request(`${proxy.url}${path}`, {
    method,
    headers: { ...headers, ...(token !== "" && { authorization: `Bearer ${token}` }) },
    body: body === undefined ? null : JSON.stringify(body),
  });
  return { status: answer.statusCode, headers: answer.headers, body: (await answer.body.json()) as Record<string, unknown> };
}

test("no token, a session's grant, a stale, long, foreign or other-purpose token: 401, and nothing is read", async () => {
  const now = Math.floor(Date.now() / 1000);
  const bad = [
    "",
    "nonsense",
    await signer.sign(),
    await signer.sign({ use: ["vaults"] }),
    await door({ exp: now - 60 }),
    await door({ exp: now + 600 }),
    await door({ aud: "elsewhere" }),
    await door({ iss: "stranger" }),
    await door({ use: ["model"] }),
    await door({ use: ["vaults", "model"] }),
    await door({ workspace: "../other" }),
    await door({ workspace: undefined }),
  ];
  for (const token of bad) {
    const { status, body } = await ask(token, "POST", "/v1/vaults", { display_name: "x" });
    expect([status, body.error]).toEqual([401, expect.objectContaining({ type: "authentication_error" })]);
  }
  expect((await ask(await door(), "GET", "/v1/vaults")).body.data).toEqual([]);
});

test("a gateway's token opens no model and revokes nothing", async () => {
  expect((await ask(await door(), "POST", "/model/v1/messages", {})).status).toBe(401);
  expect((await ask(await door(), "POST", "/revoke", { session: "sesn_1" })).status).toBe(401);
});

test("a workspace sees its own vaults alone", async () => {
  const made = (await ask(await door(), "POST", "/v1/vaults", { display_name: "mine" })).body;
  const other = await door({ workspace: "other" });
  expect((await ask(other, "GET", `/v1/vaults/${made.id}`)).status).toBe(404);
  expect((await ask(other, "DELETE", `/v1/vaults/${made.id}`)).status).toBe(404);
  expect((await ask(other, "GET", "/v1/vaults")).body.data).toEqual([]);
  expect((await ask(other, "POST", "/vaults/check", { vault_ids: [made.id] })).body).toEqual({ unknown: [made.id], archived: [] });
  expect((await ask(await door(), "POST", "/vaults/check", { vault_ids: [made.id] })).body).toEqual({ unknown: [], archived: [] });
});

test("paths and methods are exact, and refusals carry the request's id", async () => {
  const rows: ["GET" | "POST" | "DELETE", string, number][] = [
    ["GET", "/v1/vaults/", 404],
    ["GET", "/v1/vaultsx", 404],
    ["GET", "/v1/vaults/vlt_x/nothing", 404],
    ["GET", "/v1/vaults/%2e%2e", 404],
    ["GET", "/v1/vaults/%", 404],
    ["GET", "/v1/vaults/agent_1", 404],
    ["DELETE", "/v1/vaults", 405],
    ["GET", "/v1/vaults?bogus=1", 400],
    ["GET", "/v1/vaults?limit=0", 400],
    ["GET", "/v1/vaults?page=page_e30", 400],
  ];
  for (const [method, path, status] of rows) {
    const answer = await ask(await door(), method, path);
    expect([path, answer.status]).toEqual([path, status]);
    if (path.startsWith("/v1/vaults?") || status === 405) expect(answer.body.request_id).toBe("req_1");
  }
  expect((await ask(await door(), "DELETE", "/v1/vaults")).headers.allow).toBe("POST, GET");
});

test("a retry by count finds the create whose answer never got out; answered ones are made again", async () => {
  const vaults = new Vaults(proxy.parts.vaults);
  const answered: (() => void)[] = [];
  const call = (retries: number): ApiCall => ({
    caller: { workspace: "retries", principal: "p1", requestId: "req_1" },
    path: "/v1/vaults",
    key: null,
    retries,
    id: (name) => name,
    onAnswered: (then) => void answered.push(then),
  });
  const body = { display_name: "retried" };
  const idOf = async (retries: number) => ((await vaults.create(call(retries), body, body)) as { id: string }).id;
  const first = await idOf(0);
  expect([await idOf(1), await idOf(2)]).toEqual([first, first]);
  for (const then of answered) then();
  expect([await idOf(1), await idOf(0)]).not.toContain(first);
  expect(await proxy.parts.vaults.ids("retries", "vault")).toHaveLength(3);
});

test("a refusal waits for the end of its body, and the connection goes on", async () => {
  const agent = new HttpAgent({ keepAlive: true, maxSockets: 1 });
  const path = "/v1/vaults/none/credentials/none";
  const post = async (halves: readonly string[]) => {
    const headers = { authorization: `Bearer ${await door()}`, "content-length": halves.join("").length };
    const sending = httpRequest(`${proxy.url}${path}`, { method: "POST", agent, headers });
    const answered = new Promise<IncomingMessage>((resolve, reject) => sending.once("response", resolve).once("error", reject));
    for (const half of halves) {
      sending.write(half);
      await sleep(50);
    }
    sending.end();
    const answer = await answered;
    answer.resume();
    return { status: answer.statusCode, connection: answer.headers.connection, isReused: sending.reusedSocket };
  };
  const body = ["{".padEnd(300_000, " "), "}".padStart(300_000, " ")];
  expect(await post(body)).toEqual({ status: 404, connection: "keep-alive", isReused: false });
  expect(await post(body)).toEqual({ status: 404, connection: "keep-alive", isReused: true });
  agent.destroy();
});
