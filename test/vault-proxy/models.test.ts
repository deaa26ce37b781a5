// Providers by the model's name: what each gets, what comes back, and what a session may spend.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fixedKey } from "../../vault-proxy/model-key.ts";
import { EventFrames } from "../../vault-proxy/models/event-frames.ts";
import { JsonObject } from "../../vault-proxy/models/fields.ts";
import { ownProvider, readModels } from "../../vault-proxy/models/providers.ts";
import { Spend } from "../../vault-proxy/models/spend.ts";
import { until } from "../support/until.ts";
import { Signer, startProxy, startUpstream, type TestProxy } from "./proxy.ts";

const [OWN, VERTEX, BEDROCK] = ["own-key-0123456789", "vertex-token-0123456789", "bedrock-key-0123456789"];
const EVENTS = [
  { type: "message_start", message: { model: "m", usage: { input_tokens: 1_000_000, output_tokens: 1 } } },
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: `the key is ${BEDROCK}` } },
  { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 200_000 } },
  { type: "message_stop" },
];

interface Seen {
  readonly url: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

const signer = new Signer();
const seen: Seen[] = [];
let folder: string;
let proxy: TestProxy;
let upstream: { url: string; close(): Promise<void> };

const frame = (headers: Readonly<Record<string, string>>, payload: string): Buffer => {
  const head = Buffer.concat(
    Object.entries(headers).map(([name, value]) => {
      const length = Buffer.alloc(2);
      length.writeUInt16BE(value.length);
      return Buffer.concat([Buffer.from([name.length]), Buffer.from(name), Buffer.from([7]), length, Buffer.from(value)]);
    }),
  );
  const prelude = Buffer.alloc(12);
  prelude.writeUInt32BE(12 + head.length + payload.length + 4, 0);
  prelude.writeUInt32BE(head.length, 4);
  prelude.writeUInt32BE(crc32(prelude.subarray(0, 8)), 8);
  const whole = Buffer.concat([prelude, head, Buffer.from(payload)]);
  const end = Buffer.alloc(4);
  end.writeUInt32BE(crc32(whole));
  return Buffer.concat([whole, end]);
};
const chunkOf = (event: object): Buffer =>
  frame(
    { ":message-type": "event", ":event-type": "chunk", ":content-type": "application/json" },
    JSON.stringify({ bytes: Buffer.from(JSON.stringify(event)).toString("base64"), p: "abc" }),
  );
const FRAMED = Buffer.concat(EVENTS.map(chunkOf));

async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const pieces: Buffer[] = [];
  for await (const piece of req) pieces.push(piece);
  const url = req.url ?? "";
  seen.push({ url, headers: req.headers, body: Buffer.concat(pieces).toString() });
  if (url.endsWith("invoke-with-response-stream")) {
    res.setHeader("content-type", "application/vnd.amazon.eventstream");
    for (let at = 0; at < FRAMED.length; at += 37) res.write(FRAMED.subarray(at, at + 37));
    return void res.end();
  }
  res.setHeader("content-type", "application/json");
  res.end(JSON.stringify({ type: "message", content: [], usage: { input_tokens: 400_000, output_tokens: 0 } }));
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-models-"));
  await signer.rotate("k1");
  upstream = await startUpstream((req, res) => void answer(req, res));
  await writeFile(join(folder, "vertex.token"), `${VERTEX}\n`, { mode: 0o600 });
  await writeFile(join(folder, "bedrock.key"), BEDROCK, { mode: 0o600 });
  const providers = [
    {
      name: "vertex",
      models: ["claude-*@*"],
      style: "vertex",
      base_url: `${upstream.url}/v1/projects/p/locations/l/`,
      auth: "bearer",
      key_file: "vertex.token",
    },
    {
      name: "bedrock",
      models: ["*anthropic.claude-*"],
      style: "bedrock",
      base_url: upstream.url,
      auth: "bearer",
      key_file: "bedrock.key",
      rename: { "anthropic.claude-short": "us.anthropic.claude-long-v1:0" },
    },
  ];
  const prices = [{ models: ["*claude-*"], input: 2, output: 10, cache_read: 0.2, cache_write: 2.5 }];
  await writeFile(join(folder, "models.json"), JSON.stringify({ providers, prices, session_limit_usd: 5 }));
  const models = readModels(join(folder, "models.json"), ownProvider(new URL(`${upstream.url}/own`), fixedKey(OWN)), () => {});
  proxy = await startProxy(signer, upstream.url, { models });
});
afterAll(async () => {
  await proxy.close();
  await upstream.close();
  signer.remove();
  await rm(folder, { recursive: true, force: true });
});

