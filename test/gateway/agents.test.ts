// Agents and environments (contract §3, §4, §9).

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Api } from "../support/api.ts";
import { makeAgent, makeEnvironment, newName, startApi } from "../support/api.ts";

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

const custom = (name: string, fields: object = {}) => ({ type: "custom", name, description: "d", input_schema: { type: "object" }, ...fields });
const post = (path: string, body?: unknown) => api.call("POST", path, body);

describe("agents", () => {
  test("a new agent is whole, and reads the same", async () => {
    const agent = await makeAgent(api, { name: "Ada", model: { id: "m", effort: "high" } });
    expect(agent).toEqual({
      id: expect.stringMatching(/^agent_/),
      type: "agent",
      version: 1,
      name: "Ada",
      description: null,
      model: { id: "m", effort: { type: "high" } },
      system: null,
      tools: [],
      mcp_servers: [],
      skills: [],
      multiagent: null,
      metadata: {},
      execution_identity: { type: "service_account" },
      created_at: expect.stringMatching(/^\d{4}-.*\.\d{3}Z$/),
      updated_at: expect.any(String),
      archived_at: null,
    });
    expect(await api.client.beta.agents.retrieve(agent.id)).toEqual(agent);
    expect(await api.client.beta.agents.retrieve(agent.id, { version: 1 })).toEqual(agent);
  });

  test("limits hold at their exact values", async () => {
    const make = async (fields: object) => (await post("/v1/agents", { name: "x", model: "m", ...fields })).status;
    const tools = (count: number) => Array.from({ length: count }, (_, index) => custom(`t${index}`));
    const pairs = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, "v"]));
    const servers = (count: number) => Array.from({ length: count }, (_, index) => ({ type: "url", name: `s${index}`, url: "https://a.example" }));
    const toolsets = (count: number) => Array.from({ length: count }, (_, index) => ({ type: "mcp_toolset", mcp_server_name: `s${index}` }));
    const pairsOf: [fine: object, over: object][] = [
      [{ name: "x".repeat(256) }, { name: "x".repeat(257) }],
      [{ name: "x" }, { name: "" }],
      [{ description: "x".repeat(2048) }, { description: "x".repeat(2049) }],
      [{ system: "x".repeat(100_000) }, { system: "x".repeat(100_001) }],
      [{ tools: tools(256) }, { tools: tools(257) }],
      [
        { mcp_servers: servers(20), tools: toolsets(20) },
        { mcp_servers: servers(21), tools: toolsets(21) },
      ],
      [{ metadata: pairs(16) }, { metadata: pairs(17) }],
      [{ metadata: { ["k".repeat(64)]: "v".repeat(512) } }, { metadata: { ["k".repeat(65)]: "v" } }],
      [{ metadata: {} }, { metadata: { k: "v".repeat(513) } }],
      [{ metadata: { k: "" } }, { metadata: { "": "v" } }],
      [{ tools: [custom("t".repeat(128))] }, { tools: [custom("t".repeat(129))] }],
    ];
    for (const [fine, over] of pairsOf) expect([await make(fine), await make(over)]).toEqual([200, 400]);
  });

  test("tools are resolved: defaults, and the default under each named tool", async () => {
    const agent = await makeAgent(api, {
      tools: [
        {
          type: "agent_toolset_20260401",
          default_config: { permission_policy: { type: "always_ask" } },
          configs: [{ name: "bash", enabled: false }],
        },
        { type: "mcp_toolset", mcp_server_name: "tracker", configs: [{ name: "find", permission_policy: { type: "always_allow" } }] },
      ],
      mcp_servers: [{ type: "url", name: "tracker", url: "https://mcp.example.com/mcp" }],
    });
    expect(agent.tools).toEqual([
      {
        type: "agent_toolset_20260401",
        default_config: { enabled: true, permission_policy: { type: "always_ask" } },
        configs: [{ name: "bash", type: "bash", enabled: false, permission_policy: { type: "always_ask" } }],
      },
      {
        type: "mcp_toolset",
        mcp_server_name: "tracker",
        default_config: { enabled: true, permission_policy: { type: "always_ask" } },
        configs: [{ name: "find", enabled: true, permission_policy: { type: "always_allow" } }],
      },
    ]);
  });

  test("tools that can't be are refused with their path", async () => {
    const toolset = (configs: object[]) => ({ type: "agent_toolset_20260401", configs });
    const cases: [tools: object[], says: string][] = [
      [[custom("has space")], "tools.0.name"],
      [[custom("a"), custom("a")], "tools.1.name: is given twice"],
      [[custom("bash")], "tools.0.name: is the name of a built-in tool"],
      [[custom("mcp__x")], "tools.0.name"],
      [[custom("a", { description: "" })], "tools.0.description"],
      [[custom("a", { input_schema: { type: "string" } })], "tools.0.input_schema.type"],
      [[custom("a", { input_schema: { type: "object", anyOf: [] } })], "tools.0.input_schema.anyOf"],
      [[custom("a", { input_schema: { type: "object", properties: { "a b": {} } } })], "tools.0.input_schema.properties"],
      [[custom("a", { input_schema: { type: "object", properties: { x: { $ref: "#/y" } } } })], "tools.0.input_schema: `$ref`"],
      [[toolset([{ name: "teleport" }])], "tools.0.configs.0.name"],
      [[toolset([{ name: "bash" }, { name: "bash" }])], "tools.0.configs.1.name: is given twice"],
      [[toolset([{ name: "bash", type: "read" }])], "tools.0.configs.0.type"],
      [[toolset([]), toolset([])], "tools.1: is given twice"],
      [[{ type: "mcp_toolset", mcp_server_name: "none" }], "tools.0.mcp_server_name"],
      [[{ type: "dreams" }], "tools.0.type"],
    ];
    for (const [tools, says] of cases) {
      const answer = await post("/v1/agents", { name: "x", model: "m", tools });
      expect([answer.status, answer.body.error.message]).toEqual([400, expect.stringContaining(says)]);
    }
    const property = { type: "object", properties: { $ref: { type: "string" } } };
    expect((await post("/v1/agents", { name: "x", model: "m", tools: [custom("a", { input_schema: property })] })).status).toBe(400);
    const server = { type: "url", name: "s", url: "https://a.example" };
    expect((await post("/v1/agents", { name: "x", model: "m", mcp_servers: [server] })).body.error.message).toContain("mcp_servers.0");
  });

  test("an update makes a version, a no-op none; a stale version is refused either way", async () => {
    const agent = await makeAgent(api, { system: "one", metadata: { keep: "1", drop: "2" }, model: { id: "m", effort: "low" } });
    const { agents } = api.client.beta;
    expect(await agents.update(agent.id, { system: "one", metadata: { keep: "1" }, version: 1 })).toEqual(agent);
    const second = await agents.update(agent.id, { system: "two", metadata: { drop: null, add: "3" }, model: { id: "n" } });
    expect([second.version, second.system, second.metadata, second.model]).toEqual([
      2,
      "two",
      { keep: "1", add: "3" },
      { id: "n", effort: { type: "low" } },
    ]);
    const stale = await post(`/v1/agents/${agent.id}`, { system: "two", version: 1 });
    expect([stale.status, stale.body.error.type, stale.headers.get("x-should-retry")]).toEqual([409, "conflict_error", "false"]);
    expect((await agents.retrieve(agent.id, { version: 1 })).system).toBe("one");
    expect((await api.call("GET", `/v1/agents/${agent.id}?version=3`)).status).toBe(404);
    const listed = await agents.versions.list(agent.id);
    expect(listed.data.map((version) => version.version)).toEqual([2, 1]);
    const [one, two] = [await agents.versions.list(agent.id, { limit: 1 }), await agents.versions.list(agent.id, { limit: 10 })];
    expect(one.data).toEqual(two.data.slice(0, 1));
    for (const body of [{ name: null }, { name: "" }, { model: null }, { version: 0 }])
      expect((await post(`/v1/agents/${agent.id}`, body)).status).toBe(400);
    expect((await post(`/v1/agents/${agent.id}`, { system: "", description: null, tools: [] })).body.system).toBeNull();
  });

  test("parallel updates each make a version, none is lost", async () => {
    const agent = await makeAgent(api);
    const made = await Promise.all([1, 2, 3, 4, 5].map((k) => api.client.beta.agents.update(agent.id, { metadata: { [`k${k}`]: "v" } })));
    expect(made.map(({ version }) => version).sort()).toEqual([2, 3, 4, 5, 6]);
    expect(Object.keys((await api.client.beta.agents.retrieve(agent.id)).metadata).sort()).toEqual(["k1", "k2", "k3", "k4", "k5"]);
  });

  test("an archived agent is hidden, can't be changed, and is archived once", async () => {
    const agent = await makeAgent(api);
    const archived = await api.client.beta.agents.archive(agent.id);
    expect(archived.archived_at).toMatch(/Z$/);
    expect(await api.client.beta.agents.archive(agent.id)).toEqual(archived);
    expect((await post(`/v1/agents/${agent.id}`, { system: "x" })).status).toBe(400);
    const ids = async (query: string) => (await api.call("GET", `/v1/agents?limit=100${query}`)).body.data.map(({ id }: { id: string }) => id);
    expect(await ids("")).not.toContain(agent.id);
    expect(await ids("&include_archived=true")).toContain(agent.id);
  });

  test("pages of any size give the whole list, newest first", async () => {
    const made: string[] = [];
    for (let count = 0; count < 7; count += 1) made.push((await makeAgent(api)).id);
    const newest = made.reverse();
    for (const limit of [1, 2, 3, 6, 7, 100]) {
      const seen: string[] = [];
      for await (const agent of api.client.beta.agents.list({ limit })) {
        seen.push(agent.id);
        if (seen.length === newest.length) break;
      }
      expect(seen).toEqual(newest);
    }
    const { next_page } = (await api.call("GET", "/v1/agents?limit=1")).body;
    expect((await api.call("GET", `/v1/environments?page=${next_page}`)).status).toBe(400);
    const since = encodeURIComponent(new Date(Date.now() + 60_000).toISOString());
    expect((await api.call("GET", `/v1/agents?page=${next_page}&created_at[gte]=${since}`)).status).toBe(400);
  });
});

