// Sessions whose agents use MCP servers that want a credential: it lies in a vault, is put in by the vault proxy, and is seen nowhere else.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { servers } from "../harnesses/agents.ts";
import { RawServer, says, tool } from "../support/mcp/raw.ts";
import { Caller } from "../vault-proxy/mcp-kit.ts";
import { startNode, type TestNode, type TestSession, until } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const TOKEN = "canary-bearer-of-a-server-0123456789";
let node: TestNode;
let caller: Caller;
const started: RawServer[] = [];

beforeAll(async () => {
  node = await startNode({ internalHosts: ["127.0.0.1"] });
  caller = new Caller(node.vaultUrl, node.signer);
});
beforeEach(async () => {
  await node.work();
});
afterEach(async () => {
  await node.rest();
  await Promise.all(started.splice(0).map((server) => server.close()));
});
afterAll(() => node.close());

/** A server that lets in who has this token. */
async function guarded(token: () => string | null, more: Parameters<typeof RawServer.start>[0] = {}): Promise<RawServer & { refused: number }> {
  const counts = { refused: 0 };
  const server = await RawServer.start({
    hasSessions: true,
    tools: [tool("search")],
    call: () => says("found"),
    ...more,
    script: ({ request, response }) => {
      const wanted = token();
      if (wanted === null || request.headers.authorization === `Bearer ${wanted}`) return false;
      counts.refused += 1;
      response.writeHead(401, { "www-authenticate": "Bearer" }).end();
      return true;
    },
  });
  started.push(server);
  return Object.assign(server, {
    get refused() {
      return counts.refused;
    },
  });
}

const open = (server: RawServer, vaultIds: readonly string[]): Promise<TestSession> => {
  const { tools, mcp_servers } = servers({ docs: server.url });
  return node.open(tools, { mcp_servers }, vaultIds);
};
const errorsOf = async (session: TestSession) => (await session.log()).flatMap(({ entry }) => (entry.type === "session.error" ? [entry.error] : []));
const CALL = 'call mcp__docs__search: {"text":"x"}\necho: got';

describe("a session with a vault", () => {
  test("uses a server that wants a bearer token, which is in no entry, no log line and nothing that the model was sent", async () => {
    const server = await guarded(() => TOKEN);
    const vault = await caller.bearer(server.url, TOKEN);
    const session = await open(server, [vault]);
    await session.say(CALL);
    await session.idle();
    expect(await session.texts()).toEqual(["got found"]);
    expect([await errorsOf(session), server.count("tools/call")]).toEqual([[], 1]);
    expect(server.headers.every(({ authorization }) => authorization === `Bearer ${TOKEN}`)).toBe(true);
    const told = [JSON.stringify(await session.log()), JSON.stringify(node.logged), node.others.join(""), JSON.stringify(node.model.requests().map(({ body }) => body))];
    for (const text of told) {
      expect(text.length).toBeGreaterThan(0);
      expect(text).not.toContain(TOKEN);
      // Nor is what lets the hand host use it.
      expect(text).not.toMatch(/eyJhbGciOi/);
    }
  });

  test("speaks to a server for which its vaults have nothing as one without vaults does", async () => {
    const server = await guarded(() => null);
    const session = await open(server, [await caller.bearer("http://127.0.0.1:9/mcp", TOKEN)]);
    await session.say(CALL);
    await session.idle();
    expect(await session.texts()).toEqual(["got found"]);
    expect(server.headers.map(({ authorization }) => authorization)).toEqual(server.headers.map(() => undefined));
  });

  test("that has nothing for a server which wants a credential is told so, by the type of the error", async () => {
    const server = await guarded(() => TOKEN);
    const session = await open(server, [await caller.vault()]);
    await session.say("say: hello");
    await session.idle();
    expect(await errorsOf(session)).toEqual([expect.objectContaining({ type: "mcp_authentication_failed_error", mcp_server_name: "docs" })]);
    expect(await session.texts()).toEqual(["hello"]);
  });

  test("picks up a token that was changed, while it runs; a call with a dead one says so to the model and to the session", async () => {
    let token = TOKEN;
    const server = await guarded(() => token);
    const vault = await caller.vault();
    const credential = await caller.credential(vault, { type: "static_bearer", mcp_server_url: server.url, token: TOKEN });
    const session = await open(server, [vault]);
    await session.say(CALL);
    await session.idle();
    token = "another-token-of-the-same-server";
    await session.say("call mcp__docs__search: {}\necho: then");
    await until(async () => (await session.texts()).length === 2, "the second answer");
    await session.idle();
    expect((await errorsOf(session)).map(({ type }) => type)).toContain("mcp_authentication_failed_error");
    expect((await session.results()).at(-1)).toMatchObject({ isError: true, text: expect.stringContaining("credentials") });
    await caller.api("POST", `/v1/vaults/${vault}/credentials/${credential}`, { auth: { type: "static_bearer", token } });
    await session.say("call mcp__docs__search: {}\necho: at last");
    await until(async () => (await session.texts()).length === 3, "the third answer");
    expect((await session.texts()).at(-1)).toBe("at last found");
    expect(JSON.stringify(await session.log())).not.toContain(token);
  });

  test("keeps a listening stream open and hears of changes through the vault proxy", async () => {
    const server = await guarded(() => TOKEN);
    const session = await open(server, [await caller.bearer(server.url, TOKEN)]);
    await session.say(CALL);
    await session.idle();
    await until(() => server.listeners > 0, "a listening stream");
    server.options.tools = [tool("search"), tool("more")];
    const before = server.count("tools/list");
    server.tell("notifications/tools/list_changed");
    await until(() => server.count("tools/list") > before, "the list is read again");
  });
});

test("a session without vaults goes directly, and brings no grant", async () => {
  const server = await guarded(() => null);
  const session = await open(server, []);
  await session.say(CALL);
  await session.idle();
  expect(await session.texts()).toEqual(["got found"]);
  expect(server.headers.every((headers) => headers.authorization === undefined && headers["x-manyhands-target"] === undefined)).toBe(true);
});
