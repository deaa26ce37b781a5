// The registry of hands over HTTP: real servers, each asked by a real handshake.

import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { HAND_KIND } from "../../hands/registry.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";
import { startHandshake, startOldSse, startStateless } from "../support/mcp/eras.ts";
import { RawServer, tool } from "../support/mcp/raw.ts";
import { openRegistry, type RegistryDoor } from "../support/registry.ts";
import { startNode, type TestNode, until } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const PROGRAM = fileURLToPath(new URL("../../dist/test/support/mcp/stdio.js", import.meta.url));
const SECRET = "a-credential-of-the-operators-file";
const command = (mode: string) => ({
  type: "command" as const,
  command: { command: process.execPath, args: [PROGRAM, mode], env: { SERVER_TOKEN: SECRET }, cwd: null },
});

let node: TestNode;
let registry: RegistryDoor;
const started: { close(): Promise<void> }[] = [];
beforeAll(async () => {
  const configured = new Map([
    ["local", command("plain")],
    ["broken", command("exit")],
    ["Not A Name", command("plain")],
  ]);
  node = await startNode({ servers: { configured, times: { connectMs: 3_000, idleMs: 5_000, totalMs: 20_000 } } });
  registry = await openRegistry(node);
});
afterEach(async () => {
  await Promise.all(started.splice(0).map((server) => server.close()));
});
afterAll(async () => {
  await registry.close();
  await node.close();
});

async function serve(options: Parameters<typeof RawServer.start>[0] = {}): Promise<RawServer> {
  const server = await RawServer.start({ hasSessions: true, ...options });
  started.push(server);
  return server;
}
const http = (url: string) => ({ type: "http" as const, url });
const nameOf = ({ name }: { name: string }) => name;

test("a server is registered by a handshake, shown with what it said, and nothing of the handshake is left", async () => {
  const server = await serve({ tools: [tool("add", { annotations: { readOnlyHint: true } }), tool("search")] });
  const fields = { name: "docs", description: "Documents", transport: http(server.url), allowed_tools: ["add"], timeouts: { idle_ms: 1_000 } };
  const made = await registry.register(fields);
  expect(made).toMatchObject({
    id: "docs",
    type: "hand",
    source: "api",
    sharing: "session",
    transport: { type: "http", url: server.url },
    allowed_tools: ["add"],
    timeouts: { connect_ms: null, idle_ms: 1_000, total_ms: null },
    held_back: [],
    health: { status: "ready", error: null, server: { name: "raw", version: "1" }, protocol_version: "2025-06-18" },
  });
  expect(made.tools.map(nameOf)).toEqual(["add", "search"]);
  expect(made.tools[0]).toMatchObject({ input_schema: { type: "object" }, annotations: { readOnlyHint: true } });
  expect((await registry.call("GET", "/v1/hands/docs")).body).toEqual(made);
  const holder = { session: mintSession(), fence: 1 as Fence };
  const { host } = await node.hands.provision(holder, { environment_id: "e" }, AbortSignal.timeout(5_000));
  // The operator's own servers are looked at meanwhile.
  await until(async () => (await node.hands.instances(host, AbortSignal.timeout(5_000))).length === 1, "no hand but this one");
  await until(() => server.sessions.size === 0, "the end of the probe's session at the server");
});

test("the same registration again changes nothing; another one under its name is refused", async () => {
  const server = await serve();
  const fields = { name: "again", transport: http(server.url) };
  const made = await registry.register(fields);
  const asked = server.count("tools/list");
  expect(await registry.register(fields)).toEqual(made);
  expect(server.count("tools/list")).toBe(asked);
  const other = await registry.call("POST", "/v1/hands", { ...fields, description: "other" });
  expect([other.status, other.body.error.message]).toEqual([409, "name: a hand of this name is registered"]);
});

test("a server of every kind can be registered", async () => {
  for (const [name, start, type] of [
    ["handshake", startHandshake, "http"],
    ["stateless", startStateless, "http"],
    ["old-sse", startOldSse, "sse"],
    ["old-sse-found", startOldSse, "http"],
  ] as const) {
    const server = await start();
    started.push(server);
    const made = await registry.register({ name, transport: { type, url: server.url } });
    expect([name, made.health.status, made.tools.map(nameOf)]).toEqual([name, "ready", ["echo", "slow"]]);
  }
});

