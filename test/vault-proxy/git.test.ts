// The git route: what passes on a session's line, what is refused, and that nothing of what is refused reaches the repository's host.

import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { Repositories } from "../../vault-proxy/git/repositories.ts";
import { type GitServer, startGitServer } from "../support/git-server.ts";
import { ask, type Host, startHost, Way } from "./egress-kit.ts";
import { Signer, startProxy, type TestProxy } from "./proxy.ts";

const TOKEN = "ghp_canary/0123456789+abcdefghijklmnop";
const NOTHING = { type: "limited", hosts: [], package_managers: false };
const LS_REFS = "0014command=ls-refs\n0000";
const signer = new Signer();
let proxy: TestProxy;
let server: GitServer;
let canary: Host;
let path: string;

beforeAll(async () => {
  await signer.rotate("one");
  server = await startGitServer();
  await server.add("acme/private", { "README.md": "words\n" }, TOKEN);
  await server.add("acme/public", { "README.md": "words\n" }, null);
  await server.add("acme/other", { "README.md": "words\n" }, TOKEN);
  canary = await startHost((_req, res) => void res.end("canary"));
  proxy = await startProxy(signer, "http://127.0.0.1:9", { gitOrigins: [server.url] });
  path = `/git/${new URL(server.url).host}`;
  const repositories = new Repositories(proxy.parts.vaults);
  await repositories.put("default", "sesn_1", [
    { url: `${server.url}/acme/private`, token: TOKEN },
    { url: `${server.url}/acme/public`, token: null },
    { url: `${server.url}/acme/gone`, token: TOKEN },
  ]);
  await repositories.put("default", "sesn_2", [{ url: `${server.url}/acme/other`, token: TOKEN }]);
  await repositories.put("default", "sesn_wrong", [{ url: `${server.url}/acme/private`, token: "ghp_wrong_and_long" }]);
  await repositories.put("default", "sesn_none", [{ url: `${server.url}/acme/private`, token: null }]);
  // Not a host that the operator named, and internal.
  await repositories.put("default", "sesn_inside", [{ url: `https://127.0.0.1:${canary.port}/a/b`, token: TOKEN }]);
});
afterAll(async () => {
  await proxy.close();
  await server.close();
  await canary.close();
  signer.remove();
});
beforeEach(() => {
  server.came.length = 0;
  server.before = () => false;
});

const way = (session = "sesn_1", claims: object = {}) => new Way(proxy, signer, { network: NOTHING, session, claims: { use: ["git"], ...claims } });
const refs = (repository: string, service = "git-upload-pack") => `${path}/${repository}/info/refs?service=${service}`;
const get = async (target: string, through = way(), headers: Record<string, string> = {}) => ask(await through.open(), { path: target, headers });
const post = async (target: string, body: string, headers: Record<string, string> = {}, through = way()) =>
  ask(await through.open(), { method: "POST", path: target, body, headers: { "content-length": String(Buffer.byteLength(body)), ...headers } });
const auditLines = async (): Promise<string> => {
  const folder = join(proxy.parts.folder, "audit");
  return (await Promise.all((await readdir(folder)).map((name) => readFile(join(folder, name), "utf8")))).join("");
};

test("the advertisement and a request of protocol 2 pass, the token is added there, and what the caller brought is not", async () => {
  const forged = { authorization: "Basic Zm9yZ2Vk", cookie: "a=1", "git-protocol": "version=2", "user-agent": "git/2.39.5", "x-own": "1" };
  const advertised = await get(refs("acme/private"), way(), forged);
  expect([advertised.status, advertised.headers["content-type"]]).toEqual([200, "application/x-git-upload-pack-advertisement"]);
  expect(advertised.body).toContain("version 2");
  const listed = await post(`${path}/acme/private/git-upload-pack`, LS_REFS, forged);
  expect([listed.status, listed.headers["content-type"]]).toEqual([200, "application/x-git-upload-pack-result"]);
  expect(listed.body).toContain("refs/heads/main");
  const basic = `Basic ${Buffer.from(`x-access-token:${TOKEN}`).toString("base64")}`;
  expect(server.came).toEqual([
    { method: "GET", url: "/acme/private/info/refs?service=git-upload-pack", authorization: basic, protocol: "version=2" },
    { method: "POST", url: "/acme/private/git-upload-pack", authorization: basic, protocol: "version=2" },
  ]);
  const lines = (await auditLines()).split("\n").filter((line) => line.includes('"use":"git"'));
  expect(lines).toHaveLength(2);
  expect(JSON.parse(lines[1] ?? "")).toMatchObject({
    use: "git",
    session: "sesn_1",
    credential: "repository_token",
    origin: server.url,
    path: "/acme/private/git-upload-pack",
  });
  for (const text of [await auditLines(), proxy.log.join("\n")]) expect(text).not.toContain(TOKEN);
});

