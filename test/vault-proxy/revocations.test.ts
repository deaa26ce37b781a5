// A revocation, as every vault proxy over one storage hears of it, and as a restart keeps it.

import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pino from "pino";
import { request } from "undici";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { ServerVault } from "../../vault-proxy/drivers/server/driver.ts";
import { Passing } from "../../vault-proxy/passing.ts";
import { ownVault } from "../support/own-vault.ts";
import { until } from "../support/until.ts";
import { ROOT_TOKEN, startVaultDouble } from "../support/vault-double/server.ts";
import { Caller } from "./mcp-kit.ts";
import { Signer, startProxy, startUpstream, type TestProxy } from "./proxy.ts";

const LOOK_MS = 100;
const signer = new Signer();
const silent = pino({ level: "silent" });
const opened: { close(): Promise<void> }[] = [];
let double: Awaited<ReturnType<typeof startVaultDouble>>;
let model: Awaited<ReturnType<typeof startUpstream>>;
let folder = "";
/** Answers that began and do not end. */
const open: ServerResponse[] = [];

beforeAll(async () => {
  await signer.rotate("k1");
  folder = await mkdtemp(join(tmpdir(), "manyhands-revocations-"));
  await writeFile(join(folder, "token"), ROOT_TOKEN);
  double = await startVaultDouble();
  model = await startUpstream((req, res) => {
    req.resume();
    if (req.url?.includes("count_tokens")) return void res.end("{}");
    open.push(res);
    res.writeHead(200, { "content-type": "text/event-stream" }).write(": open\n\n");
  });
});
afterEach(async () => {
  await behave({});
  for (const each of opened.splice(0).reverse()) await each.close();
});
afterAll(async () => {
  await double.close();
  await model.close();
  signer.remove();
  await rm(folder, { recursive: true });
});

const behave = (behaviour: object) => fetch(`${double.url}/double`, { method: "POST", body: JSON.stringify(behaviour) });
/** A storage of this test's own at the server, for any number of proxies. */
function storage(prefix: string): ServerVault {
  const login = { type: "token" as const, file: join(folder, "token") };
  const store = new ServerVault({ url: double.url, namespace: null, mount: "secret", prefix, login }, silent);
  opened.push(store);
  return store;
}
async function proxyOver(store: ServerVault): Promise<TestProxy> {
  const proxy = await startProxy(signer, model.url, { store, lookMs: LOOK_MS, internalHosts: ["127.0.0.1"] });
  opened.push(proxy);
  return proxy;
}

const authorization = async (session: string, use: string) => `Bearer ${await signer.sign({ sub: session, use: [use], iat: undefined })}`;
async function revoke(proxy: TestProxy, session: string): Promise<number> {
  const answer = await request(`${proxy.url}/revoke`, {
    method: "POST",
    headers: { authorization: await authorization(session, "revoke") },
    body: JSON.stringify({ session }),
  });
  await answer.body.dump();
  return answer.statusCode;
}
/** The answer's status; "cut": a revocation was heard of in the middle of it. */
async function speaks(proxy: TestProxy, session: string): Promise<number | "cut"> {
  const answer = await request(`${proxy.url}/model/v1/messages/count_tokens`, {
    method: "POST",
    headers: { authorization: await authorization(session, "model") },
    body: "{}",
  }).catch(() => null);
  if (answer === null) return "cut";
  await answer.body.dump();
  return answer.statusCode;
}

