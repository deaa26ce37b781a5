// What a client carries for the door, and what it claims: states, headers, reserved names; and what the door never says.

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { handshake, post, type Reply, STATELESS, stateless } from "../support/mcp.ts";
import { type Doors, FIRST, openDoors, SECOND } from "../support/mcp-door.ts";
import { probe } from "../support/mcp-surface.ts";

const tools = probe();
const CLIENT = { elicitation: {} };
let doors: Doors;
let one: string;
let other: string;

beforeAll(async () => {
  doors = await openDoors(tools.surface, { count: 2 });
  [one = "", other = ""] = doors.urls;
});
afterAll(() => doors.close());

interface Call {
  url?: string;
  headers?: Record<string, string>;
  name?: string;
  args?: Record<string, unknown>;
  state?: string;
  capabilities?: object;
}
function call({ url = one, headers = FIRST, name = "effect", args = {}, state, capabilities = CLIENT }: Call): Promise<Reply> {
  const answered = state === undefined ? {} : { requestState: state, inputResponses: { form: { action: "accept", content: { name: "Ada" } } } };
  return stateless(url, headers, { id: 1, method: "tools/call", params: { name, arguments: args, ...answered } }, capabilities);
}
async function begin(more: Call = {}): Promise<string> {
  const { messages } = await call(more);
  expect(messages.at(-1)?.result).toMatchObject({ resultType: "input_required", inputRequests: { form: { method: "elicitation/create" } } });
  return String(messages.at(-1)?.result.requestState);
}
const refusal = (reply: Reply) => reply.messages.at(-1)?.error?.code;

describe("a sealed state", () => {
  test("is taken up on another replica, once", async () => {
    const state = await begin();
    const done = await call({ url: other, state });
    expect(done.messages.at(-1)?.result.content).toEqual([{ type: "text", text: "did it for Ada" }]);
    const before = tools.effects.length;
    for (const url of doors.urls) expect(refusal(await call({ url, state }))).toBe(-32_602);
    expect(tools.effects).toHaveLength(before);
  });

  test("shows nothing of what is in it", async () => {
    const state = await begin();
    expect(Buffer.from(state, "base64url").toString("latin1")).not.toContain("for it");
  });

  test("with any byte changed is refused", async () => {
    const state = await begin();
    const before = tools.effects.length;
    const bytes = Buffer.from(state, "base64url");
    for (let at = 0; at < bytes.length; at += 7) {
      const changed = Buffer.from(bytes);
      changed[at] = (changed[at] ?? 0) ^ 1;
      expect(refusal(await call({ state: changed.toString("base64url") })), `byte ${at}`).toBe(-32_602);
    }
    for (const changed of [`${state}=`, `${state}A`, state.slice(0, -1), "", "x", "__proto__"])
      expect(refusal(await call({ state: changed }))).toBe(-32_602);
    expect(tools.effects).toHaveLength(before);
  });

  const elsewhere: [string, Call][] = [
    ["another caller", { headers: SECOND }],
    ["other arguments", { args: { what: "more" } }],
    ["another tool", { name: "other" }],
  ];
  test.each(elsewhere)("is refused from %s, and still good for its own", async (_what, more) => {
    const state = await begin();
    expect(refusal(await call({ ...more, state }))).toBe(-32_602);
    expect((await call({ state })).messages.at(-1)?.result.content[0].text).toContain("did it");
  });

  test("is refused when its time is over", async () => {
    const state = await begin();
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + 11 * 60_000 });
    try {
      expect(refusal(await call({ state }))).toBe(-32_602);
    } finally {
      vi.useRealTimers();
    }
    expect((await call({ state })).messages.at(-1)?.result.content[0].text).toBe("did it for Ada");
  });

  test("of another kind of request is refused", async () => {
    const state = await begin();
    const reply = await stateless(one, FIRST, { id: 1, method: "resources/read", params: { uri: "test://x", requestState: state } }, CLIENT);
    expect(refusal(reply)).toBe(-32_602);
  });
});

describe("what a client can't answer is not asked", () => {
  test("in the stateless era: the capability that is missing is named", async () => {
    const reply = await call({ capabilities: {} });
    expect(reply.status).toBe(400);
    expect(reply.messages.at(-1)?.error).toMatchObject({ code: -32_021, data: { requiredCapabilities: { elicitation: {} } } });
  });

  test("in the handshake era: an error result", async () => {
    const opened = await handshake(one, FIRST, { capabilities: { elicitation: { url: {} } } });
    const reply = await opened.call(1, "tools/call", { name: "effect", arguments: {} });
    expect(reply.messages.map(({ method }) => method)).toEqual([undefined]);
    expect(reply.messages[0]?.result).toMatchObject({ isError: true });
  });
});

