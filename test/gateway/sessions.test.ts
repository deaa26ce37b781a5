// Sessions (contract §5, §12), without a worker: a test's own brain writes what a worker would.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Api } from "../support/api.ts";
import { makeAgent, makeEnvironment, makeSession, say, startApi } from "../support/api.ts";
import { Brain, running } from "../support/brain.ts";

let api: Api;
let environment: string;
beforeAll(async () => {
  api = await startApi();
  environment = (await makeEnvironment(api)).id;
});
afterAll(() => api.close());

const custom = (name: string) => ({ type: "custom" as const, name, description: "d", input_schema: { type: "object" as const } });
const post = (path: string, body?: unknown, headers?: Record<string, string>) => api.call("POST", path, body, headers);
const open = (fields: object) => post("/v1/sessions", { environment_id: environment, ...fields });

describe("creating", () => {
  test("a session without events is idle and whole", async () => {
    const agent = await makeAgent(api, { system: "brief", tools: [custom("one")] });
    const { body } = await open({
      agent: agent.id,
      title: "T",
      metadata: { a: "1" },
      vault_ids: [],
      resources: null,
      budget: null,
      initial_events: [],
    });
    const { created_at: _1, updated_at: _2, archived_at: _3, metadata: _4, ...snapshot } = agent;
    expect(body).toEqual({
      id: expect.stringMatching(/^sesn_/),
      type: "session",
      title: "T",
      status: "idle",
      agent: snapshot,
      environment_id: environment,
      resources: [],
      vault_ids: [],
      deployment_id: null,
      metadata: { a: "1" },
      budget: null,
      outcome_evaluations: [],
      usage: {
        input_tokens: 0,
        output_tokens: 0,
        cache_read_input_tokens: 0,
        cache_creation: { ephemeral_5m_input_tokens: 0, ephemeral_1h_input_tokens: 0 },
        active_seconds: 0,
        server_tool_use: { web_search_requests: 0, web_fetch_requests: 0 },
      },
      stats: { active_seconds: 0, duration_seconds: expect.any(Number) },
      created_at: expect.stringMatching(/Z$/),
      updated_at: expect.stringMatching(/Z$/),
      archived_at: null,
    });
    const read = (await api.call("GET", `/v1/sessions/${body.id}`)).body;
    expect({ ...read, stats: null }).toEqual({ ...body, stats: null });
    expect((await api.call("GET", `/v1/sessions/${body.id}/events`)).body).toEqual({ data: [], next_page: null });
  });

  test("the agent is pinned: latest, a version, or with overrides", async () => {
    const agent = await makeAgent(api, { system: "v1", tools: [custom("one")] });
    await api.client.beta.agents.update(agent.id, { system: "v2" });
    const pinned = async (choice: unknown) => (await open({ agent: choice })).body.agent;
    expect((await pinned(agent.id)).system).toBe("v2");
    expect((await pinned({ type: "agent", id: agent.id, version: 1 })).system).toBe("v1");
    const other = await pinned({ type: "agent_with_overrides", id: agent.id, system: "mine", tools: [], model: "n" });
    expect([other.system, other.tools, other.version, other.model]).toEqual(["mine", [], 2, { id: "n" }]);
    const cleared = await pinned({ type: "agent_with_overrides", id: agent.id, system: null });
    expect([cleared.system, cleared.tools.length]).toEqual([null, 1]);
    const noModel = await open({ agent: { type: "agent_with_overrides", id: agent.id, model: null } });
    expect([noModel.status, noModel.body.error.details]).toEqual([400, { error_code: "agent_model_required" }]);
    expect((await open({ agent: { type: "agent", id: agent.id, version: 9 } })).status).toBe(404);
    expect((await open({ agent: "agent_x" })).status).toBe(404);
    expect((await open({ agent: "../x" })).status).toBe(404);
    await api.client.beta.agents.archive(agent.id);
    expect((await open({ agent: agent.id })).status).toBe(400);
  });

  test("initial events start it running; bad ones create nothing", async () => {
    const agent = await makeAgent(api);
    for (const initial_events of [
      [say("x"), { type: "user.interrupt" }],
      Array.from({ length: 51 }, () => say("x")),
      [{ type: "user.message", content: "x" }],
    ])
      expect((await open({ agent: agent.id, initial_events })).status).toBe(400);
    expect((await api.call("GET", `/v1/sessions?agent_id=${agent.id}`)).body.data).toEqual([]);
    const started = await open({ agent: agent.id, initial_events: Array.from({ length: 50 }, () => say("x")) });
    expect(started.body.status).toBe("running");
    expect((await api.call("GET", `/v1/sessions/${started.body.id}/events`)).body.data).toHaveLength(50);
  });
});