test("a public repository is read without a token", async () => {
  expect((await get(refs("acme/public"))).status).toBe(200);
  expect(server.came.map(({ authorization }) => authorization)).toEqual([""]);
});

test("what is not exactly asked of a repository of the session is refused, and nothing reaches its host", async () => {
  const repository = `${path}/acme/private`;
  const targets = [
    refs("acme/other"),
    refs("acme/private/../other"),
    refs("acme/private/%2e%2e/other"),
    refs("acme%2fprivate"),
    refs("acme/private/"),
    refs("acme//private"),
    refs("acme/./private"),
    refs("ACME/private"),
    refs("acme/private.git"),
    `${repository}/info/refs`,
    `${repository}/info/refs?service=git-upload-archive`,
    `${repository}/info/refs?service=git-upload-pack&x=1`,
    `${repository}/info/refs?service=git%2dupload-pack`,
    `${repository}/HEAD`,
    `${repository}/objects/info/packs`,
    `${repository}/info/lfs/objects/batch`,
    `${repository}/git-upload-pack`,
    repository,
    "/git/",
    `/git/x@${new URL(server.url).host}/acme/private/info/refs?service=git-upload-pack`,
    `/git/127.0.0.1:${canary.port}/acme/private/info/refs?service=git-upload-pack`,
    `/git/2130706433:${new URL(server.url).port}/acme/private/info/refs?service=git-upload-pack`,
    `/git/localhost:${new URL(server.url).port}/acme/private/info/refs?service=git-upload-pack`,
    `${refs("acme/private")}#x`,
  ];
  for (const target of targets) expect([target, (await get(target)).status]).toEqual([target, 404]);
  for (const target of [refs("acme/private"), `${repository}/git-upload-archive`, `${path}/acme/other/git-receive-pack`])
    expect([target, (await post(target, "0000")).status]).toEqual([target, 404]);
  const absolute = `http://${new URL(server.url).host}/acme/private/info/refs?service=git-upload-pack`;
  expect((await get(absolute)).status).toBe(403);
  expect(server.came).toEqual([]);
  expect(canary.seen).toEqual([]);
});

test("another session's grant, one for another use, an ended and a revoked one open nothing", async () => {
  expect((await get(refs("acme/private"), way("sesn_2"))).status).toBe(404);
  expect((await get(refs("acme/private"), way("sesn_1", { workspace: "elsewhere" }))).status).toBe(404);
  expect((await get(refs("acme/private"), way("sesn_1", { use: ["egress"] }))).status).toBe(503);
  expect(await way("sesn_1", { use: ["model"] }).line()).toBe(401);
  expect(await way("sesn_1", { exp: Math.floor(Date.now() / 1000) - 60 }).line()).toBe(401);
  const revoked = way("sesn_2");
  const line = await revoked.open();
  const over = new Promise((resolve) => line.resume().once("close", resolve).once("end", resolve));
  const authorization = `Bearer ${await signer.sign({ sub: "sesn_2", use: ["revoke"], workspace: "default" })}`;
  const answer = await fetch(`${proxy.url}/revoke`, { method: "POST", headers: { authorization }, body: JSON.stringify({ session: "sesn_2" }) });
  expect(answer.status).toBe(200);
  await over;
  expect(await revoked.line()).toBe(401);
  expect(await new Repositories(proxy.parts.vaults).of("default", "sesn_2")).toEqual([]);
  expect(server.came).toEqual([]);
});

test("a grant for git alone opens nothing else, whatever policy it comes with", async () => {
  const network = { type: "unrestricted" };
  const open = new Way(proxy, signer, { network, claims: { use: ["git"] } });
  expect((await ask(await open.open(), { path: `http://127.0.0.1:${canary.port}/` })).status).toBe(403);
  expect(await open.connect(`127.0.0.1:${canary.port}`)).toMatch(/^HTTP\/1\.1 403/);
  expect(await open.environment()).toEqual({ variables: [], certificate: null });
  expect(canary.seen).toEqual([]);
});

test.each([
  ["a wrong token", "sesn_wrong", "acme/private", "repository_authentication_error"],
  ["no token", "sesn_none", "acme/private", "repository_authentication_error"],
  ["no such repository", "sesn_1", "acme/gone", "repository_not_found_error"],
])("%s is told in words that git shows, without asking anybody for a name", async (_, session, repository, error) => {
  const answer = await get(refs(repository), way(session));
  expect([answer.status >= 403 && answer.status < 500, answer.headers["content-type"], answer.headers["www-authenticate"]]).toEqual([
    true,
    "text/plain",
    undefined,
  ]);
  expect(answer.body).toContain(`[${error}]`);
});

