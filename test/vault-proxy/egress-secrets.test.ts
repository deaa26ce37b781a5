// Credentials on the way out: put in at their own hosts alone, and never to be seen by who sent the placeholder.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ask, type Host, outsideAuthority, putVault, startHost, Way } from "./egress-kit.ts";
import { Signer, startProxy, type TestProxy } from "./proxy.ts";

const SECRET = 'canary-7f"3a/9+\\b5c=é';
const OTHER = "another-canary-4410";
const signer = new Signer();
const outside = outsideAuthority("api.test", "other.test");
let proxy: TestProxy;
let api: Host;
let other: Host;
let plain: Host;
let vault: string;
let away: string[] = [];
/** What came to the credential's own host, and to the others. */
const came: { host: string; method: string; url: string; headers: string[]; body: string }[] = [];

beforeAll(async () => {
  await signer.rotate("one");
  const handle =
    (host: string) =>
    (req: import("node:http").IncomingMessage, res: import("node:http").ServerResponse): void => {
      const pieces: Buffer[] = [];
      req.on("data", (piece) => pieces.push(piece));
      req.on("end", () => {
        const seen = { host, method: req.method ?? "", url: req.url ?? "", headers: req.rawHeaders, body: Buffer.concat(pieces).toString("utf8") };
        came.push(seen);
        answer(
          req,
          res,
          JSON.stringify({ ...seen, plain: SECRET, percent: encodeURIComponent(SECRET), base64: Buffer.from(`u:${SECRET}`).toString("base64") }),
        );
      });
    };
  const answer = (req: import("node:http").IncomingMessage, res: import("node:http").ServerResponse, text: string): void => {
    if (req.url === "/gzip") return void res.writeHead(200, { "content-encoding": "gzip", "x-echo": encodeURIComponent(SECRET) }).end(gzipSync(text));
    if (req.url === "/odd") return void res.writeHead(200, { "content-encoding": "zstd" }).end(text);
    if (req.url === "/moved") return void res.writeHead(302, { location: `https://other.test:${other.port}/?t=${encodeURIComponent(SECRET)}` }).end();
    if (req.url !== "/pieces") return void res.end(text);
    for (const each of Buffer.from(text)) res.write(Buffer.of(each));
    res.end();
  };
  const tls = (name: string) => outside.of[name] ?? { key: "", cert: "" };
  api = await startHost(handle("api.test"), tls("api.test"));
  other = await startHost(handle("other.test"), tls("other.test"));
  plain = await startHost(handle("plain"));
  away = [`api.test:${api.port}`, `other.test:${other.port}`, `api.test:${plain.port}`];
  proxy = await startProxy(signer, "http://127.0.0.1:9", {
    egress: { hosts: away.slice(0, 2), authorities: [outside.certificate], lookup: async () => [{ address: "127.0.0.1", family: 4 }] },
  });
  vault = await putVault(proxy.parts.vaults, [
    { name: "API_TOKEN", value: SECRET, hosts: ["api.test"] },
    { name: "IN_HEADERS", value: OTHER, hosts: ["*.test"], body: false },
  ]);
});
afterAll(async () => {
  await proxy.close();
  await Promise.all([api, other, plain].map((host) => host.close()));
  signer.remove();
});

async function session(id: string, vaults = [vault]) {
  const way = new Way(proxy, signer, { session: id, vaults });
  const { variables, certificate } = await way.environment();
  const placeholder = (name: string): string => variables.find((each) => each.name === name)?.placeholder ?? "";
  const tls = (to = `api.test:${api.port}`) => way.tls(to, { ca: certificate ?? "" });
  return { way, placeholder, tls, certificate, variables };
}
const hostOf = { host: () => `api.test:${api.port}` };
const last = () => came.at(-1) ?? { headers: [] as string[], body: "", url: "" };
const headerOf = (name: string): string | undefined => last().headers[last().headers.findIndex((each) => each.toLowerCase() === name) + 1];
const utf8 = (value = ""): string => Buffer.from(value, "latin1").toString("utf8");

