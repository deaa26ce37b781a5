// Servers that say back what they were sent, or send it on: what comes through the MCP route holds no credential (C-34).

import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { proves } from "../support/proves.ts";
import { Caller } from "./mcp-kit.ts";
import { Signer, startProxy, startUpstream, type TestProxy } from "./proxy.ts";

const TOKEN = "canary-bearer/0123456789+abcdef_ABCDEF==";
const LENGTH = "x".repeat(7);
type Handle = Parameters<typeof startUpstream>[0];

let signer: Signer;
let proxy: TestProxy;
let caller: Caller;
const cleanups: (() => unknown)[] = [];

beforeAll(async () => {
  signer = new Signer();
  await signer.rotate("k1");
  proxy = await startProxy(signer, "http://127.0.0.1:9", { internalHosts: ["127.0.0.1"] });
  caller = new Caller(proxy.url, signer);
  cleanups.push(
    () => proxy.close(),
    () => signer.remove(),
  );
});
afterAll(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function through(handle: Handle) {
  const upstream = await startUpstream(handle);
  cleanups.push(() => upstream.close());
  const url = `${upstream.url}/mcp`;
  const vault = await caller.bearer(url, TOKEN);
  return await caller.send({ target: url, vaults: [vault] });
}

const base64 = (text: string) => Buffer.from(text).toString("base64");
const hex = Buffer.from(TOKEN).toString("hex");
/** Every form in which a server may give the token back. */
const FORMS: Readonly<Record<string, string>> = {
  plain: TOKEN,
  bearer: `Bearer ${TOKEN}`,
  "base64, at each alignment": [0, 1, 2].map((n) => base64(LENGTH.slice(0, n) + TOKEN)).join(" "),
  "base64url, at each alignment": [0, 1, 2].map((n) => Buffer.from(LENGTH.slice(0, n) + TOKEN).toString("base64url")).join(" "),
  "as basic authorization": `Basic ${base64(`user:${TOKEN}`)}`,
  "url-encoded": encodeURIComponent(TOKEN),
  "in lower-case url-encoding": encodeURIComponent(TOKEN).replace(/%../g, (pair) => pair.toLowerCase()),
  "JSON-escaped": TOKEN.replaceAll("/", "\\/"),
  "JSON-escaped twice": JSON.stringify(TOKEN.replaceAll("/", "\\/")),
  "in unicode escapes": [...TOKEN].map((letter) => `\\u00${letter.charCodeAt(0).toString(16)}`).join(""),
  hex: `${hex} ${hex.toUpperCase()}`,
};
/** What would be left of the token if a form went through. */
const TRACES = [TOKEN, encodeURIComponent(TOKEN), hex, hex.toUpperCase(), ...[0, 1, 2].map((n) => base64(LENGTH.slice(0, n) + TOKEN).slice(4, 40))];

function expectClean(text: string): void {
  for (const trace of TRACES) expect(text).not.toContain(trace);
  expect(text).toContain("********");
}

describe("an answer that holds the credential", () => {
  for (const [name, text] of Object.entries(FORMS))
    test(`${name}: is masked, in one piece and byte by byte, and keeps its length`, async () => {
      const whole = await through((_req, res) => res.end(text));
      expectClean(whole.text);
      expect(whole.text).toHaveLength(text.length);
      const pieces = await through(async (_req, res) => {
        res.writeHead(200, { "content-type": "text/event-stream" });
        for (const letter of text) await new Promise((done) => res.write(letter, done));
        res.end();
      });
      expect(pieces.text).toBe(whole.text);
    });

  for (const [encoding, pack] of [
    ["gzip", gzipSync],
    ["deflate", deflateSync],
    ["br", brotliCompressSync],
  ] as const)
    test(`packed with ${encoding}, which nobody asked for, is unpacked and masked`, async () => {
      const got = await through((_req, res) => {
        const bytes = pack(`{"echo":"${TOKEN}"}`);
        res.writeHead(200, { "content-encoding": encoding, "content-length": bytes.length });
        res.write(bytes.subarray(0, 5), () => res.end(bytes.subarray(5)));
      });
      expectClean(got.text);
      expect(got.text).toContain('{"echo":"***');
      expect([got.headers["content-encoding"], got.headers["content-length"]]).toEqual([undefined, undefined]);
    });

  test("packed in a way that nothing here opens is refused", async () => {
    const got = await through((_req, res) => res.writeHead(200, { "content-encoding": "gzip, gzip" }).end(gzipSync(gzipSync(TOKEN))));
    expect([got.status, got.refusal]).toEqual([502, "server_encodes"]);
  });

  test("in a header that may pass is masked there, and in an error's body too", async () => {
    const got = await through((req, res) => {
      res.writeHead(403, { "mcp-session-id": `id-${TOKEN}`, "www-authenticate": `Bearer error="${TOKEN}"`, "x-echo": TOKEN });
      res.end(JSON.stringify(req.headers));
    });
    expect(got.status).toBe(403);
    expectClean(JSON.stringify(got.headers) + got.text);
    expect([got.headers["www-authenticate"], got.headers["x-echo"]]).toEqual([undefined, undefined]);
  });
});

describe("a server that sends on", () => {
  for (const status of [301, 302, 303, 307, 308])
    test(`a redirect (${status}) to another origin, or another port of this one, is not followed`, async () => {
      const heard: string[] = [];
      const trap = await startUpstream((req, res) => {
        heard.push(String(req.headers.authorization));
        res.end();
      });
      cleanups.push(() => trap.close());
      const got = await through((_req, res) => res.writeHead(status, { location: `${trap.url}/mcp` }).end(TOKEN));
      expect([got.status, got.refusal, got.headers.location, heard]).toEqual([502, "server_redirects", undefined, []]);
      expect(got.text).not.toContain(TOKEN);
    });
});

describe("a caller that would steer the credential elsewhere", () => {
  proves(
    "credential:own-server",
    "by a forged host, an absolute address, userinfo, a trailing dot, other spellings of an address: no listener hears anything",
    async () => {
      const heard: string[] = [];
      const listener = await startUpstream((req, res) => {
        heard.push(`${req.method} ${req.url} ${req.headers.host} ${req.headers.authorization}`);
        res.end("{}");
      });
      cleanups.push(() => listener.close());
      const { port, host } = new URL(listener.url);
      const vault = await caller.bearer("http://127.0.0.1:9/mcp", TOKEN);
      const bound = "http://127.0.0.1:9/mcp";
      const targets = [
        `http://127.0.0.1:9@${host}/mcp`,
        `http://127.0.0.1.:${port}/mcp`,
        `http://2130706433:${port}/mcp`,
        `http://0x7f.1:${port}/mcp`,
        `http://[::ffff:127.0.0.1]:${port}/mcp`,
        `http://localhost:${port}/mcp`,
        `http://127.0.0.1:9/../../${host}/mcp`,
        `http://127.0.0.1:9/mcp#@${host}`,
        `http://127.0.0.1:9\\@${host}/mcp`,
        `//${host}/mcp`,
      ];
      for (const target of targets) {
        const one = await caller.send({ target, vaults: [vault] });
        const other = await caller.send({ target, server: bound, vaults: [vault] });
        expect([target, one.status >= 400, other.status >= 400]).toEqual([target, true, true]);
      }
      // Its own door is not for sale either: the host that is asked is the target's.
      await caller.send({ target: bound, vaults: [vault], headers: { host } });
      for (const name of ["x-forwarded-host", "forwarded", "x-original-url"])
        await caller.send({ target: bound, vaults: [vault], headers: { [name]: host } });
      expect(heard).toEqual([]);
      for (const line of proxy.log) expect(line).not.toContain(TOKEN);
    },
  );

  test("a header with a line break in it is no header", async () => {
    const vault = await caller.bearer("http://127.0.0.1:9/mcp2", TOKEN);
    const target = "http://127.0.0.1:9/mcp2\r\nx-evil: 1";
    await expect(caller.send({ target, vaults: [vault] })).rejects.toThrow("invalid x-manyhands-target header");
  });

  test("an internal address, or plain HTTP, is not spoken to unless its host was allowed", async () => {
    const strict = await startProxy(signer, "http://127.0.0.1:9", { internalHosts: ["bound.example"] });
    cleanups.push(() => strict.close());
    const other = new Caller(strict.url, signer);
    const vault = await other.vault();
    await other.credential(vault, { type: "static_bearer", mcp_server_url: "https://127.0.0.1:9/mcp", token: TOKEN });
    await other.credential(vault, { type: "static_bearer", mcp_server_url: "https://169.254.169.254/latest", token: TOKEN });
    for (const target of ["https://127.0.0.1:9/mcp", "https://169.254.169.254/latest"])
      expect((await other.send({ target, vaults: [vault] })).refusal).toBe("server_refused");
    const plain = { type: "static_bearer", mcp_server_url: "http://plain.example/mcp", token: TOKEN };
    await expect(other.credential(vault, plain)).rejects.toThrow("must begin with https://");
  });
});

test("two users at one server: of 1,000 calls, 32 at a time, each carries its own user's token", { timeout: 60_000 }, async () => {
  const wrong: string[] = [];
  const seen = new Map<string, number>();
  const upstream = await startUpstream(async (req, res) => {
    let body = "";
    for await (const piece of req) body += String(piece);
    const token = String(req.headers.authorization);
    seen.set(token, (seen.get(token) ?? 0) + 1);
    if (token !== `Bearer token-of-${body}`) wrong.push(`${token} for ${body}`);
    res.end(body);
  });
  cleanups.push(() => upstream.close());
  const target = `${upstream.url}/mcp`;
  const users = await Promise.all(
    ["alice", "bob"].map(async (name) => ({ name, grant: await caller.grant([await caller.bearer(target, `token-of-${name}`)], `sesn_${name}`) })),
  );
  const stranger = await caller.grant([await caller.vault()], "sesn_stranger");
  let next = 0;
  const lane = async () => {
    for (let n = next++; n < 1_000; n = next++) {
      const user = users[n % 2];
      if (user === undefined) throw new Error("no user");
      const got = await caller.send({ target, grant: user.grant, body: user.name });
      if (got.text !== user.name) wrong.push(`${user.name} got ${got.status} ${got.text}`);
      if (n % 50 === 0) expect((await caller.send({ target, grant: stranger, body: "x" })).refusal).toBe("no_credential");
    }
  };
  await Promise.all(Array.from({ length: 32 }, lane));
  expect(wrong).toEqual([]);
  expect(Object.fromEntries(seen)).toEqual({ "Bearer token-of-alice": 500, "Bearer token-of-bob": 500 });
});
