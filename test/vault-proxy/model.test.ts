// The model route (vault-proxy/model.ts) against the scripted model and against upstreams that misbehave.

import { createHash } from "node:crypto";
import { createServer } from "node:net";
import { Readable } from "node:stream";
import Anthropic from "@anthropic-ai/sdk";
import { request } from "undici";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { fixedKey } from "../../vault-proxy/model-key.ts";
import { type ScriptedModel, startModel } from "../support/model/server.ts";
import { KEY, Signer, startProxy, startUpstream, type TestProxy } from "./proxy.ts";

let signer: Signer;
const cleanups: (() => unknown)[] = [];
let model: ScriptedModel;
let proxy: TestProxy;

beforeEach(async () => {
  signer = new Signer();
  await signer.rotate("k1");
  model = await startModel({ key: KEY });
  proxy = await startProxy(signer, model.url);
  cleanups.push(
    () => proxy.close(),
    () => model.close(),
    () => signer.remove(),
  );
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

const body = (script: string, more = {}) => JSON.stringify({ model: "m", max_tokens: 50, messages: [{ role: "user", content: script }], ...more });
const headers = async (claims = {}, more = {}) => ({
  "content-type": "application/json",
  "anthropic-version": "2023-06-01",
  authorization: `Bearer ${await signer.sign(claims)}`,
  ...more,
});
const post = async (to: TestProxy, text: string, more: { headers?: Record<string, string>; path?: string } = {}) => {
  const answer = await request(`${to.url}${more.path ?? "/model/v1/messages"}`, {
    method: "POST",
    headers: more.headers ?? (await headers()),
    body: text,
  });
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() };
};
const behind = async (handle: Parameters<typeof startUpstream>[0], more = {}): Promise<TestProxy> => {
  const upstream = await startUpstream(handle);
  const odd = await startProxy(signer, upstream.url, more);
  cleanups.push(
    () => odd.close(),
    () => upstream.close(),
  );
  return odd;
};
const sdk = async (to: TestProxy) => new Anthropic({ apiKey: await signer.sign(), baseURL: `${to.url}/model`, maxRetries: 0 });

describe("what goes through", () => {
  test("the official SDK speaks through it with a grant for a key, whole and streamed, and counts tokens", async () => {
    const client = await sdk(proxy);
    const params = { model: "m", max_tokens: 50, messages: [{ role: "user" as const, content: "say: hello" }] };
    expect((await client.messages.create(params)).content).toEqual([{ type: "text", text: "hello" }]);
    expect((await client.messages.stream(params).finalMessage()).content).toEqual([{ type: "text", text: "hello" }]);
    expect((await client.messages.countTokens({ model: "m", messages: params.messages })).input_tokens).toBeGreaterThan(0);
    expect((await client.beta.messages.create(params)).content).toEqual([{ type: "text", text: "hello" }]);
  });

  test("only what is on the list reaches the model; the key does, the caller's own credentials do not", async () => {
    let seen: Record<string, unknown> = {};
    const odd = await behind((req, res) => {
      seen = { url: req.url, ...req.headers };
      res.setHeader("set-cookie", "a=b").setHeader("request-id", "req_1").setHeader("retry-after", "3").setHeader("server", "x").end("{}");
    });
    const sent = {
      "x-api-key": "callers-own-key",
      cookie: "a=b",
      "proxy-authorization": "Basic x",
      "x-forwarded-for": "1.2.3.4",
      forwarded: "for=1.2.3.4",
      te: "trailers",
      "accept-encoding": "gzip",
      "anthropic-beta": "b1",
      "x-stainless-retry-count": "1",
    };
    const answer = await post(odd, "{}", { headers: await headers({}, sent), path: "/model/v1/messages?beta=true" });
    const { host, ...rest } = seen;
    expect(rest).toEqual({
      url: "/v1/messages?beta=true",
      connection: "keep-alive",
      "content-type": "application/json",
      "content-length": "2",
      "anthropic-version": "2023-06-01",
      "anthropic-beta": "b1",
      "x-stainless-retry-count": "1",
      "accept-encoding": "identity",
      "x-api-key": KEY,
    });
    expect(host).toMatch(/^127\.0\.0\.1:\d+$/);
    const { date, ...given } = answer.headers;
    expect(given).toEqual({ "request-id": "req_1", "retry-after": "3", "content-length": "2", connection: "keep-alive", "keep-alive": "timeout=65" });
    expect(date).toBeDefined();
  });

  test("an error of the model comes as it is", async () => {
    const answer = await post(proxy, body('error: 429 retry_after=7 message="slow down"'));
    expect([answer.status, answer.headers["retry-after"], JSON.parse(answer.text).error]).toEqual([
      429,
      "7",
      { type: "rate_limit_error", message: "slow down" },
    ]);
  });

  test("an answer is not collected: the first piece arrives before the last is sent", async () => {
    let release = () => {};
    const odd = await behind((_req, res) => {
      res.write("first");
      release = () => res.end("last");
    });
    const answer = await request(`${odd.url}/model/v1/messages`, { method: "POST", headers: await headers(), body: "{}" });
    const pieces: string[] = [];
    for await (const piece of answer.body) {
      pieces.push(String(piece));
      release();
    }
    expect(pieces).toEqual(["first", "last"]);
  });

  test("a request is not collected: the model gets its first piece before the last is sent", async () => {
    let got = (_piece: string) => {};
    const first = new Promise<string>((resolve) => {
      got = resolve;
    });
    const odd = await behind((req, res) => {
      req.on("data", (piece) => got(String(piece)));
      req.on("end", () => res.end("{}"));
    });
    const upload = new Readable({ read: () => {} });
    upload.push("first");
    const answer = request(`${odd.url}/model/v1/messages`, { method: "POST", headers: await headers(), body: upload });
    expect(await first).toBe("first");
    upload.push(null);
    expect((await answer).statusCode).toBe(200);
  });

  test("a large answer comes whole through a reader that is slower than the model", async () => {
    const bytes = Buffer.alloc(8 * 1024 * 1024, "0123456789abcdef");
    const odd = await behind((_req, res) => res.end(bytes));
    const answer = await request(`${odd.url}/model/v1/messages`, { method: "POST", headers: await headers(), body: "{}", highWaterMark: 16_384 });
    const hash = createHash("sha256");
    for await (const piece of answer.body) {
      hash.update(piece);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(hash.digest("hex")).toBe(createHash("sha256").update(bytes).digest("hex"));
  });
});

describe("what does not", () => {
  test.each<[string, Record<string, unknown>]>([
    ["ended", { exp: Math.floor(Date.now() / 1000) - 60 }],
    ["lasting too long", { exp: Math.floor(Date.now() / 1000) + 3_600 }],
    ["by another issuer", { iss: "someone" }],
    ["for another audience", { aud: "gateway" }],
    ["of no session", { sub: "admin" }],
    ["without an end", { exp: undefined }],
  ])("a grant %s opens nothing and the model is not contacted", async (_name, claims) => {
    const answer = await post(proxy, body("say: x"), { headers: await headers(claims) });
    expect([answer.status, JSON.parse(answer.text).error.type]).toEqual([401, "authentication_error"]);
    expect(model.stats().total).toBe(0);
  });

  test("no grant, a foreign key's grant, an unsigned one, and a grant in the wrong header open nothing", async () => {
    const foreign = new Signer();
    cleanups.push(() => foreign.remove());
    await foreign.rotate("k1");
    const { authorization, ...bare } = await headers();
    const [, payload] = authorization.split(".");
    const unsigned = `${Buffer.from('{"alg":"none"}').toString("base64url")}.${payload}.`;
    const attempts: Record<string, string>[] = [
      bare,
      { ...bare, authorization: `Bearer ${await foreign.sign()}` },
      { ...bare, authorization: `Bearer ${unsigned}` },
      { ...bare, authorization: `Basic ${KEY}` },
      { ...bare, "x-api-key": authorization.slice("Bearer ".length) },
    ];
    for (const attempt of attempts) expect((await post(proxy, body("say: x"), { headers: attempt })).status).toBe(401);
    expect(model.stats().total).toBe(0);
  });

  test("a grant for another use is refused as such", async () => {
    expect((await post(proxy, body("say: x"), { headers: await headers({ use: ["mcp"] }) })).status).toBe(403);
    expect(model.stats().total).toBe(0);
  });

  test.each([
    "/model/v1/models",
    "/model/v1/messages/batches",
    "/model/v1/messages?x=1",
    "/model/v1/messages/../files",
    "/model//v1/messages",
    "/v1/messages",
    "/",
  ])("%s is not there", async (path) => {
    expect((await post(proxy, body("say: x"), { path })).status).toBe(404);
    expect(model.stats().total).toBe(0);
  });

  test("too large a request is refused, stated or counted, and never arrives whole", async () => {
    let arrived = 0;
    const odd = await behind(
      (req, res) => {
        req.on("error", () => {}).on("data", (piece) => (arrived += piece.length));
        req.on("end", () => res.end("{}"));
      },
      { bodyBytesMax: 100_000 },
    );
    const stated = await post(odd, "x".repeat(100_001));
    expect([stated.status, JSON.parse(stated.text).error.type, arrived]).toEqual([413, "request_too_large", 0]);
    const pieces = Readable.from(Array.from({ length: 11 }, () => "x".repeat(10_000)));
    const counted = await request(`${odd.url}/model/v1/messages`, { method: "POST", headers: await headers(), body: pieces });
    expect([counted.statusCode, JSON.parse(await counted.body.text()).error.type]).toEqual([413, "request_too_large"]);
    expect(arrived).toBeLessThanOrEqual(100_000);
  });

  test("a compressed request is refused: its header would not pass", async () => {
    expect((await post(proxy, "x", { headers: await headers({}, { "content-encoding": "gzip" }) })).status).toBe(415);
  });

  test("without a model key the answer names the settings", async () => {
    const keyless = await startProxy(signer, model.url, { keys: fixedKey(null) });
    cleanups.push(() => keyless.close());
    const answer = await post(keyless, body("say: x"));
    expect([answer.status, JSON.parse(answer.text)]).toEqual([
      401,
      {
        type: "error",
        error: {
          type: "authentication_error",
          message: "No model key is set: set MANYHANDS_MODEL_KEY_FILE or ANTHROPIC_API_KEY and start again.",
        },
      },
    ]);
    expect(model.stats().total).toBe(0);
  });

  test("a redirect is not followed", async () => {
    let visits = 0;
    const elsewhere = await startUpstream((_req, res) => {
      visits += 1;
      res.end("{}");
    });
    cleanups.push(() => elsewhere.close());
    const odd = await behind((_req, res) => res.writeHead(307, { location: elsewhere.url }).end());
    const answer = await post(odd, "{}");
    expect([answer.status, JSON.parse(answer.text).error.type, answer.headers.location, visits]).toEqual([502, "api_error", undefined, 0]);
  });

  test("a compressed answer is refused: nothing could be masked in it", async () => {
    const odd = await behind((_req, res) => res.writeHead(200, { "content-encoding": "gzip" }).end("x"));
    expect((await post(odd, "{}")).status).toBe(502);
  });
});

describe("when it breaks", () => {
  test("a caller that leaves ends the request at the model at once", async () => {
    const leave = new AbortController();
    const answer = await request(`${proxy.url}/model/v1/messages`, {
      method: "POST",
      headers: await headers(),
      body: body("stall: 60000 after=1\nsay: hello", { stream: true }),
      signal: leave.signal,
    });
    answer.body.on("error", () => {});
    await new Promise((resolve) => answer.body.once("data", resolve));
    expect(model.stats().active).toBe(1);
    leave.abort();
    await expect.poll(() => model.stats(), { timeout: 8_000 }).toMatchObject({ active: 0, aborted: 1 });
    await expect.poll(() => proxy.log.join("")).toContain("caller_left");
  });

  test("a caller that leaves before the model has said anything ends it too", async () => {
    const leave = new AbortController();
    const answer = request(`${proxy.url}/model/v1/messages`, {
      method: "POST",
      headers: await headers(),
      body: body("wait: 60000\nsay: hello"),
      signal: leave.signal,
    }).catch((error: unknown) => error);
    await expect.poll(() => model.stats().active).toBe(1);
    leave.abort();
    await expect.poll(() => model.stats(), { timeout: 8_000 }).toMatchObject({ active: 0, aborted: 1 });
    expect(await answer).toBeInstanceOf(Error);
  });

  test("an answer that breaks off breaks off for the caller", async () => {
    const client = await sdk(proxy);
    const stream = client.messages.stream({ model: "m", max_tokens: 9, messages: [{ role: "user", content: "drop: after=3\nsay: hello you" }] });
    await expect(stream.finalMessage()).rejects.toThrow();
  });

  test("a model that is silent or absent is told without an address", async () => {
    const silent = await behind(() => {}, { headersTimeoutMs: 100 });
    const late = await post(silent, "{}");
    expect([late.status, JSON.parse(late.text).error]).toEqual([504, { type: "api_error", message: "The model did not answer in time." }]);

    const gone = createServer();
    await new Promise<void>((resolve) => gone.listen(0, "127.0.0.1", resolve));
    const address = gone.address();
    const port = typeof address === "object" ? address?.port : 0;
    await new Promise((resolve) => gone.close(resolve));
    const alone = await startProxy(signer, `http://127.0.0.1:${port}`);
    cleanups.push(() => alone.close());
    const answer = await post(alone, "{}");
    expect([answer.status, JSON.parse(answer.text).error]).toEqual([502, { type: "api_error", message: "The model can't be reached." }]);
    expect(alone.log.join("")).toContain("ECONNREFUSED");
    expect(alone.log.join("")).not.toContain(String(port));
  });
});

describe("leaks", () => {
  test("a key that the model echoes is masked in headers and bodies, however it is cut", async () => {
    const text = `{"a":"${KEY}","b":"${Buffer.from(`xy${KEY}z`).toString("base64")}"}`;
    for (const cut of [1, 7, text.length]) {
      const odd = await behind(async (_req, res) => {
        res.writeHead(400, { "request-id": `req ${KEY}`, "content-length": text.length, "content-type": "application/json" });
        for (let at = 0; at < text.length; at += cut) {
          res.write(text.slice(at, at + cut));
          await new Promise((resolve) => setImmediate(resolve));
        }
        res.end();
      });
      const answer = await post(odd, "{}");
      expect(answer.status).toBe(400);
      expect(answer.text).toHaveLength(text.length);
      expect(JSON.parse(answer.text).a).toBe("*".repeat(KEY.length));
      expect(Buffer.from(JSON.parse(answer.text).b, "base64").toString("latin1")).not.toContain(KEY.slice(4, 12));
      expect(answer.headers["request-id"]).toBe(`req ${"*".repeat(KEY.length)}`);
    }
  });

  test("neither the key, nor a grant, nor what was said is logged; who, how much and how long is", async () => {
    const grant = await signer.sign({ sub: "sesn_logged", fence: 9 });
    await post(proxy, body("say: secret-of-the-user"), { headers: { ...(await headers()), authorization: `Bearer ${grant}` } });
    await post(proxy, "no json", { headers: await headers() });
    const logged = proxy.log.join("");
    for (const secret of [KEY, grant, "secret-of-the-user", "no json"]) expect(logged).not.toContain(secret);
    const lines = proxy.log.map((line): { msg: string } => JSON.parse(line));
    expect(lines.find(({ msg }) => msg === "model.used")).toMatchObject({
      sessionId: "sesn_logged",
      provider: "default",
      output: expect.any(Number),
    });
    expect(lines.find(({ msg }) => msg === "model.relayed")).toMatchObject({
      sessionId: "sesn_logged",
      fence: 9,
      path: "/v1/messages",
      status: 200,
      ms: expect.any(Number),
      bytesIn: expect.any(Number),
      bytesOut: expect.any(Number),
    });
  });
});