async function ask(session: string, body: string, path = "/model/v1/messages"): Promise<{ status: number; text: string; type: string | null }> {
  const headers = {
    authorization: `Bearer ${await signer.sign({ sub: session })}`,
    "content-type": "application/json",
    "anthropic-beta": "one, two",
  };
  const response = await fetch(`${proxy.url}${path}`, { method: "POST", headers, body });
  return { status: response.status, text: await response.text(), type: response.headers.get("content-type") };
}
const last = (): Seen => {
  const found = seen.at(-1);
  if (found === undefined) throw new Error("nothing was seen");
  return found;
};

describe("each model has its provider", () => {
  test("what no pattern names goes to the provider of the environment, byte for byte", async () => {
    const body = ' {"max_tokens": 9007199254740993, "model":"claude-x" , "n":1.0}';
    expect((await ask("sesn_own", body)).status).toBe(200);
    expect(last()).toMatchObject({ url: "/own/v1/messages", body });
    expect(last().headers).toMatchObject({ "x-api-key": OWN });
    expect(last().headers.authorization).toBeUndefined();
  });

  test("vertex: the model is in the path and the version in the body", async () => {
    expect((await ask("sesn_vertex", '{"model":"claude-x@2026","stream":true,"big":12345678901234567890}')).status).toBe(200);
    expect(last().url).toBe("/v1/projects/p/locations/l/publishers/anthropic/models/claude-x%402026:streamRawPredict");
    expect(last().body).toBe('{"anthropic_version":"vertex-2023-10-16","stream":true,"big":12345678901234567890}');
    expect(last().headers).toMatchObject({ authorization: `Bearer ${VERTEX}`, "content-length": String(last().body.length) });
    expect(last().headers["x-api-key"]).toBeUndefined();
  });

  test("bedrock: its frames come back as events, with what they echo of the key masked", async () => {
    const { status, text, type } = await ask("sesn_bedrock", '{"stream":true,"model":"anthropic.claude-short"}');
    expect({ status, type }).toEqual({ status: 200, type: "text/event-stream; charset=utf-8" });
    expect(last().url).toBe("/model/us.anthropic.claude-long-v1%3A0/invoke-with-response-stream");
    expect(JSON.parse(last().body)).toEqual({ anthropic_version: "bedrock-2023-05-31", anthropic_beta: ["one", "two"] });
    expect(text).not.toContain(BEDROCK);
    const told = text.replaceAll("*".repeat(BEDROCK?.length ?? 0), BEDROCK ?? "");
    expect(told).toBe(EVENTS.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(""));
  });

  test.each([
    ["a request that a style has not", '{"model":"claude-x@1"}', "/model/v1/messages/count_tokens", 400],
    ["no model", '{"messages":[]}', "/model/v1/messages", 400],
    ["a model that is named twice", '{"model":"a-claude-1","model":"b"}', "/model/v1/messages", 400],
    ["a model that is named twice, once in escapes", '{"mod\\u0065l":"a-claude-1","model":"b"}', "/model/v1/messages", 400],
    ["a model whose name is a path", '{"model":"claude-/../x@1"}', "/model/v1/messages", 400],
    ["a model whose name is the path above", '{"model":"anthropic.claude-x/.."}', "/model/v1/messages", 400],
    ["no object", "[1]", "/model/v1/messages", 400],
    ["no price where spending is limited", '{"model":"other"}', "/model/v1/messages", 403],
  ])("%s is refused, and nobody hears of it", async (_, body, path, status) => {
    const before = seen.length;
    expect((await ask("sesn_refused", body, path)).status).toBe(status);
    expect(seen).toHaveLength(before);
  });
});