test("an internal address that the operator did not name is not connected to", async () => {
  const answer = await get(`/git/127.0.0.1:${canary.port}/a/b/info/refs?service=git-upload-pack`, way("sesn_inside"));
  expect([answer.status, answer.body]).toEqual([502, expect.stringContaining("address that is not spoken to")]);
  expect(canary.seen).toEqual([]);
});

test("a rename within the host is followed, also by what is asked then; any other redirect is not", async () => {
  const moveTo = (location: string) => {
    server.before = (req, res) => {
      if (!req.url?.startsWith("/acme/private/")) return false;
      res.writeHead(301, { location }).end();
      return true;
    };
  };
  moveTo(`${server.url}/acme/other/info/refs?service=git-upload-pack`);
  expect((await get(refs("acme/private"))).status).toBe(200);
  expect((await post(`${path}/acme/private/git-upload-pack`, LS_REFS, { "git-protocol": "version=2" })).status).toBe(200);
  expect(server.came.map(({ url }) => url)).toEqual([
    "/acme/private/info/refs?service=git-upload-pack",
    "/acme/other/info/refs?service=git-upload-pack",
    "/acme/other/git-upload-pack",
  ]);
  const elsewhere = [
    `http://127.0.0.1:${canary.port}/acme/other/info/refs?service=git-upload-pack`,
    "/login",
    "//x.example/a/info/refs?service=git-upload-pack",
  ];
  for (const location of elsewhere) {
    server.before = (_req, res) => {
      res.writeHead(302, { location }).end();
      return true;
    };
    const answer = await get(refs("acme/private"));
    expect([location, answer.status, answer.headers.location]).toEqual([location, 502, undefined]);
  }
  expect(canary.seen).toEqual([]);
});

test("what is no git server's answer does not pass, and a token that a host says back is masked, in a pack's bytes too", async () => {
  const say = (status: number, type: string, body: string) => {
    server.before = (_req, res) => {
      res.writeHead(status, { "content-type": type, "set-cookie": "a=1", "x-token": TOKEN });
      for (const piece of body.match(/.{1,7}/gs) ?? []) res.write(piece);
      res.end();
      return true;
    };
  };
  const basic = Buffer.from(`x-access-token:${TOKEN}`).toString("base64");
  say(200, "text/html", `<b>${TOKEN}</b>`);
  expect((await get(refs("acme/private"))).status).toBe(502);
  say(500, "text/plain", `you sent ${TOKEN} as ${basic}`);
  const failed = await get(refs("acme/private"));
  expect([failed.status, failed.body]).toEqual([502, expect.stringContaining("status 500: you sent ****")]);
  say(200, "application/x-git-upload-pack-advertisement", `refs ${TOKEN}\0${basic}!`);
  const told = await get(refs("acme/private"));
  expect(told.body).toMatch(/^refs \*+\0/);
  say(200, "application/x-git-upload-pack-result", `\u0001PACK${TOKEN}`);
  const packed = await post(`${path}/acme/private/git-upload-pack`, "0000");
  expect(packed.bytes.length).toBe(`\u0001PACK${TOKEN}`.length);
  for (const { body, headers } of [failed, told, packed]) {
    for (const form of [TOKEN, basic.slice(24, -2)]) expect(body.includes(form)).toBe(false);
    expect([headers["x-token"], headers["set-cookie"]]).toEqual([undefined, undefined]);
  }
});

test("a body streams: what was sent is at the host before the rest is, and a caller that leaves ends it there", async () => {
  const heard: string[] = [];
  let isOver: () => void = () => {};
  const over = new Promise<void>((resolve) => {
    isOver = resolve;
  });
  server.before = (req) => {
    req.on("data", (piece) => heard.push(String(piece)));
    req.once("close", isOver);
    return true;
  };
  const line = await way().open();
  line.write(`POST ${path}/acme/private/git-receive-pack HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n`);
  await expect.poll(() => heard.join("")).toBe("first");
  line.destroy();
  await over;
});

test("a token that was changed counts from the next request on", async () => {
  const repositories = new Repositories(proxy.parts.vaults);
  const digest = createHash("sha256").update("x").digest("hex");
  server.setToken("acme/private", digest);
  expect((await get(refs("acme/private"))).status).toBe(403);
  await repositories.put("default", "sesn_1", [{ url: `${server.url}/acme/private`, token: digest }]);
  expect((await get(refs("acme/private"))).status).toBe(200);
  server.setToken("acme/private", TOKEN);
});
