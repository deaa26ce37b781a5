// A session's limit at several vault proxies over one storage: what it took at one counts at all of them.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pino from "pino";
import { request } from "undici";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { ServerVault } from "../../vault-proxy/drivers/server/driver.ts";
import { fixedKey } from "../../vault-proxy/model-key.ts";
import { ownProvider, readModels } from "../../vault-proxy/models/providers.ts";
import { until } from "../support/until.ts";
import { ROOT_TOKEN, startVaultDouble } from "../support/vault-double/server.ts";
import { KEY, Signer, startProxy, startUpstream, type TestProxy } from "./proxy.ts";

const signer = new Signer();
const opened: { close(): Promise<void> }[] = [];
let double: Awaited<ReturnType<typeof startVaultDouble>>;
let model: Awaited<ReturnType<typeof startUpstream>>;
let folder = "";
let asked = 0;
/** The model begins its answers, and does not end them. */
let stalls = false;

beforeAll(async () => {
  await signer.rotate("k1");
  folder = await mkdtemp(join(tmpdir(), "manyhands-shared-spend-"));
  await writeFile(join(folder, "token"), ROOT_TOKEN);
  // A request costs two dollars.
  const prices = [{ models: ["*"], input: 2, output: 0, cache_read: 0, cache_write: 0 }];
  await writeFile(join(folder, "models.json"), JSON.stringify({ providers: [], prices, session_limit_usd: 5 }));
  double = await startVaultDouble();
  model = await startUpstream((req, res) => {
    req.resume();
    asked += 1;
    if (stalls) {
      const usage = { input_tokens: 1_000_000, output_tokens: 0 };
      const event = JSON.stringify({ type: "message_start", message: { usage } });
      return void res.writeHead(200, { "content-type": "text/event-stream" }).write(`event: message_start\ndata: ${event}\n\n`);
    }
    res.writeHead(200, { "content-type": "application/json" }).end('{"usage":{"input_tokens":1000000,"output_tokens":0}}');
  });
});
afterEach(async () => {
  await behave({});
  stalls = false;
  for (const each of opened.splice(0).reverse()) await each.close();
});
afterAll(async () => {
  await double.close();
  await model.close();
  signer.remove();
  await rm(folder, { recursive: true });
});

const behave = (behaviour: object) => fetch(`${double.url}/double`, { method: "POST", body: JSON.stringify(behaviour) });
function storage(prefix: string): ServerVault {
  const login = { type: "token" as const, file: join(folder, "token") };
  const store = new ServerVault({ url: double.url, namespace: null, mount: "secret", prefix, login }, pino({ level: "silent" }));
  opened.push(store);
  return store;
}
async function proxyOver(store: ServerVault): Promise<TestProxy> {
  const models = readModels(join(folder, "models.json"), ownProvider(new URL(model.url), fixedKey(KEY)), () => {});
  const proxy = await startProxy(signer, model.url, { store, models });
  opened.push(proxy);
  return proxy;
}
const send = async (proxy: TestProxy, path: string, use: string, body: object) =>
  request(`${proxy.url}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${await signer.sign({ sub: "sesn_a", use: [use], workspace: "default" })}` },
    body: JSON.stringify(body),
  });
async function post(proxy: TestProxy, path: string, use: string, body: object): Promise<string> {
  const answer = await send(proxy, path, use, body);
  await answer.body.dump();
  return `${answer.statusCode} ${answer.headers["x-manyhands-refusal"] ?? ""}`.trim();
}
const WORDS = { model: "m", max_tokens: 5, messages: [] };
const speak = (proxy: TestProxy) => post(proxy, "/model/v1/messages", "model", WORDS);
const told = (proxy: TestProxy, message: string) => proxy.log.filter((line) => line.includes(message)).length;
/** Speaks, and waits until it is counted. */
async function spend(proxy: TestProxy): Promise<string> {
  const before = told(proxy, '"model.used"');
  const said = await speak(proxy);
  await until(() => told(proxy, '"model.used"') > before);
  return said;
}

test("what was taken at one proxy counts at another, and ends with the session", async () => {
  const store = storage("a");
  const [one, other] = [await proxyOver(store), await proxyOver(store)];
  expect([await spend(one), await spend(other), await spend(one)]).toEqual(["200", "200", "200"]);
  const before = asked;
  expect([await speak(one), await speak(other), asked]).toEqual(["403 spent", "403 spent", before]);
  expect(await store.ids("manyhands", "spend")).toEqual(["sesn_a"]);
  expect(await post(one, "/revoke", "revoke", { session: "sesn_a" })).toBe("200");
  expect(await store.ids("manyhands", "spend")).toEqual([]);
});

test("an answer that a revocation cuts at another proxy leaves no record of its session behind", async () => {
  const store = storage("d");
  const [one, other] = [await proxyOver(store), await proxyOver(store)];
  expect(await spend(other)).toBe("200");
  stalls = true;
  const pieces = (await send(other, "/model/v1/messages", "model", WORDS)).body[Symbol.asyncIterator]();
  expect(String((await pieces.next()).value)).toContain("message_start");
  expect(await post(one, "/revoke", "revoke", { session: "sesn_a" })).toBe("200");
  await expect(pieces.next()).rejects.toThrow();
  await until(() => told(other, '"model.used"') === 2);
  expect(await store.ids("manyhands", "spend")).toEqual([]);
});

test("answers that end at once at two proxies are all counted", async () => {
  const store = storage("b");
  const [one, other] = [await proxyOver(store), await proxyOver(store)];
  await Promise.all([one, other, one, other].map((proxy) => speak(proxy)));
  await until(() => told(one, '"model.used"') + told(other, '"model.used"') === 4);
  const found = await store.get({ workspace: "manyhands", kind: "spend", id: "sesn_a" });
  expect(found?.body).toEqual({ spent: { [one.parts.spend.id]: 4, [other.parts.spend.id]: 4 } });
});

test("a count that could not be stored is put right by the next; while the storage is away nothing is asked", async () => {
  const store = storage("c");
  const [one, other] = [await proxyOver(store), await proxyOver(store)];
  const before = asked;
  await behave({ sealed: true });
  expect([await speak(one), asked]).toEqual(["503 no_vault_store", before]);
  await behave({});
  // Counted on its own disk only, as if the storage had gone away meanwhile.
  one.parts.spend.count("sesn_a", { input: 1_000_000, output: 0, cacheRead: 0, cacheWrite: 0 }, { input: 2, output: 0, cacheRead: 0, cacheWrite: 0 });
  expect([await spend(one), await spend(other), await speak(other)]).toEqual(["200", "200", "403 spent"]);
});