test("one proxy's revocation is heard by the others within a look, and cuts what is open there", async () => {
  const [one, other] = [await proxyOver(storage("a")), await proxyOver(storage("a"))];
  const caller = new Caller(other.url, signer);
  const vault = await caller.bearer(`${model.url}/mcp`, "a-bearer-token");
  const listening = await request(`${other.url}/mcp`, {
    headers: { authorization: `Bearer ${await caller.grant([vault], "sesn_a")}`, "x-manyhands-target": `${model.url}/mcp` },
  });
  const speaking = await request(`${other.url}/model/v1/messages`, {
    method: "POST",
    headers: { authorization: await authorization("sesn_a", "model") },
    body: "{}",
  });
  expect([listening.statusCode, speaking.statusCode, await speaks(other, "sesn_a")]).toEqual([200, 200, 200]);
  const cut = Promise.all([listening.body, speaking.body].map((body) => once(body.resume(), "error")));
  const upstream = Promise.all(open.splice(0).map((answer) => once(answer, "close")));

  expect(await revoke(one, "sesn_a")).toBe(200);
  expect(await speaks(one, "sesn_a")).toBe(401);
  await Promise.all([cut, upstream]);
  expect([await speaks(other, "sesn_a"), await speaks(other, "sesn_b")]).toEqual([401, 200]);
});

test("a hand's name comes whole through a record's", async () => {
  const [one, other] = [await proxyOver(storage("b")), await proxyOver(storage("b"))];
  expect(await revoke(one, "hand:a-b_c--d")).toBe(200);
  await until(async () => (await speaks(other, "hand:a-b_c--d")) === 401);
  expect([await speaks(other, "hand:a-b-c--d"), await speaks(other, "hand:adb_cddd")]).toEqual([200, 200]);
});

test("a restart forgets no revocation, with files as with a server", async () => {
  const started = await startProxy(signer, model.url);
  expect(await revoke(started, "sesn_a")).toBe(200);
  const files = await started.again();
  opened.push(files);
  expect([await speaks(files, "sesn_a"), await speaks(files, "sesn_b")]).toEqual([401, 200]);

  const first = await startProxy(signer, model.url, { store: storage("c") });
  expect(await revoke(first, "sesn_a")).toBe(200);
  await first.close();
  expect(await speaks(await proxyOver(storage("c")), "sesn_a")).toBe(401);
});

test("what can't be stored counts here at once, is answered as that, and is stored as soon as it can be", async () => {
  const [one, other] = [await proxyOver(storage("d")), await proxyOver(storage("d"))];
  await behave({ sealed: true });
  expect(await revoke(one, "sesn_a")).toBe(503);
  expect([await speaks(one, "sesn_a"), await speaks(other, "sesn_a")]).toEqual([401, 200]);
  // Who starts now takes requests all the same.
  const late = await proxyOver(storage("d"));
  expect(await speaks(late, "sesn_a")).toBe(200);
  const said = (proxy: TestProxy) => proxy.log.filter((line) => /"revocations\.(un)?read"/.test(line)).length;
  await until(() => [one, other, late].every((proxy) => said(proxy) === 1));
  await behave({});
  await until(async () => (await speaks(other, "sesn_a")) === 401 && (await speaks(late, "sesn_a")) === 401);
  expect([one, other, late].map(said)).toEqual([2, 2, 2]);
});

test("a record that passes goes a minute after its end, and none before", async () => {
  let now = 1_000_000_000_000;
  const store = ownVault();
  opened.push(store);
  const records = new Passing(store, "revocation", () => now);
  await store.put(records.keyOf(now + 1_500, "sesn_a"), {}, 0);
  await store.put(records.keyOf(now + 5_000, "sesn_b"), {}, 0);
  await store.put({ workspace: "manyhands", kind: "revocation", id: "something_else" }, {}, 0);
  const names = async () => (await records.list()).map(({ name, endsAtMs }) => [name, endsAtMs - 1_000_000_000_000]);
  const ids = async () => (await store.ids("manyhands", "revocation")).length;
  expect(await names()).toEqual([
    ["sesn_a", 2_000],
    ["sesn_b", 5_000],
  ]);
  now += 2_000;
  expect([await names(), await ids()]).toEqual([[["sesn_b", 5_000]], 3]);
  now += 60_000;
  expect([await names(), await ids()]).toEqual([[], 2]);
  now += 60_000;
  expect([await names(), await ids()]).toEqual([[], 1]);
});
