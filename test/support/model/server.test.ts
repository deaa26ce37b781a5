// The scripted model, through the official SDK: it plays its directives, and refuses what the real endpoint refuses.

import Anthropic from "@anthropic-ai/sdk";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { png } from "../pictures.ts";
import { type ScriptedModel, startModel } from "./server.ts";

type Params = Anthropic.MessageCreateParamsNonStreaming;
type Messages = Params["messages"];

let model: ScriptedModel;
let client: Anthropic;

beforeEach(async () => {
  model = await startModel({ key: "right" });
  client = new Anthropic({ apiKey: "right", baseURL: model.url, maxRetries: 0 });
});
afterEach(() => model.close());

const tool = (name: string): Anthropic.Tool => ({ name, input_schema: { type: "object" } });
const ask = (script: string, more: Partial<Params> = {}): Params => ({
  model: "scripted-model",
  max_tokens: 100,
  messages: [{ role: "user", content: script }],
  ...more,
});
const refusalOf = async (params: unknown): Promise<string> => {
  const answer = await fetch(`${model.url}/v1/messages`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-api-key": "right", "anthropic-version": "2023-06-01" },
    body: typeof params === "string" ? params : JSON.stringify(params),
  });
  const body = JSON.parse(await answer.text());
  return answer.status === 400 ? body.error.message : `accepted with ${answer.status}`;
};
const refusalOfMessages = (messages: unknown) => refusalOf({ ...ask(""), messages });

