// The door itself: keys, envelopes, bodies, queries (contract §1).

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Api } from "../support/api.ts";
import { API_KEY, makeSession, newName, say, startApi } from "../support/api.ts";

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

const bare = (path: string, headers: Record<string, string>, init: RequestInit = {}) => fetch(`${api.url}${path}`, { ...init, headers });

describe("keys", () => {
  test("a bearer, an x-api-key, and both when they are equal, are let in", async () => {
    for (const headers of [
      { authorization: `Bearer ${API_KEY}` },
      { "x-api-key": API_KEY },
      { authorization: `Bearer ${API_KEY}`, "x-api-key": API_KEY },
      { authorization: "Bearer test-key-2" },
    ])
      expect((await bare("/v1/agents", headers as unknown as Record<string, string>)).status).toBe(200);
  });

  test("no key, a wrong one, an empty one, two different ones and another scheme are 401, known path or not", async () => {
    for (const headers of [
      {},
      { "x-api-key": "nope" },
      { "x-api-key": "" },
      { authorization: `Bearer ${API_KEY}`, "x-api-key": "test-key-2" },
      { authorization: `Basic ${API_KEY}` },
    ])
      for (const path of ["/v1/agents", "/v1/nothing"]) {
        const answer = await bare(path, headers as unknown as Record<string, string>);
        const body = (await answer.json()) as { error: { type: string } };
        expect([answer.status, body.error.type]).toEqual([401, "authentication_error"]);
      }
  });

  test("no key is ever logged or said back", async () => {
    const answer = await bare("/v1/agents", { "x-api-key": "canary-key-774" });
    expect(await answer.text()).not.toContain("canary");
    expect(api.logged.join()).not.toContain("canary-key-774");
  });
});

describe("answers", () => {
  test("every answer has a request id, an error also in its body", async () => {
    const fine = await api.call("GET", "/v1/agents");
    expect(fine.headers.get("request-id")).toMatch(/^req_/);
    const wrong = await api.call("GET", "/v1/agents/agent_x");
    expect(wrong.body).toEqual({
      type: "error",
      error: { type: "not_found_error", message: "There is no such agent." },
      request_id: wrong.headers.get("request-id"),
    });
  });

  test("an unknown path is 404, a known one with another method 405 that names the right ones", async () => {
    expect((await api.call("GET", "/v1/nothing")).status).toBe(404);
    expect((await api.call("POST", "/v1/vaults", {})).status).toBe(404);
    expect((await api.call("GET", "/v1/agents/%E0%A4%A")).status).toBe(404);
    const wrong = await api.call("PUT", "/v1/agents");
    expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "GET, POST"]);
    expect((await bare("/v1/sessions/sesn_x/stream", { "x-api-key": API_KEY }, { method: "HEAD" })).status).toBe(405);
  });

  test("an unknown API version is refused, known ones and none are not", async () => {
    const status = async (version: string) => (await api.call("GET", "/v1/agents", undefined, { "anthropic-version": version })).status;
    expect(await Promise.all(["2026-10-21", "2023-06-01", "2020-01-01"].map(status))).toEqual([200, 200, 400]);
  });

  test("health needs no key", async () => {
    expect((await bare("/healthz", {})).status).toBe(200);
    expect((await bare("/readyz", {})).status).toBe(200);
  });
});

