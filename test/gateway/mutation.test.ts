// Bodies, queries and headers made by mutating valid ones: whatever comes, no answer is a 5xx, and every refusal is an envelope.

import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Api } from "../support/api.ts";
import { makeSession, newName, say, startApi } from "../support/api.ts";

const RUNS = 150;

let api: Api;
let paths: { readonly path: string; readonly body: object }[];
beforeAll(async () => {
  api = await startApi();
  const session = await makeSession(api);
  const agent = {
    name: "x",
    model: { id: "m", effort: "low" },
    description: "d",
    system: "s",
    tools: [
      { type: "agent_toolset_20260401", default_config: { enabled: true }, configs: [{ name: "bash", permission_policy: { type: "always_ask" } }] },
      { type: "mcp_toolset", mcp_server_name: "s" },
      { type: "custom", name: "t", description: "d", input_schema: { type: "object", properties: { a: { type: "string" } }, required: ["a"] } },
    ],
    mcp_servers: [{ type: "url", name: "s", url: "https://a.example/mcp" }],
    metadata: { k: "v" },
  };
  const environment = {
    name: newName(),
    config: { type: "cloud", networking: { type: "limited", allowed_hosts: ["a.example"], allow_package_managers: true }, packages: { pip: ["x"] } },
    metadata: { k: "v" },
  };
  paths = [
    { path: "/v1/agents", body: agent },
    { path: `/v1/agents/${session.agent.id}`, body: { ...agent, version: 1 } },
    { path: "/v1/environments", body: environment },
    { path: `/v1/environments/${session.environment_id}`, body: environment },
    {
      path: "/v1/sessions",
      body: {
        agent: { type: "agent_with_overrides", id: session.agent.id, system: null, tools: [], model: "m" },
        environment_id: session.environment_id,
        title: "t",
        metadata: { k: "v" },
        vault_ids: [],
        initial_events: [say("x")],
      },
    },
    {
      path: `/v1/sessions/${session.id}`,
      body: { title: "t", metadata: { k: null }, agent: { tools: agent.tools, mcp_servers: agent.mcp_servers } },
    },
    {
      path: `/v1/sessions/${session.id}/events`,
      body: {
        events: [
          say("x"),
          { type: "user.message", content: [{ type: "document", source: { type: "text", media_type: "text/plain", data: "x" }, title: "t" }] },
          { type: "user.tool_confirmation", tool_use_id: "sevt_x", result: "deny", deny_message: "m" },
          { type: "user.custom_tool_result", custom_tool_use_id: "sevt_x", content: [], is_error: false },
          { type: "user.interrupt" },
          { type: "system.message", content: [{ type: "text", text: "x" }] },
        ],
      },
    },
  ];
});
afterAll(() => api.close());

const oddValue: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom(null, "", 0, -1, 1e308, true, [], {}, [[]], "\u0000", "\ud800", "x".repeat(2000), { type: "x" }, { type: null }),
  fc.jsonValue({ maxDepth: 4 }),
);

/** Replaces, removes, doubles or adds at one random place of a body. */
function mutate(value: unknown, path: readonly number[], act: number, odd: unknown): unknown {
  const [step, ...rest] = path;
  const names = typeof value === "object" && value !== null ? Object.keys(value) : [];
  const name = step === undefined || names.length === 0 ? undefined : names[step % names.length];
  if (name === undefined) return act === 3 && typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value, odd } : odd;
  const inner = (value as Record<string, unknown>)[name];
  if (Array.isArray(value)) {
    const index = Number(name);
    if (rest.length === 0 && act === 1) return value.toSpliced(index, 1);
    if (rest.length === 0 && act === 2) return [...value, inner];
    return value.with(index, mutate(inner, rest, act, odd));
  }
  const { [name]: _, ...others } = value as Record<string, unknown>;
  if (rest.length === 0 && act === 1) return others;
  return { ...others, [name]: mutate(inner, rest, act, odd) };
}

test("no body, however it was bent, gives a 5xx", { timeout: 60_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.nat(6), fc.array(fc.nat(20), { maxLength: 7 }), fc.nat(3), oddValue, async (which, path, act, odd) => {
      const target = paths[which];
      if (!target) throw new Error("seven targets");
      const answer = await api.call("POST", target.path, mutate(target.body, path, act, odd));
      expect(answer.status).toBeLessThan(500);
      if (answer.status !== 200)
        expect(answer.body).toMatchObject({ type: "error", error: { type: expect.any(String), message: expect.any(String) } });
    }),
    { numRuns: RUNS },
  );
  expect(api.logged.filter((line) => line.includes("request.broke"))).toEqual([]);
});

test("no bytes as a body give a 5xx", { timeout: 30_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.nat(6), fc.uint8Array({ maxLength: 200 }), async (which, bytes) => {
      expect((await api.call("POST", paths[which]?.path ?? "", bytes)).status).toBeLessThan(500);
    }),
    { numRuns: RUNS / 3 },
  );
});

test("no path, query or header gives a 5xx", { timeout: 60_000 }, async () => {
  const session = await makeSession(api);
  const bases = [
    "/v1/agents",
    "/v1/environments",
    "/v1/sessions",
    `/v1/sessions/${session.id}/events`,
    `/v1/sessions/${session.id}/threads`,
    "/v1/sessions/",
  ];
  const names = ["limit", "page", "order", "types[]", "statuses", "created_at[gte]", "version", "include_archived", "x"];
  const value = fc.oneof(fc.string(), fc.constantFrom("page_e30", "page_", "1", "-1", "1e9", "asc", "2026-01-01T00:00:00Z", "%", "%00", "[]"));
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...bases),
      fc.option(fc.string(), { nil: "" }),
      fc.array(fc.tuple(fc.constantFrom(...names), value), { maxLength: 4 }),
      async (base, segment, query) => {
        const path = segment === "" ? base : `${base}/${encodeURIComponent(segment.toWellFormed())}`;
        const search = query.map(([name, text]) => `${name}=${encodeURIComponent(text.toWellFormed())}`).join("&");
        const answer = await fetch(`${api.url}${path}?${search}`, {
          headers: { "x-api-key": "test-key-1", "x-stainless-retry-count": "x", "idempotency-key": "k" },
        });
        await answer.body?.cancel();
        expect(answer.status).toBeLessThan(500);
      },
    ),
    { numRuns: RUNS },
  );
});