describe("scripts", () => {
  test("a script of three steps plays itself out, parallel calls and their results included", async () => {
    const script = 'call look_*: {"q":"a"}\ncall look_up: {"q":"b"}\necho: found\nstop: max_tokens\n---\nsay: done\\n\\u{1F600}';
    const params = ask(script, { tools: [tool("other"), tool("look_up")] });
    const first = await client.messages.create(params);
    expect(first.content.map((block) => block.type === "tool_use" && [block.name, block.input])).toEqual([
      ["look_up", { q: "a" }],
      ["look_up", { q: "b" }],
    ]);
    expect(first.stop_reason).toBe("tool_use");

    const results = first.content.flatMap((block, at) =>
      block.type === "tool_use" ? [{ type: "tool_result" as const, tool_use_id: block.id, content: `r${at}`, is_error: at === 1 }] : [],
    );
    const messages: Messages = [...params.messages, { role: "assistant", content: first.content }, { role: "user", content: results }];
    const second = await client.messages.create({ ...params, messages });
    expect(second).toMatchObject({ content: [{ type: "text", text: "found r0\n[error] r1" }], stop_reason: "max_tokens" });

    const third = await client.messages.create({
      ...params,
      messages: [...messages, { role: "assistant", content: second.content }, { role: "user", content: [{ type: "text", text: "go on" }] }],
    });
    // Plain text without results is a new task: no script, so "ok".
    expect(third.content).toEqual([{ type: "text", text: "ok" }]);
  });

  test("streamed, an answer is the same as whole: thinking, text, tool input, usage", async () => {
    const params = ask(
      'think: hm\nredacted_think\nsay: one two three four five\ncall t: {"a":[1,2]}\nusage: input=7 output=9 cache_read=3 cache_write=2',
      {
        tools: [tool("t")],
      },
    );
    const streamed = await client.messages.stream(params).finalMessage();
    const whole = await client.messages.create(params);
    const bare = (message: Anthropic.Message) => message.content.map((block) => ({ ...block, id: "" }));
    expect(bare(streamed)).toEqual(bare(whole));
    expect(streamed.usage).toMatchObject({ input_tokens: 7, output_tokens: 9, cache_read_input_tokens: 3, cache_creation_input_tokens: 2 });
  });

  test("a cut-off call streams half an input and stops for the token limit", async () => {
    let json = "";
    let stop: string | null = null;
    for await (const event of await client.messages.create({ ...ask('truncated_call t: {"a":', { tools: [tool("t")] }), stream: true })) {
      if (event.type === "content_block_delta" && event.delta.type === "input_json_delta") json += event.delta.partial_json;
      if (event.type === "message_delta") stop = event.delta.stop_reason;
    }
    expect([json, stop]).toEqual(['{"a":', "max_tokens"]);
  });

  test("an error strikes as often as it says, and tells when to come back", async () => {
    const params = ask('error: 529 times=2 retry_after=1 message="too much"\nsay: at last');
    for (const _ of [1, 2]) {
      const error = await client.messages.create(params).catch((thrown: unknown) => thrown);
      expect(error).toMatchObject({ status: 529, error: { error: { type: "overloaded_error", message: "too much" } } });
      expect(error instanceof Anthropic.APIError && error.headers?.get("retry-after")).toBe("1");
    }
    expect((await client.messages.create(params)).content).toEqual([{ type: "text", text: "at last" }]);
  });

  test.each([
    ["sse_error: overloaded_error after=5", /overloaded/i],
    ["malformed: after=5", /JSON|parse/i],
    ["drop: after=5", /terminated|closed|aborted|socket|connection/i],
  ])("%s breaks the stream after some text", async (fault, says) => {
    let text = "";
    const stream = client.messages.stream(ask(`${fault}\nchunk: 4\nsay: twelve letters and more`)).on("text", (piece) => {
      text += piece;
    });
    await expect(stream.finalMessage()).rejects.toThrow(says);
    expect("twelve letters and more".startsWith(text)).toBe(true);
    expect(text.length).toBeGreaterThan(0);
  });

  test("waits end at once when the client leaves, and the request is kept as aborted", async () => {
    const stream = client.messages.stream(ask("stall: 60000 after=2\nsay: hello"));
    const ended = stream.finalMessage().catch((thrown: unknown) => thrown);
    await new Promise((resolve) => stream.on("text", resolve));
    stream.abort();
    expect(await ended).toBeInstanceOf(Anthropic.APIUserAbortError);
    await expect.poll(() => model.stats()).toMatchObject({ active: 0, aborted: 1 });
    expect(model.requests()[0]).toMatchObject({ aborted: true, fault: "stall" });
  });

  test("without a script a forced tool is called with what its schema needs, and a wanted shape is filled", async () => {
    const input_schema = {
      type: "object" as const,
      properties: { n: { type: "integer", minimum: 3 }, kind: { enum: ["x"] } },
      required: ["n", "kind"],
    };
    const forced = await client.messages.create(ask("hello", { tools: [{ name: "t", input_schema }], tool_choice: { type: "any" } }));
    expect(forced.content).toMatchObject([{ type: "tool_use", name: "t", input: { n: 3, kind: "x" } }]);
  });

  test("a forced tool is answered from its own script, step by step, whatever the conversation is about", async () => {
    const script = 'say: not this\nforced error: 529 times=1\nforced call t: {"n":1}\nforced call t: {"n":2}\nforced ---\nforced call t: {"n":3}';
    const forced = () => client.messages.create(ask(script, { tools: [tool("t")], tool_choice: { type: "tool", name: "t" } }));
    await expect(forced()).rejects.toThrow("529");
    const inputs = (content: Anthropic.ContentBlock[]) => content.map((block) => block.type === "tool_use" && block.input);
    expect([inputs((await forced()).content), inputs((await forced()).content), inputs((await forced()).content)]).toEqual([
      [{ n: 1 }, { n: 2 }],
      [{ n: 3 }],
      [{ n: 3 }],
    ]);
    expect((await client.messages.create(ask(script))).content).toMatchObject([{ type: "text", text: "not this" }]);
  });

  test("dump tells what the model was given", async () => {
    const answer = await client.messages.create(
      ask("dump: tools\ndump: system\ndump: model", { tools: [tool("b"), tool("a")], system: "Be brief." }),
    );
    expect(answer.content.map((block) => block.type === "text" && block.text)).toEqual(['["b","a"]', '"Be brief."', '"scripted-model"']);
  });
});