describe("headers and body of the stateless era", () => {
  const params = { name: "echo", arguments: { text: "x" } };
  const cases: [string, Record<string, string>, number][] = [
    ["another method", { "mcp-method": "tools/list" }, -32_020],
    ["another name", { "mcp-name": "count" }, -32_020],
    ["a name that is no base64", { "mcp-name": "=?base64?%%%?=" }, -32_020],
    ["another revision", { "mcp-protocol-version": "2026-01-01" }, -32_020],
    ["a revision of the era before", { "mcp-protocol-version": "2025-11-25" }, -32_020],
  ];
  test.each(cases)("%s in the header is refused", async (_what, headers, code) => {
    const reply = await stateless(one, { ...FIRST, ...headers }, { id: 1, method: "tools/call", params });
    expect(reply.status).toBe(400);
    expect(refusal(reply)).toBe(code);
  });

  test("a revision that is not served is named beside those that are", async () => {
    const meta = {
      "io.modelcontextprotocol/protocolVersion": "2099-01-01",
      "io.modelcontextprotocol/clientInfo": { name: "t", version: "1" },
      "io.modelcontextprotocol/clientCapabilities": {},
    };
    const body = { jsonrpc: "2.0", id: 1, method: "tools/list", params: { _meta: meta } };
    const reply = await post(one, body, { ...FIRST, "mcp-protocol-version": "2099-01-01", "mcp-method": "tools/list" });
    expect(reply.status).toBe(400);
    expect(reply.messages[0]?.error).toMatchObject({ code: -32_022, data: { supported: [STATELESS] } });
  });

  test("in the handshake era such headers decide nothing", async () => {
    const { headers } = await handshake(one, FIRST);
    const body = { jsonrpc: "2.0", id: 1, method: "tools/call", params };
    const reply = await post(one, body, { ...headers, "mcp-method": "tools/list", "mcp-name": "count" });
    expect(reply.messages.at(-1)?.result.content[0].text).toContain("x");
  });

  test("a session id counts for nothing", async () => {
    const reply = await stateless(one, { ...FIRST, "mcp-session-id": "mcps_unknown" }, { id: 1, method: "tools/list" });
    expect(reply.status).toBe(200);
  });
});

test("reserved names in a request are not believed: who calls is who has the key", async () => {
  const forged = { "io.modelcontextprotocol/serverInfo": { name: "forged" }, "io.modelcontextprotocol/subscriptionId": "forged", caller: "someone" };
  const reply = await stateless(one, FIRST, { id: 1, method: "tools/call", params: { name: "echo", arguments: { text: "x" }, _meta: forged } });
  expect(reply.status).toBe(200);
  expect(reply.text).not.toContain("forged");
});

test("handles of one caller are unknown to another", async () => {
  const [mine, theirs] = await Promise.all(
    [FIRST, SECOND].map(
      async (headers) => (await stateless(one, headers, { id: 1, method: "resources/list" })).messages[0]?.result.resources[0].uri as string,
    ),
  );
  for (const uri of [theirs, "test://of/nobody"]) {
    const reply = await stateless(one, FIRST, { id: 1, method: "resources/read", params: { uri } });
    expect(reply.messages[0]?.error).toMatchObject({ code: -32_602, message: "There is no such resource." });
    const opened = await handshake(one, FIRST);
    expect(refusal(await opened.call(1, "resources/subscribe", { uri }))).toBe(-32_002);
  }
  expect((await stateless(one, FIRST, { id: 1, method: "resources/read", params: { uri: mine } })).messages[0]?.result.contents[0].uri).toBe(mine);
});

test("what a list says to one caller is for that caller alone", async () => {
  for (const method of ["tools/list", "resources/list"]) {
    const { messages } = await stateless(one, FIRST, { id: 1, method });
    expect(messages[0]?.result).toMatchObject({ cacheScope: "private" });
  }
});

test("a bug says nothing of the inside, to callers; the log has it", async () => {
  const opened = await handshake(one, FIRST);
  const args = { name: "leak", arguments: {} };
  for (const reply of [await stateless(one, FIRST, { id: 1, method: "tools/call", params: args }), await opened.call(1, "tools/call", args)]) {
    expect(reply.messages.at(-1)?.error).toEqual({ code: -32_603, message: "Internal error" });
    expect(reply.text).not.toMatch(/hunter2|upstream|vault|at .*\.ts/);
  }
});