test("a placeholder becomes the credential in a header, in basic credentials, and in bodies as their kind writes it", async () => {
  const { placeholder, tls } = await session("sesn_1");
  const token = placeholder("API_TOKEN");
  expect(token).toMatch(/^mhenv_[0-9a-f]{32}$/);
  const send = async (headers: Record<string, string>, body?: string | string[]) =>
    ask(await tls(), { method: "POST", headers: { host: hostOf.host(), ...headers }, ...(body === undefined ? {} : { body }) });

  await send({ authorization: `Bearer ${token}`, "x-two": `${token},${token}` });
  expect(utf8(headerOf("authorization"))).toBe(`Bearer ${SECRET}`);
  expect(utf8(headerOf("x-two"))).toBe(`${SECRET},${SECRET}`);
  await send({ authorization: `Basic ${Buffer.from(`me:${token}`).toString("base64")}` });
  expect(Buffer.from(headerOf("authorization")?.slice(6) ?? "", "base64").toString("utf8")).toBe(`me:${SECRET}`);

  const json = JSON.stringify({ key: token });
  await send({ "content-type": "application/json", "content-length": String(json.length) }, json);
  expect(JSON.parse(last().body)).toEqual({ key: SECRET });
  await send({ "content-type": "application/x-www-form-urlencoded", "content-length": String(token.length + 2) }, `k=${token}`);
  expect(new URLSearchParams(last().body).get("k")).toBe(SECRET);
  await send({ "content-type": "text/plain", "transfer-encoding": "chunked" }, [
    `a${token.slice(0, 3)}`,
    token.slice(3, 20),
    `${token.slice(20)}z mhenv_`,
  ]);
  expect(last().body).toBe(`a${SECRET}z mhenv_`);
  expect(proxy.log.filter((line) => line.includes("canary"))).toEqual([]);
});

test("each use is in the audit, without the value", async () => {
  const { placeholder, tls } = await session("sesn_audit");
  await ask(await tls(), { headers: { host: hostOf.host(), authorization: placeholder("API_TOKEN") } });
  const text = await readFile(join(proxy.parts.folder, "audit", "audit-00000001.jsonl"), "utf8");
  const lines = text
    .split("\n")
    .filter((line) => line.includes("sesn_audit"))
    .map((line) => JSON.parse(line));
  expect(lines).toMatchObject([{ use: "egress", session: "sesn_audit", vault, origin: `https://api.test:${api.port}` }]);
  expect(text).not.toContain("canary");
});

describe("a placeholder stays one", () => {
  test("at another host, in an address, in a place that the credential does not name, and in another session", async () => {
    const one = await session("sesn_1");
    const two = await session("sesn_2");
    const [token, headerOnly] = [one.placeholder("API_TOKEN"), one.placeholder("IN_HEADERS")];
    expect(token).not.toBe(two.placeholder("API_TOKEN"));
    const body = `${token} ${headerOnly}`;
    const length = { "content-length": String(body.length) };

    await ask(await one.tls(`other.test:${other.port}`), {
      method: "POST",
      headers: { host: `other.test:${other.port}`, authorization: token, "x-other": headerOnly, ...length },
      body,
    });
    expect([headerOf("authorization"), headerOf("x-other"), last().body]).toEqual([token, OTHER, body]);
    await ask(await one.tls(), { path: `/${token}?t=${token}`, headers: { host: hostOf.host() } });
    expect(last().url).toBe(`/${token}?t=${token}`);
    await ask(await two.tls(), { method: "POST", headers: { host: hostOf.host(), authorization: token, ...length }, body });
    expect([headerOf("authorization"), last().body]).toEqual([token, body]);
  });

  test("without TLS, unless the operator listed the host", async () => {
    const { way, placeholder } = await session("sesn_1");
    const token = placeholder("API_TOKEN");
    const unlisted = await ask(await way.open(), { path: `http://api.test:${plain.port}/`, headers: { authorization: token } });
    expect(unlisted.status).toBe(403);
    const listed = await startProxy(signer, "http://127.0.0.1:9", {
      egress: { hosts: away, lookup: async () => [{ address: "127.0.0.1", family: 4 }] },
    });
    const own = await putVault(listed.parts.vaults, [{ name: "API_TOKEN", value: OTHER, hosts: ["api.test"] }]);
    const there = new Way(listed, signer, { vaults: [own] });
    const [variable] = (await there.environment()).variables;
    await ask(await there.open(), { path: `http://api.test:${plain.port}/`, headers: { authorization: variable?.placeholder ?? "" } });
    expect(headerOf("authorization")).toBe(OTHER);
    await listed.close();
  });

  test("once its credential is archived", async () => {
    const id = await putVault(proxy.parts.vaults, [{ name: "GONE", value: OTHER, hosts: ["api.test"] }]);
    const { placeholder, tls } = await session("sesn_gone", [id, vault]);
    const key = { workspace: "default", kind: "vault", id } as const;
    const found = await proxy.parts.vaults.get(key);
    await proxy.parts.vaults.put(key, { ...(found?.body as object), archivedAt: 2 }, found?.revision ?? 0);
    await ask(await tls(), { headers: { host: hostOf.host(), authorization: placeholder("GONE") } });
    expect(headerOf("authorization")).toBe(placeholder("GONE"));
  });
});