describe("doors", () => {
  test("only the right key opens, and no key is ever kept", async () => {
    await expect(new Anthropic({ apiKey: "wrong", baseURL: model.url, maxRetries: 0 }).messages.create(ask("say: x"))).rejects.toMatchObject({
      status: 401,
    });
    await client.messages.create(ask("say: x"));
    const kept = await (await fetch(`${model.url}/__requests`)).text();
    expect(JSON.parse(kept)).toMatchObject({ count: 1, requests: [{ path: "/v1/messages", step: 0 }] });
    expect(kept).not.toContain("right");
  });

  test("requests are found by what they hold, and forgotten on demand", async () => {
    await client.messages.create(ask("say: x\nnonce-1"));
    await client.messages.create(ask("say: x\nnonce-2"));
    expect(model.requests({ contains: "nonce-2" }).map((entry) => entry.n)).toEqual([2]);
    expect(model.requests({ since: 1, limit: 1 }).map((entry) => entry.n)).toEqual([2]);
    await fetch(`${model.url}/__requests`, { method: "DELETE" });
    expect(model.requests()).toEqual([]);
  });

  test("tokens are counted and models are listed", async () => {
    const { input_tokens } = await client.messages.countTokens({ model: "m", messages: [{ role: "user", content: "x".repeat(400) }] });
    expect(input_tokens).toBeGreaterThan(100);
    expect((await client.models.list()).data.map((found) => found.id)).toEqual(["scripted-model"]);
  });
});