describe("spending", () => {
  test("a session that has spent its limit asks no more; another one may", async () => {
    // 2 dollars of input and 2 of output a request: the second one begins below the limit of 5, and ends above it.
    for (const spent of [4, 8]) {
      expect((await ask("sesn_spender", '{"stream":true,"model":"anthropic.claude-short"}')).status).toBe(200);
      await until(() => proxy.parts.spend.spentBy("sesn_spender") === spent, { what: `${spent} dollars` });
    }
    const before = seen.length;
    const { status, text } = await ask("sesn_spender", '{"model":"claude-x"}');
    expect({ status, says: text.includes("session_limit_usd"), seen: seen.length }).toEqual({ status: 403, says: true, seen: before });
    expect((await ask("sesn_other", '{"model":"claude-x"}')).status).toBe(200);
    await until(() => Math.abs(proxy.parts.spend.spentBy("sesn_other") - 0.8) < 1e-9, { what: "the count of the other one" });
  });

  test("is remembered by the next start", () => {
    const first = new Spend(folder);
    first.count("sesn_1", { input: 1, output: 2, cacheRead: 3, cacheWrite: 4 }, { input: 1, output: 10, cacheRead: 100, cacheWrite: 1000 });
    first.close();
    const next = new Spend(folder);
    expect(next.spentBy("sesn_1")).toBeCloseTo(4_321 / 1e6, 12);
    next.close();
  });
});

describe("frames", () => {
  test("are read however they are cut", () => {
    const read = (size: number): string => {
      const frames = new EventFrames();
      let text = "";
      for (let at = 0; at < FRAMED.length; at += size) text += frames.push(FRAMED.subarray(at, at + size)).toString();
      frames.end();
      return text;
    };
    const whole = read(FRAMED.length);
    expect(whole).toContain("message_stop");
    for (const size of [1, 7, 100]) expect(read(size)).toBe(whole);
  });

  test("that are bent are no answer", () => {
    const bent = Buffer.from(FRAMED);
    bent[40] = (bent[40] ?? 0) ^ 1;
    expect(() => new EventFrames().push(bent)).toThrow("checksum");
    const cut = new EventFrames();
    cut.push(FRAMED.subarray(0, FRAMED.length - 1));
    expect(() => cut.end()).toThrow("ended in a frame");
  });

  test("of an exception are the API's own error", () => {
    const exception = frame({ ":message-type": "exception", ":exception-type": "throttlingException" }, '{"message":"slow down"}');
    expect(new EventFrames().push(exception).toString()).toBe(
      'event: error\ndata: {"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}\n\n',
    );
  });
});

test("fields are found through strings, escapes and nesting", () => {
  const text = '{"a\\"}":{"x":"}\\\\","y":[1,{"z":"]"}]},"model":"m","n":-1.5e3 , "t":true}';
  const object = JsonObject.read(Buffer.from(text));
  expect(object?.get("model")).toBe("m");
  expect(object?.with({ model: undefined, v: 1 }).toString()).toBe('{"v":1,"a\\"}":{"x":"}\\\\","y":[1,{"z":"]"}]},"n":-1.5e3,"t":true}');
  for (const broken of ["", "{", '{"a":1', '{"a" 1}', '{"a":}', '{"a":1}x', '{"a":"', "null"])
    expect(JsonObject.read(Buffer.from(broken))).toBeNull();
});