test("one that can't be reached is refused with the reason, and registered where that is asked for", async () => {
  const server = await serve();
  const { url, port } = server;
  await server.close();
  started.pop();
  const fields = { name: "away", transport: http(url) };
  const refused = await registry.call("POST", "/v1/hands", fields);
  expect([refused.status, refused.body.error.details]).toEqual([400, { error_code: "hand_unreachable" }]);
  expect(refused.body.error.message).toContain("ECONNREFUSED");
  expect((await registry.call("GET", "/v1/hands/away")).status).toBe(404);
  const made = await registry.register({ ...fields, allow_unreachable: true });
  expect(made).toMatchObject({ tools: null, health: { status: "failed", error: expect.stringContaining("ECONNREFUSED") } });
  await serve({ port, tools: [tool("back")] });
  const checked = (await registry.call("POST", "/v1/hands/away/check")).body;
  expect([checked.health.status, checked.health.error, checked.tools.map(nameOf)]).toEqual(["ready", null, ["back"]]);
});

test("a server that hangs is given up after the time that its registration says", async () => {
  const server = await serve({ script: () => true });
  const from = performance.now();
  const refused = await registry.call("POST", "/v1/hands", { name: "hangs", transport: http(server.url), timeouts: { connect_ms: 500 } });
  expect([refused.status, refused.body.error.message]).toEqual([400, expect.stringContaining("500 ms")]);
  expect(performance.now() - from).toBeLessThan(4_000);
});

test("a command never comes from a request: stdio is a name of the operator's file", async () => {
  const asked = (transport: unknown) => registry.call("POST", "/v1/hands", { name: "mine", transport });
  expect((await asked({ type: "stdio", server: "local", command: "sh" })).body.error.message).toBe(
    "transport.command: Extra inputs are not permitted",
  );
  expect((await asked({ type: "stdio", command: "sh", args: ["-c", "id"] })).status).toBe(400);
  expect((await asked({ type: "stdio", server: "nobody-named-this" })).body.error.message).toBe(
    "transport.server: the operator's file names no such server",
  );
  expect((await asked({ type: "http", url: "http://user:word@127.0.0.1/mcp" })).body.error.message).toContain("without a user name or password");
  expect((await registry.register({ name: "mine", transport: { type: "stdio", server: "local" } })).tools.map(nameOf)).toContain("pid");
});

test("the servers of the operator's file are hands by themselves, say what is wrong with them, and stay", async () => {
  await until(async () => (await registry.call("GET", "/v1/hands/broken")).body.health?.status === "failed", "the look at each of them");
  const listed = (await registry.call("GET", "/v1/hands?limit=100")).body;
  const ofFile = listed.data.filter(({ source }: { source: string }) => source === "file");
  expect(ofFile.map(nameOf).sort()).toEqual(["broken", "local"]);
  expect(ofFile.find(({ name }: { name: string }) => name === "local")).toMatchObject({
    transport: { type: "stdio", server: "local" },
    health: { status: "ready", server: { name: "stdio", version: "1" } },
    tools: ["big", "echo", "environment", "exit", "pid"],
  });
  expect(registry.logged.find(({ msg }) => msg === "hand.name_unfit")).toMatchObject({ server: "Not A Name" });
  expect(JSON.stringify([listed, registry.logged])).not.toContain(SECRET);
  expect((await registry.call("DELETE", "/v1/hands/local")).status).toBe(409);
  expect((await registry.call("POST", "/v1/hands", { name: "local", transport: http("http://127.0.0.1:9/mcp") })).status).toBe(409);
  expect((await registry.call("POST", "/v1/hands/local", { transport: http("http://127.0.0.1:9/mcp") })).body.error.message).toContain(
    "operator's file",
  );
  expect((await registry.call("POST", "/v1/hands/local", { sharing: "shared" })).body.sharing).toBe("shared");
  const noLonger = { kind: HAND_KIND, id: "was-there", replaces: 0 };
  const record = (await node.store.get("default", HAND_KIND, "local"))?.body as object;
  await node.store.put("default", [{ ...noLonger, body: { ...record, name: "was-there" } }]);
  expect((await registry.call("DELETE", "/v1/hands/was-there")).body).toEqual({ id: "was-there", type: "hand_deleted" });
});

test("what is left out of an update stays; another address is asked anew, and is another server", async () => {
  const [one, other] = [await serve({ tools: [tool("a")] }), await serve({ tools: [tool("b")] })];
  await registry.register({ name: "moves", description: "d", transport: http(one.url), allowed_tools: ["a"] });
  const same = (await registry.call("POST", "/v1/hands/moves", { allowed_tools: null, sharing: "shared" })).body;
  expect(same).toMatchObject({ description: "d", allowed_tools: null, sharing: "shared", tools: [{ name: "a" }] });
  const moved = (await registry.call("POST", "/v1/hands/moves", { transport: http(other.url) })).body;
  expect(moved).toMatchObject({ description: "d", sharing: "shared", tools: [{ name: "b" }], held_back: [] });
  const { url } = other;
  await other.close();
  started.pop();
  expect((await registry.call("POST", "/v1/hands/moves", { transport: http(`${url}/x`) })).status).toBe(400);
  expect((await registry.call("GET", "/v1/hands/moves")).body.transport.url).toBe(url);
});