describe("what the host says back is masked", () => {
  test.each(["/", "/gzip", "/pieces", "/moved"])("%s", async (path) => {
    const { placeholder, tls } = await session("sesn_1");
    const answer = await ask(await tls(), {
      path,
      headers: { host: hostOf.host(), authorization: placeholder("API_TOKEN"), "accept-encoding": "gzip" },
    });
    const text = answer.body + JSON.stringify(answer.headers);
    for (const each of [SECRET, encodeURIComponent(SECRET), JSON.stringify(SECRET).slice(1, -1), "canary-7f"]) expect(text).not.toContain(each);
    expect(text).toContain("****");
    expect(headerOf("accept-encoding")).toBe("identity");
    expect(answer.headers["content-encoding"]).toBeUndefined();
  });

  test("what can't be looked through is not given on", async () => {
    const answer = await ask(await (await session("sesn_1")).tls(), { path: "/odd", headers: { host: hostOf.host() } });
    expect([answer.status, answer.headers["x-manyhands-egress"]]).toEqual([502, "encoded"]);
  });
});

describe("nothing but the host that was connected to is spoken to", () => {
  test.each([
    ["a forged Host", { headers: { host: "other.test" } }, 421],
    ["an address in absolute form", { path: "https://other.test/", headers: { host: "api.test" } }, 421],
    ["TRACE", { method: "TRACE", headers: {} }, 405],
    ["an upgrade", { headers: { connection: "upgrade", upgrade: "websocket" } }, 501],
  ] as const)("%s is refused", async (_, given, status) => {
    const { placeholder, tls } = await session("sesn_1");
    const before = came.length;
    const headers = { host: hostOf.host(), authorization: placeholder("API_TOKEN"), ...given.headers };
    expect((await ask(await tls(), { ...given, headers })).status).toBe(status);
    expect(came.length).toBe(before);
  });

  test("another name in the handshake is refused", async () => {
    const { way, certificate } = await session("sesn_1");
    await expect(way.tls(`api.test:${api.port}`, { servername: "other.test", ca: certificate ?? "" })).rejects.toThrow();
  });

  test("a host whose certificate nobody vouches for gets nothing", async () => {
    const strict = await startProxy(signer, "http://127.0.0.1:9", {
      egress: { hosts: away, lookup: async () => [{ address: "127.0.0.1", family: 4 }] },
    });
    const own = await putVault(strict.parts.vaults, [{ name: "API_TOKEN", value: SECRET, hosts: ["api.test"] }]);
    const way = new Way(strict, signer, { vaults: [own] });
    const { certificate, variables } = await way.environment();
    const before = came.length;
    const secure = await way.tls(`api.test:${api.port}`, { ca: certificate ?? "" });
    const answer = await ask(secure, { headers: { host: hostOf.host(), authorization: variables[0]?.placeholder ?? "" } });
    expect([answer.status, answer.headers["x-manyhands-egress"], came.length]).toEqual([502, "untrusted", before]);
    await strict.close();
  });
});

test("TLS to a host without a credential is the host's own, end to end", async () => {
  const id = await putVault(proxy.parts.vaults, [{ name: "API_TOKEN", value: SECRET, hosts: ["api.test"] }]);
  const { way, certificate } = await session("sesn_1", [id]);
  const secure = await way.tls(`other.test:${other.port}`, { ca: outside.certificate });
  expect((await ask(secure, { headers: { host: `other.test:${other.port}` } })).status).toBe(200);
  await expect(way.tls(`other.test:${other.port}`, { ca: certificate ?? "" })).rejects.toThrow();
});

test("the authority is the installation's: another start has the same, and its key is nowhere but in the sealed record", async () => {
  const { certificate } = await session("sesn_1");
  const record = await proxy.parts.vaults.get({ workspace: "manyhands", kind: "authority", id: "egress" });
  expect(record?.body).toMatchObject({ certificate });
  const sealed = await readFile(join(proxy.parts.folder, "authority", "manyhands", "egress"), "utf8");
  expect(sealed).not.toContain("PRIVATE");
});