describe("environments", () => {
  test("a new environment is fully expanded; an update merges into its config", async () => {
    const made = await makeEnvironment(api, { config: { type: "cloud", networking: { type: "limited", allowed_hosts: ["a.example"] } } });
    const networking = { type: "limited", allowed_hosts: ["a.example"], allow_mcp_servers: false, allow_package_managers: false };
    const packages = { type: "packages", apt: [], cargo: [], gem: [], go: [], npm: [], pip: [] };
    expect([made.type, made.scope, made.config]).toEqual(["environment", "organization", { type: "cloud", networking, packages }]);
    const path = `/v1/environments/${made.id}`;
    expect((await post(path, { config: { type: "cloud", packages: { pip: ["x"] } } })).status).toBe(400);
    const merged = await post(path, {
      config: { type: "cloud", networking: { type: "limited", allow_package_managers: true }, packages: { pip: ["x"] } },
      metadata: { a: "1", b: "2" },
    });
    expect(merged.body.config).toEqual({
      type: "cloud",
      networking: { ...networking, allow_package_managers: true },
      packages: { ...packages, pip: ["x"] },
    });
    expect((await post(path, { metadata: { a: "", b: null, c: "3" } })).body.metadata).toEqual({ c: "3" });
    const open = await post(path, { config: { type: "cloud", networking: { type: "unrestricted" } } });
    expect(open.body.config.packages.pip).toEqual(["x"]);
  });

  test("refusals carry the contract's error codes", async () => {
    const { id } = await makeEnvironment(api);
    const code = async (body: object) => (await post(`/v1/environments/${id}`, body)).body.error.details?.error_code;
    expect(await code({ config: { type: "self_hosted" } })).toBe("invalid_config_type_change");
    expect(await code({ metadata: { k: 5 } })).toBe("invalid_metadata");
    await post(`/v1/environments/${id}/archive`);
    expect(await code({ description: "x" })).toBe("environment_archived");
    expect((await post("/v1/environments", { name: "x", scope: "account" })).status).toBe(400);
  });

  test("a name is taken once among the live ones", async () => {
    const made = await makeEnvironment(api);
    const other = await makeEnvironment(api);
    const taken = await post("/v1/environments", { name: made.name });
    expect([taken.status, taken.headers.get("x-should-retry")]).toEqual([409, "false"]);
    expect((await post(`/v1/environments/${other.id}`, { name: made.name })).status).toBe(409);
    await post(`/v1/environments/${made.id}/archive`);
    expect((await post("/v1/environments", { name: made.name })).status).toBe(200);
  });

  test("one in use can't be deleted; once its sessions are gone it can", async () => {
    const agent = await makeAgent(api);
    const environment = await makeEnvironment(api);
    const session = await api.client.beta.sessions.create({ agent: agent.id, environment_id: environment.id });
    expect((await api.call("DELETE", `/v1/environments/${environment.id}`)).status).toBe(400);
    expect((await post(`/v1/environments/${environment.id}/archive`)).status).toBe(200);
    expect((await post("/v1/sessions", { agent: agent.id, environment_id: environment.id })).status).toBe(400);
    await api.client.beta.sessions.delete(session.id);
    expect((await api.call("DELETE", `/v1/environments/${environment.id}`)).body).toEqual({ id: environment.id, type: "environment_deleted" });
    expect((await api.call("GET", `/v1/environments/${environment.id}`)).status).toBe(404);
    expect((await post("/v1/sessions", { agent: agent.id, environment_id: environment.id })).status).toBe(404);
  });

  test("sessions on a self-hosted environment are refused by name", async () => {
    const agent = await makeAgent(api);
    const { id } = await makeEnvironment(api, { name: newName(), config: { type: "self_hosted" } });
    const answer = await post("/v1/sessions", { agent: agent.id, environment_id: id });
    expect([answer.status, answer.body.error.message]).toEqual([400, expect.stringContaining("self-hosted")]);
  });
});