test("lists come in pages; what is removed is gone, and its name is free", async () => {
  const server = await serve();
  for (const name of ["p1", "p2", "p3"]) await registry.register({ name, transport: http(server.url) });
  const names: string[] = [];
  for (let page: string | null = ""; page !== null; ) {
    const { body } = await registry.call("GET", `/v1/hands?limit=2${page && `&page=${page}`}`);
    names.push(...body.data.map(nameOf));
    page = body.next_page;
  }
  expect(names.slice(0, 3)).toEqual(["p3", "p2", "p1"]);
  expect(new Set(names).size).toBe(names.length);
  expect((await registry.call("DELETE", "/v1/hands/p2")).body).toEqual({ id: "p2", type: "hand_deleted" });
  for (const method of ["GET", "DELETE"]) expect((await registry.call(method, "/v1/hands/p2")).status).toBe(404);
  await registry.register({ name: "p2", description: "another", transport: http(server.url) });
});

test("vaults that are not there are refused, as a session's are", async () => {
  const refused = await registry.call("POST", "/v1/hands", { name: "v", transport: http("https://a.example/mcp"), vault_ids: ["vlt_none"] });
  expect([refused.status, refused.body.error.message]).toEqual([404, "vault_ids.0: There is no such vault."]);
});

test("an agent or a session that names a hand which nobody registered is refused by that name", async () => {
  const server = await serve();
  await registry.register({ name: "known", transport: http(server.url) });
  const body = (hand: string) => ({
    name: "a",
    model: "m",
    tools: [{ type: "mcp_toolset", mcp_server_name: "s" }],
    mcp_servers: [{ type: "url", name: "s", url: `hand:${hand}` }],
  });
  const refused = await registry.call("POST", "/v1/agents", body("unknown"));
  expect([refused.status, refused.body.error.message]).toEqual([400, 'mcp_servers.0.url: no hand named "unknown" is registered']);
  expect((await registry.call("POST", "/v1/agents", body("Not A Name"))).body.error.message).toContain("the name of a registered hand");
  const agent = await registry.call("POST", "/v1/agents", body("known"));
  expect([agent.status, agent.body.mcp_servers]).toEqual([200, [{ type: "url", name: "s", url: "hand:known" }]]);
  expect((await registry.call("POST", "/v1/agents", body("local"))).status).toBe(200);
  const changed = await registry.call("POST", `/v1/agents/${agent.body.id}`, { mcp_servers: body("unknown").mcp_servers });
  expect(changed.status).toBe(400);
  const environment = await registry.call("POST", "/v1/environments", { name: `e-${Date.now()}` });
  const session = { agent: agent.body.id, environment_id: environment.body.id };
  expect((await registry.call("POST", "/v1/sessions", session)).status).toBe(200);
  await registry.call("DELETE", "/v1/hands/known");
  const late = await registry.call("POST", "/v1/sessions", session);
  expect([late.status, late.body.error.message]).toEqual([400, 'agent.mcp_servers.0.url: no hand named "known" is registered']);
});

test("what is shown of a server that died, or came back, is true without anybody using it; two gateways ask it no more often than one", async () => {
  const server = await serve();
  const local = { name: "by-itself-local", transport: { type: "stdio", server: "local" } };
  const gateways = await Promise.all([0, 1].map(() => openRegistry(node, { handCheckMs: 1_000 })));
  const [one, other] = gateways;
  if (!one || !other) throw new Error("two gateways were opened");
  await one.register({ name: "by-itself", transport: http(server.url) });
  await one.register(local);
  const shown = async (name: string) => {
    const { body } = await other.call("GET", "/v1/hands");
    return body.data.find((hand: { name: string }) => hand.name === name).health;
  };
  const before = server.count("initialize");
  const since = performance.now();
  await until(() => server.count("initialize") >= before + 3, "it is asked again and again");
  // Each look is a second after the one before, at the least.
  expect(performance.now() - since).toBeGreaterThan(2_000);
  const lookedAt = (await shown("by-itself-local")).checked_at;
  const { port } = server;
  await server.close();
  await until(async () => (await shown("by-itself")).status === "failed", "it is shown to be down");
  // Refused, or cut in the middle of a look.
  expect((await shown("by-itself")).error).toMatch(/ECONN(REFUSED|RESET)/);
  await serve({ port });
  await until(async () => (await shown("by-itself")).status === "ready", "it is shown to be back");
  // A program is not started to be looked at.
  expect((await shown("by-itself-local")).checked_at).toBe(lookedAt);
  await Promise.all(gateways.map((gateway) => gateway.close()));
});