describe("changing", () => {
  test("an update says only what changed; nothing changed says nothing", async () => {
    const { id } = await makeSession(api, { title: "old", metadata: { keep: "1", drop: "2" } });
    const updated = (await post(`/v1/sessions/${id}`, { title: "new", metadata: { drop: null, add: "3" } })).body;
    expect([updated.title, updated.metadata]).toEqual(["new", { keep: "1", add: "3" }]);
    expect((await post(`/v1/sessions/${id}`, { title: "new", metadata: {} })).body.updated_at).toBe(updated.updated_at);
    const { data } = (await api.call("GET", `/v1/sessions/${id}/events`)).body;
    expect(data).toEqual([
      {
        id: expect.stringMatching(/^sevt_/),
        type: "session.updated",
        title: "new",
        metadata: { keep: "1", add: "3" },
        processed_at: updated.updated_at,
      },
    ]);
    expect((await post(`/v1/sessions/${id}`, { title: null })).body.title).toBeNull();
    const many = Object.fromEntries(Array.from({ length: 15 }, (_, index) => [`k${index}`, "v"]));
    expect((await post(`/v1/sessions/${id}`, { metadata: many })).status).toBe(400);
  });

  test("tools are replaced while idle only, and the event holds the whole agent", async () => {
    const agent = await makeAgent(api, { tools: [custom("before")] });
    const { id } = (await open({ agent: agent.id })).body;
    const { body } = await post(`/v1/sessions/${id}`, { agent: { tools: [custom("after")] } });
    expect(body.agent.tools.map(({ name }: { name: string }) => name)).toEqual(["after"]);
    const { data } = (await api.call("GET", `/v1/sessions/${id}/events?types[]=session.updated`)).body;
    expect(data[0].agent).toEqual(body.agent);
    expect((await post(`/v1/sessions/${id}`, { agent: { tools: [{ type: "mcp_toolset", mcp_server_name: "x" }] } })).status).toBe(400);
    await post(`/v1/sessions/${id}/events`, { events: [say("x")] });
    expect((await post(`/v1/sessions/${id}`, { agent: { tools: [] } })).status).toBe(400);
    expect((await post(`/v1/sessions/${id}`, { title: "while running" })).status).toBe(200);
  });

  test("a running session can be neither archived nor deleted; an idle one is archived once and stays readable", async () => {
    const { id } = await makeSession(api);
    await post(`/v1/sessions/${id}/events`, { events: [say("x")] });
    const busy = await post(`/v1/sessions/${id}/archive`);
    expect([busy.status, busy.body.error.message]).toEqual([400, `Session ${id} cannot be archived while its status is running`]);
    expect((await api.call("DELETE", `/v1/sessions/${id}`)).status).toBe(400);
    await Brain.turn(api.store, id);
    const archived = (await post(`/v1/sessions/${id}/archive`)).body;
    expect([archived.status, archived.archived_at]).toEqual(["terminated", archived.updated_at]);
    expect({ ...(await post(`/v1/sessions/${id}/archive`)).body, stats: null }).toEqual({ ...archived, stats: null });
    for (const body of [{ events: [say("x")] }, { events: [{ type: "user.interrupt" }] }])
      expect((await post(`/v1/sessions/${id}/events`, body)).status).toBe(400);
    expect((await post(`/v1/sessions/${id}`, { title: "x" })).status).toBe(400);
    const types = (await api.call("GET", `/v1/sessions/${id}/events`)).body.data.map(({ type }: { type: string }) => type);
    expect(types.slice(-2)).toEqual(["session.thread_status_terminated", "session.status_terminated"]);
    expect((await api.call("DELETE", `/v1/sessions/${id}`)).body).toEqual({ id, type: "session_deleted" });
    for (const path of ["", "/events", "/stream", "/threads"]) expect((await api.call("GET", `/v1/sessions/${id}${path}`)).status).toBe(404);
  });
});