describe("refusals", () => {
  const use = (id: string) => ({ type: "tool_use", id, name: "t", input: {} });
  const result = (id: string, more = {}) => ({ type: "tool_result", tool_use_id: id, content: "r", ...more });
  const user = (...content: unknown[]) => ({ role: "user", content });
  const assistant = (...content: unknown[]) => ({ role: "assistant", content });
  const words = (text: string) => ({ type: "text", text });
  const hello = user(words("hello"));

  test.each<[string, unknown[], RegExp]>([
    ["a call without a result", [hello, assistant(use("a")), user(words("x"))], /without `tool_result`/],
    ["a call at the end", [hello, assistant(use("a"))], /without `tool_result`/],
    ["one of two calls without a result", [hello, assistant(use("a"), use("b")), user(result("a"))], /immediately after: b/],
    ["a stray result", [hello, assistant(words("x")), user(result("a"))], /unexpected `tool_use_id`/],
    ["a doubled result", [hello, assistant(use("a")), user(result("a"), result("a"))], /single result/],
    ["a result after a text", [hello, assistant(use("a")), user(words("x"), result("a"))], /must come first/],
    ["a doubled call id", [hello, assistant(use("a")), user(result("a")), assistant(use("a")), user(result("a"))], /must be unique/],
    ["a result by the assistant", [hello, assistant(use("a")), assistant(result("a"))], /only be in `user`/],
    ["a call by the user", [user(use("a"))], /only be in `assistant`/],
    ["an empty text", [user(words(""))], /non-empty/],
    ["a blank text", [user(words(" \n"))], /non-whitespace/],
    ["an empty text in a result", [hello, assistant(use("a")), user(result("a", { content: [words("")] }))], /non-empty/],
    ["an empty error", [hello, assistant(use("a")), user(result("a", { content: [], is_error: true }))], /cannot be empty/],
    ["an empty message", [user()], /non-empty content/],
    ["a changed thought", [hello, assistant({ type: "thinking", thinking: "x", signature: "made up" }, words("y")), hello], /signature/],
    ["made-up redacted data", [hello, assistant({ type: "redacted_thinking", data: "eA==" }, words("y")), hello], /redacted_thinking/],
    ["the assistant first", [assistant(words("x")), hello], /first message/],
    ["an unknown role", [{ role: "robot", content: "x" }], /messages.0.role/],
    ["a field of ours", [user({ ...words("x"), id: "sevt_1" })], /messages.0.content.0.id: Extra inputs/],
    ["an unknown block", [user({ type: "song" })], /messages.0.content.0/],
    ["a call whose input is no object", [hello, assistant({ ...use("a"), input: "x" }), user(result("a"))], /input/],
    ["half a surrogate pair", [user(words("\ud83d"))], /surrogate/],
    ["blank ends of a prefill", [hello, assistant(words("x "))], /trailing whitespace/],
  ])("%s", async (_name, messages, says) => {
    expect(await refusalOfMessages(messages)).toMatch(says);
  });

  test("a right history passes: neighbours of one role are one message", async () => {
    const thought = (await client.messages.create(ask("think: hm\nsay: x"))).content;
    expect(
      await refusalOfMessages([
        hello,
        { role: "assistant", content: thought },
        hello,
        assistant(use("a"), use("b")),
        user(result("b")),
        user(result("a"), words("x")),
      ]),
    ).toBe("accepted with 200");
  });

  test.each<[string, object, RegExp]>([
    ["no token limit", { max_tokens: undefined }, /max_tokens: Field required/],
    ["no message", { messages: [] }, /at least one message/],
    ["a doubled tool name", { tools: [tool("t"), tool("t")] }, /must be unique/],
    ["an illegal tool name", { tools: [tool("a b")] }, /pattern/],
    ["a tool without a schema", { tools: [{ name: "t" }] }, /input_schema: Field required/],
    ["a choice of no tool", { tools: [tool("t")], tool_choice: { type: "tool", name: "u" } }, /not found/],
    ["an unknown field", { temprature: 1 }, /temprature: Extra inputs/],
    ["no room beside thinking", { thinking: { type: "enabled", budget_tokens: 1024 } }, /greater than/],
    ["a fifth cache marker", { system: Array.from({ length: 5 }, () => ({ ...words("x"), cache_control: { type: "ephemeral" } })) }, /maximum of 4/],
    [
      "an hour after five minutes",
      { system: ["5m", "1h"].map((ttl) => ({ ...words("x"), cache_control: { type: "ephemeral", ttl } })) },
      /must not come after/,
    ],
  ])("%s", async (_name, more, says) => {
    expect(await refusalOf({ ...ask("say: x"), ...more })).toMatch(says);
  });

  test("what is not JSON", async () => {
    expect(await refusalOf("{")).toMatch(/not valid JSON/);
  });

  const base64 = (width: number, height: number) => png(width, height).toString("base64");
  const image = (data: string, media_type = "image/png") => ({ type: "image", source: { type: "base64", media_type, data } });

  test.each<[string, unknown[], RegExp]>([
    ["no picture at all", [image("")], /empty/],
    ["what is no base64", [image("a*==")], /invalid base64/],
    ["what is no picture", [image(Buffer.from("hello").toString("base64"))], /Could not process/],
    ["a wrong media type", [image(base64(1, 1), "image/jpeg")], /media type/],
    ["an unknown media type", [image(base64(1, 1), "image/bmp")], /media_type/],
    ["over 5 MB", [image(Buffer.alloc(5 * 1024 * 1024 + 1).toString("base64"))], /5 MB/],
    ["over 8000 pixels", [image(base64(8001, 1))], /8000 pixels/],
    ["over 2000 pixels among many", Array.from({ length: 21 }, () => image(base64(2001, 1))), /2000 pixels/],
    ["a PDF that is none", [{ type: "document", source: { type: "base64", media_type: "application/pdf", data: "eA==" } }], /PDF/],
  ])("a picture or document: %s", async (_name, content, says) => {
    expect(await refusalOfMessages([user(...content)])).toMatch(says);
  });

  test("pictures within the limits pass, in a result too", async () => {
    const jpeg = Buffer.from("ffd8ffe000104a46494600010100000100010000ffc0000b080010002001011100ffd9", "hex").toString("base64");
    const gif = Buffer.from("GIF89a\x10\0\x10\0\0\0\0", "latin1").toString("base64");
    const content = [image(base64(8000, 1)), image(jpeg, "image/jpeg"), image(gif, "image/gif")];
    expect(await refusalOfMessages([user(...content)])).toBe("accepted with 200");
    expect(await refusalOfMessages([hello, assistant(use("a")), user(result("a", { content }))])).toBe("accepted with 200");
  });
});