describe("bodies", () => {
  test("what is not JSON in UTF-8 is 400, and is not said back", async () => {
    for (const body of ['{"name": "secret-9', "", "[1,2", Buffer.from([0x22, 0xff, 0x22])]) {
      const answer = await api.call("POST", "/v1/agents", body);
      expect([answer.status, answer.body.error.message]).toEqual([400, "body: The request body is not valid JSON"]);
    }
  });

  test("a body over 32 MB is 413 with an envelope, and the connection survives it or ends cleanly", async () => {
    const answer = await api.call("POST", "/v1/agents", Buffer.alloc(33 * 1024 * 1024, 0x20));
    expect([answer.status, answer.body.error.type]).toEqual([413, "request_too_large"]);
  });

  test("deep nesting and __proto__ are refused", async () => {
    const deep = `{"name":"x","model":"m","metadata":${"[".repeat(50_000)}${"]".repeat(50_000)}}`;
    expect((await api.call("POST", "/v1/agents", deep)).status).toBe(400);
    const proto = await api.call("POST", "/v1/agents", '{"name":"x","model":"m","metadata":{"__proto__":"y"}}');
    expect([proto.status, proto.body.error.message]).toEqual([400, "__proto__: Extra inputs are not permitted"]);
  });

  test("messages start with the path and hold no value", async () => {
    const answer = await api.call("POST", "/v1/agents", {
      model: "m",
      system: 77,
      tools: [{ type: "custom", name: "secret value", input_schema: 1 }],
    });
    const { message } = answer.body.error;
    expect(message).toContain("name: Field required");
    expect(message).toContain("system: Invalid input: expected string");
    expect(message).toContain("tools.0.name: must be");
    expect(message).not.toMatch(/77|secret value/);
  });

  test("an unknown field is refused by name at any depth", async () => {
    const { id } = await makeSession(api);
    const cases: [path: string, body: unknown, says: string][] = [
      ["/v1/agents", { name: "x", model: "m", bogus: 1 }, "bogus"],
      ["/v1/agents", { name: "x", model: { id: "m", bogus: 1 } }, "model.bogus"],
      ["/v1/agents", { name: "x", model: "m", tools: [{ type: "agent_toolset_20260401", bogus: 1 }] }, "tools.0.bogus"],
      [
        "/v1/agents",
        {
          name: "x",
          model: "m",
          tools: [{ type: "agent_toolset_20260401", configs: [{ name: "bash", permission_policy: { type: "auto", bogus: 1 } }] }],
        },
        "tools.0.configs.0.permission_policy.bogus",
      ],
      ["/v1/environments", { name: "x", config: { type: "cloud", bogus: 1 } }, "config.bogus"],
      ["/v1/environments", { name: "x", config: { type: "cloud", packages: { bogus: [] } } }, "config.packages.bogus"],
      ["/v1/sessions", { agent: "a", environment_id: "e", bogus: 1 }, "bogus"],
      ["/v1/sessions", { agent: { type: "agent", id: "a", bogus: 1 }, environment_id: "e" }, "agent.bogus"],
      ["/v1/sessions", { agent: "a", environment_id: "e", initial_events: [{ ...say("x"), bogus: 1 }] }, "initial_events.0.bogus"],
      [`/v1/sessions/${id}`, { bogus: 1 }, "bogus"],
      [`/v1/sessions/${id}`, { agent: { bogus: 1 } }, "agent.bogus"],
      [`/v1/sessions/${id}/events`, { events: [], bogus: 1 }, "bogus"],
      [`/v1/sessions/${id}/events`, { events: [{ ...say("x"), bogus: 1 }] }, "events.0.bogus"],
      [`/v1/sessions/${id}/events`, { events: [{ ...say("x"), id: "sevt_x" }] }, "events.0.id"],
      [
        `/v1/sessions/${id}/events`,
        { events: [say("x"), { type: "user.message", content: [{ type: "text", text: "x", bogus: 1 }] }] },
        "events.1.content.0.bogus",
      ],
      [
        `/v1/sessions/${id}/events`,
        { events: [{ type: "user.message", content: [{ type: "image", source: { type: "url", url: "https://a.example/b", bogus: 1 } }] }] },
        "events.0.content.0.source.bogus",
      ],
    ];
    for (const [path, body, name] of cases) {
      const answer = await api.call("POST", path, body);
      expect([answer.status, answer.body.error.message]).toEqual([400, expect.stringContaining(`${name}: Extra inputs are not permitted`)]);
    }
  });

  test("what is not there yet is refused by name, its absence is not", async () => {
    const agent = { name: newName(), model: "m" };
    const { id } = await makeSession(api);
    const cases: [string, unknown, string][] = [
      ["/v1/agents", { ...agent, skills: [{ type: "custom", skill_id: "s" }] }, "skills: is not supported"],
      ["/v1/agents", { ...agent, multiagent: { type: "coordinator", agents: [] } }, "multiagent: is not supported"],
      ["/v1/agents", { ...agent, execution_identity: { type: "aws_role" } }, "execution_identity.type: only service_account is supported"],
      [
        "/v1/agents",
        { ...agent, tools: [{ type: "agent_toolset_20260401", configs: [{ name: "web_fetch", url_sources: { user_input: "all" } }] }] },
        "tools.0.configs.0.url_sources: is not supported",
      ],
      [
        "/v1/sessions",
        { agent: "a", environment_id: "e", resources: [{ type: "file", file_id: "f" }] },
        "resources.0.type: only `github_repository` resources are supported",
      ],
      ["/v1/sessions", { agent: "a", environment_id: "e", budget: { type: "limit" } }, "budget: is not supported"],
      [`/v1/sessions/${id}`, { budget: { type: "limit" } }, "budget: is not supported"],
      [`/v1/sessions/${id}`, { vault_ids: [] }, "vault_ids: can't be changed after the session was created"],
      [`/v1/sessions/${id}`, { vault_ids: null }, "vault_ids: can't be changed after the session was created"],
      [
        `/v1/sessions/${id}/events`,
        { events: [{ type: "user.define_outcome", description: "d", rubric: { type: "file", file_id: "f" } }] },
        "events.0.rubric: `file` rubrics are not supported: there are no files here yet",
      ],
      [
        `/v1/sessions/${id}/events`,
        { events: [{ type: "user.message", content: [{ type: "image", source: { type: "file", file_id: "f" } }] }] },
        "events.0.content.0.source: `file` sources are not supported",
      ],
    ];
    for (const [path, body, says] of cases) {
      const answer = await api.call("POST", path, body);
      expect([answer.status, answer.body.error.message]).toEqual([400, says]);
    }
    const nothing = {
      skills: [],
      multiagent: null,
      execution_identity: { type: "service_account" },
      tools: null,
      mcp_servers: null,
      description: null,
    };
    expect((await api.call("POST", "/v1/agents", { ...agent, ...nothing })).status).toBe(200);
  });
});