describe("listing", () => {
  test("pages go both ways, in both orders, and other cursors are refused", async () => {
    const agent = await makeAgent(api);
    const ids: string[] = [];
    for (let count = 0; count < 5; count += 1) ids.push((await open({ agent: agent.id })).body.id);
    const list = async (query: string) => (await api.call("GET", `/v1/sessions?agent_id=${agent.id}&${query}`)).body;
    const idsOf = (page: { data: { id: string }[] }) => page.data.map(({ id }) => id);
    for (const order of ["asc", "desc"])
      for (const limit of [1, 2, 3, 5, 9]) {
        const whole = order === "asc" ? ids : [...ids].reverse();
        const pages: string[][] = [];
        let page = await list(`order=${order}&limit=${limit}`);
        expect(page.prev_page).toBeNull();
        for (pages.push(idsOf(page)); page.next_page; pages.push(idsOf(page)))
          page = await list(`order=${order}&limit=${limit}&page=${page.next_page}`);
        expect(pages.flat()).toEqual(whole);
        const back: string[][] = [idsOf(page)];
        for (; page.prev_page; back.unshift(idsOf(page))) page = await list(`order=${order}&limit=${limit}&page=${page.prev_page}`);
        expect(back.flat()).toEqual(whole);
      }
    const { next_page } = await list("limit=2");
    for (const query of [`order=asc&page=${next_page}`, `page=${next_page}x%00`, `page=${next_page}&created_at[gt]=2100-01-01T00:00:00Z`])
      expect((await api.call("GET", `/v1/sessions?${query}`)).status).toBe(400);
    expect(idsOf(await list("statuses[]=idle&statuses[]=running"))).toHaveLength(5);
    expect(idsOf(await list("statuses=terminated&include_archived=true"))).toEqual([]);
    expect(idsOf(await list("agent_version=2"))).toEqual([]);
    expect(idsOf(await list("deployment_id=depl_x"))).toEqual([]);
    await post(`/v1/sessions/${ids[2]}/archive`);
    expect(idsOf(await list(""))).toHaveLength(4);
    expect(idsOf(await list("include_archived=true&statuses[]=terminated"))).toEqual([ids[2]]);
  });
});

describe("threads", () => {
  test("the primary thread is listed, readable, and stays", async () => {
    const session = await makeSession(api);
    const base = `/v1/sessions/${session.id}/threads`;
    const { data, next_page } = (await api.call("GET", base)).body;
    const [thread] = data;
    expect([data.length, next_page, thread.type, thread.session_id, thread.parent_thread_id, thread.status]).toEqual([
      1,
      null,
      "session_thread",
      session.id,
      null,
      "idle",
    ]);
    expect((await api.call("GET", `${base}/${thread.id}`)).body.id).toBe(thread.id);
    await post(`/v1/sessions/${session.id}/events`, { events: [say("x")] });
    await Brain.turn(api.store, session.id);
    const listed = (await api.call("GET", `${base}/${thread.id}/events`)).body;
    expect(listed).toEqual((await api.call("GET", `/v1/sessions/${session.id}/events`)).body);
    expect((await api.call("GET", `${base}/${thread.id}/events?order=asc`)).status).toBe(400);
    expect((await post(`${base}/${thread.id}/archive`)).status).toBe(400);
    for (const path of ["sthr_other", "x"]) expect((await api.call("GET", `${base}/${path}`)).status).toBe(404);
  });
});

test("an interrupt for another thread is refused, for the primary one taken", async () => {
  const { id } = await makeSession(api);
  const send = (session_thread_id: string) => post(`/v1/sessions/${id}/events`, { events: [{ type: "user.interrupt", session_thread_id }] });
  expect((await send("sthr_other")).status).toBe(400);
  const taken = await send(`sthr_${id.slice(5)}`);
  expect([taken.status, taken.body.data[0].processed_at]).toEqual([200, expect.stringMatching(/Z$/)]);
  expect((await api.call("GET", `/v1/sessions/${id}`)).body.status).toBe("idle");
});

test("what a session did while running shows in its stats", async () => {
  const { id } = await makeSession(api);
  await post(`/v1/sessions/${id}/events`, { events: [say("x")] });
  const brain = await Brain.take(api.store, id);
  await brain.emit(running());
  const { stats } = (await api.call("GET", `/v1/sessions/${id}`)).body;
  expect(stats.active_seconds).toBeGreaterThanOrEqual(0);
  expect(stats.duration_seconds).toBeGreaterThanOrEqual(stats.active_seconds);
});
