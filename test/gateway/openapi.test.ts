// The OpenAPI document and the routes say the same: which paths there are, what they take, what they answer.

import fc from "fast-check";
import pino from "pino";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeServer } from "../../gateway/server.ts";
import { noFault } from "../../session-store/fault-point.ts";
import { seeded } from "../chaos/seed.ts";
import { API_KEY, type Api, makeSession, newName, say, startApi } from "../support/api.ts";
import { arbitraryOf, inlined, isSchema, judge, type Schema } from "../support/json-schema.ts";
import { REDIRECT, World } from "../support/oauth-world.ts";
import { filled, type Operation, operationsOf, type Parameter } from "../support/openapi.ts";

const SAMPLES = 2;
const TIMEOUT_MS = 120_000;

const OUTCOME = { type: "user.define_outcome", description: "d", rubric: { type: "text", content: "r" } };

/** How a refusal sounds that speaks of the form of a request. */
const OF_FORM =
  /Extra inputs|Field required|Invalid (input|option|string|URL|key)|Too (big|small)|Unrecognized|must be an? (integer|RFC)|must be from/;

const { seed } = seeded("openapi");
const CREDENTIAL = { auth: { type: "static_bearer" as const, mcp_server_url: "https://a.example/mcp", token: "t" } };
/** This installation has no hand host: no server answers. */
const HAND = { name: "h", transport: { type: "http", url: "https://a.example/mcp" }, allow_unreachable: true };
const REPOSITORY = { type: "github_repository" as const, url: "https://github.com/a/b", authorization_token: "t" };
let api: Api;
/** A server that a person could connect. */
let world: World;
let document: Schema;
let operations: readonly Operation[];
let ids: { session: string; agent: string; environment: string; vault: string; credential: string; hand: string; resource: string };
beforeAll(async () => {
  world = await World.start();
  api = await startApi({ vaults: true, internalHosts: [world.host] });
  document = (await (await fetch(`${api.url}/openapi.json`)).json()) as Schema;
  operations = operationsOf(document);
  const session = await makeSession(api, { resources: [REPOSITORY] });
  const vault = await api.client.beta.vaults.create({ display_name: "v" });
  const credential = await api.client.beta.vaults.credentials.create(vault.id, CREDENTIAL);
  const { name: hand } = (await api.call("POST", "/v1/hands", HAND)).body;
  ids = {
    session: session.id,
    agent: session.agent.id,
    environment: session.environment_id,
    vault: vault.id,
    credential: credential.id,
    hand,
    resource: session.resources.flatMap((each) => ("id" in each ? [each.id] : [])).join(),
  };
});
afterAll(async () => {
  await api.close();
  await world.close();
});

/** A path of this operation that is there. */
function pathOf({ path }: Operation): string {
  const id = path.startsWith("/v1/agents") ? ids.agent : path.startsWith("/v1/environments") ? ids.environment : ids.session;
  return filled(path, { ...ids, id, thread: ids.session.replace("sesn_", "sthr_") });
}

/** Status and message; a stream is left as soon as it is open. */
async function ask({ method, ...operation }: Operation, more: { query?: string; body?: unknown } = {}): Promise<{ status: number; says: string }> {
  const answer = await fetch(`${api.url}${pathOf({ method, ...operation })}${more.query ?? ""}`, {
    method: method.toUpperCase(),
    headers: { "x-api-key": API_KEY },
    ...(more.body !== undefined && { body: JSON.stringify(more.body) }),
  });
  if (answer.headers.get("content-type") === "text/event-stream") {
    await answer.body?.cancel();
    return { status: answer.status, says: "" };
  }
  const body = (await answer.json()) as { error?: { message: string } };
  return { status: answer.status, says: body.error?.message ?? "" };
}

test("every path of the server is in the document, and the reverse", async () => {
  const { app } = makeServer({ store: api.store, apiKeys: [API_KEY], log: pino({ level: "silent" }), fault: noFault, ready: () => true });
  const served = app.router.stack.flatMap(({ route }) =>
    route ? route.stack.filter(({ method }) => method !== undefined).map(({ method }) => `${method} ${route.path.replace(/:(\w+)/g, "{$1}")}`) : [],
  );
  const documented = operations.filter(({ id }) => !id.startsWith("vaults.")).map(({ method, path }) => `${method} ${path}`);
  expect(new Set(served)).toEqual(new Set(documented));
  expect(documented.length).toBeGreaterThan(25);
  expect(new Set(operations.map(({ id }) => id)).size).toBe(operations.length);
});