describe("queries", () => {
  test("brackets, the bare form, encoded or not, and beta, are taken", async () => {
    const { id } = await makeSession(api);
    const status = async (query: string) => (await api.call("GET", `/v1/sessions/${id}/events?${query}`)).status;
    for (const query of [
      "types[]=user.message&types[]=agent.message",
      "types%5B%5D=user.message",
      "types=user.message&types=agent.message",
      "types=user.message&beta=true",
      "created_at[gte]=2020-01-01T00:00:00Z&created_at%5Blt%5D=2020-01-01T00:00:00%2B02:00",
      "created_at[gt]=2020-01-01T00:00:00+02:00",
      "page=",
    ])
      expect([query, await status(query)]).toEqual([query, 200]);
  });

  test("unknown names, values out of range, doubled values and garbage are 400 and named", async () => {
    const { id } = await makeSession(api);
    const events = `/v1/sessions/${id}/events`;
    const cases: [string, string][] = [
      ["/v1/agents?bogus=1", "bogus"],
      ["/v1/agents?limit=0", "limit"],
      ["/v1/agents?limit=101", "limit"],
      ["/v1/agents?limit=1&limit=2", "limit"],
      ["/v1/agents?limit=ten", "limit"],
      ["/v1/agents?include_archived=maybe", "include_archived"],
      ["/v1/agents?page=page_garbage", "page"],
      ["/v1/agents?page=nothing", "page"],
      ["/v1/agents?created_at[gte]=yesterday", "created_at[gte]"],
      ["/v1/agents?created_at[gt]=2020-01-01T00:00:00Z", "created_at[gt]"],
      ["/v1/sessions?limit=101", "limit"],
      ["/v1/sessions?statuses[]=dead", "statuses.0"],
      ["/v1/sessions?agent_version=1", "agent_version"],
      ["/v1/sessions?order=up", "order"],
      [`/v1/sessions/${id}?x=1`, "x"],
      [`${events}?limit=1001`, "limit"],
      [`${events}?types[]=user.shout`, "types.0"],
      [`${events}/stream?event_deltas[]=agent.tool_use`, "event_deltas.0"],
      [`${events}/stream?${Array.from({ length: 101 }, () => "event_deltas[]=agent.message").join("&")}`, "event_deltas"],
    ];
    for (const path of ["/v1/agents?bogus=1", `/v1/sessions/${id}/archive?bogus=1`, `/v1/sessions/${id}/events?bogus=1`])
      expect((await api.call("POST", path, {})).body.error.message).toContain("bogus: ");
    for (const [path, name] of cases) {
      const answer = await api.call("GET", path);
      expect([path, answer.status, answer.body.error?.message]).toEqual([path, 400, expect.stringContaining(`${name}: `)]);
    }
  });
});