test("the document is served without a key, is OpenAPI 3.1, and every path parameter is in its path", async () => {
  expect(document.openapi).toMatch(/^3\.1\./);
  for (const { path, parameters } of operations) {
    const named = parameters.filter((each) => each.in === "path").map(({ name }) => name);
    expect([path, named]).toEqual([path, [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name)]);
  }
});

/** Each place of a value: the path to it. */
function placesOf(value: unknown, at: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== "object" || value === null) return [at];
  return [at, ...Object.entries(value).flatMap(([name, inner]) => placesOf(inner, [...at, name]))];
}

function changed(value: unknown, [name, ...rest]: readonly string[], change: (value: unknown) => unknown): unknown {
  if (name === undefined) return change(value);
  if (Array.isArray(value)) return value.map((inner, index) => (String(index) === name ? changed(inner, rest, change) : inner));
  const object = value as Record<string, unknown>;
  const inner = changed(object[name], rest, change);
  const { [name]: _, ...others } = object;
  return inner === undefined ? others : { ...others, [name]: inner };
}

const CHANGES: readonly ((value: unknown) => unknown)[] = [
  () => undefined,
  (value) => (isSchema(value) ? { ...value, bogus_field: 1 } : value),
  (value) => (typeof value === "number" ? "1" : 7),
  (value) => (Array.isArray(value) ? {} : []),
  () => null,
];

test("each body is taken or refused for its form as the document says", { timeout: TIMEOUT_MS }, async () => {
  const counts = { taken: 0, refused: 0 };
  for (const operation of operations) {
    if (!operation.body) continue;
    const fits = judge(operation.body);
    for (const sample of fc.sample(arbitraryOf(operation.body), { seed, numRuns: SAMPLES })) {
      const bodies = [sample, ...placesOf(sample).flatMap((place) => CHANGES.map((change) => changed(sample, place, change)))];
      for (const body of bodies.filter((each) => each !== undefined)) {
        const misfit = fits(JSON.parse(JSON.stringify(body)));
        const { status, says } = await ask(operation, { body });
        const about = `${operation.id} ${JSON.stringify(body)}: ${misfit ?? "fits"}; answered ${status} ${says}`;
        if (misfit === null) expect(OF_FORM.test(says), about).toBe(false);
        else expect(status, about).toBe(400);
        counts[misfit === null ? "taken" : "refused"] += 1;
      }
    }
  }
  expect(counts.taken).toBeGreaterThan(50);
  expect(counts.refused).toBeGreaterThan(200);
});

const written = (name: string, value: unknown): string =>
  [value]
    .flat()
    .map((each) => `${encodeURIComponent(name)}=${encodeURIComponent(String(each))}`)
    .join("&");

/** The outermost values that a parameter takes. */
const edgesOf = ({ schema }: Parameter): unknown[] =>
  schema.type === "integer" ? [schema.minimum, schema.maximum] : Array.isArray(schema.enum) ? schema.enum : [];

/** Values that a parameter does not take. */
function misfitsOf({ schema }: Parameter): unknown[] {
  if (schema.type === "integer") return ["x", "1.5", "", Number(schema.minimum) - 1, Number(schema.maximum) + 1].filter((value) => value !== "");
  if (schema.type === "boolean") return ["maybe", "1"];
  if (schema.format === "date-time") return ["yesterday", "2026-01-01"];
  if (schema.enum !== undefined) return ["bogus"];
  if (schema.type === "array") return [["bogus"]];
  return typeof schema.maxLength === "number" ? ["x".repeat(schema.maxLength + 1)] : [];
}

test("each query is taken or refused as the document says, and no other name is taken", { timeout: TIMEOUT_MS }, async () => {
  let refused = 0;
  for (const operation of operations.filter(({ needsKey }) => needsKey)) {
    const unknown = await ask(operation, { query: "?bogus_name=1", ...(operation.body && { body: {} }) });
    expect([operation.id, unknown]).toEqual([operation.id, { status: 400, says: "bogus_name: Extra inputs are not permitted" }]);
    for (const parameter of operation.parameters.filter((each) => each.in === "query")) {
      const { name, schema } = parameter;
      for (const value of [...fc.sample(arbitraryOf(schema), { seed, numRuns: SAMPLES }), ...edgesOf(parameter)]) {
        if (operation.method !== "get") continue;
        const { status, says } = await ask(operation, { query: `?${written(name, value)}` });
        const about = `${operation.id} ${name}=${JSON.stringify(value)}: ${status} ${says}`;
        expect(OF_FORM.test(says), about).toBe(false);
      }
      for (const value of name === "beta" ? [] : misfitsOf(parameter)) {
        const { status, says } = await ask(operation, { query: `?${written(name, value)}` });
        expect([operation.id, name, value, status]).toEqual([operation.id, name, value, 400]);
        expect(says).toContain(name.replace("[]", ""));
        refused += 1;
      }
    }
  }
  expect(refused).toBeGreaterThan(40);
});

test("what is answered is what the document says, field for field", { timeout: TIMEOUT_MS }, async () => {
  const tools = [
    {
      type: "agent_toolset_20260401",
      configs: [
        { name: "bash", permission_policy: { type: "always_ask" } },
        { name: "web_fetch", blocked_domains: ["a.example"], max_content_tokens: 1 },
        { name: "web_search", user_location: { type: "approximate", city: "Oslo" } },
      ],
    },
    { type: "mcp_toolset", mcp_server_name: "s", configs: [{ name: "t", enabled: false }] },
    { type: "custom", name: "look_up", description: "d", input_schema: { type: "object" } },
  ];
  const mcp_servers = [{ type: "url", name: "s", url: "https://a.example/mcp" }];
  const agent = await api.call("POST", "/v1/agents", { name: "x", model: { id: "m", effort: "low" }, system: "s", tools, mcp_servers });
  const environment = await api.call("POST", "/v1/environments", {
    name: newName(),
    config: { type: "cloud", networking: { type: "limited", allowed_hosts: ["a.example"] } },
  });
  const made = { agent: agent.body.id, environment_id: environment.body.id, title: "t", metadata: { k: "v" }, resources: [REPOSITORY] };
  const session = await api.call("POST", "/v1/sessions", made);
  ids = { ...ids, session: session.body.id, resource: session.body.resources[0].id, agent: agent.body.id, environment: environment.body.id };
  const bodies: Readonly<Record<string, unknown>> = {
    "agents.create": { name: "x", model: "m" },
    "agents.update": { description: "d", metadata: { k: "v" } },
    "environments.create": { name: newName(), config: { type: "self_hosted" } },
    "environments.update": { description: "d" },
    "sessions.create": { ...made, initial_events: [say("x"), OUTCOME] },
    "sessions.update": { title: "u", agent: { tools: [], mcp_servers: [] } },
    "sessions.resources.add": { type: "file", file_id: "f" },
    "sessions.resources.update": { authorization_token: "u" },
    "hands.create": { ...HAND, name: newName(), timeouts: { idle_ms: 1000 }, allowed_tools: ["t"] },
    "hands.update": { description: "d" },
    "hands.approve": {},
    "vaults.create": { display_name: "v", metadata: { k: "v" } },
    "vaults.update": { display_name: "w" },
    "vaults.connect.start": { mcp_server_url: `${world.origin}/mcp`, redirect_uri: REDIRECT },
    "vaults.connect.finish": { state: "unknown", code: "c" },
    "vaults.credentials.create": { auth: { ...CREDENTIAL.auth, mcp_server_url: "https://b.example" } },
    "vaults.credentials.update": { display_name: "d" },
    "sessions.events.send": {
      events: [{ type: "user.interrupt" }, OUTCOME, say("x"), { type: "system.message", content: [{ type: "text", text: "x" }] }],
    },
  };
  const last = ["environments.archive", "agents.archive", "sessions.archive", "vaults.credentials.archive", "vaults.archive"];
  const ordered = operations.toSorted((one, other) => last.indexOf(one.id) - last.indexOf(other.id));
  const error = judge(inlined(document, { $ref: "#/components/schemas/Error" }, true));
  const seen: string[] = [];
  for (const operation of ordered) {
    const body = bodies[operation.id];
    if (!operation.answer || operation.method === "delete") continue;
    const answer = await api.call(operation.method.toUpperCase(), pathOf(operation), body);
    if (answer.status === 200) seen.push(operation.id);
    const misfit = answer.status === 200 ? judge(operation.answer)(answer.body) : error(answer.body);
    expect([operation.id, answer.status, misfit, answer.body]).toEqual([operation.id, answer.status, null, answer.body]);
  }
  // The session is busy by then, the primary thread is never archived, nothing can be added to a session, no person comes back with a state, and the credential is none of OAuth.
  expect(ordered.filter(({ id, answer, method }) => answer && method !== "delete" && !seen.includes(id)).map(({ id }) => id)).toEqual([
    "sessions.threads.archive",
    "sessions.resources.add",
    "vaults.connect.finish",
    "vaults.credentials.mcp_oauth_validate",
    "sessions.archive",
  ]);
});
