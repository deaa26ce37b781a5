// The settings of web_fetch and web_search (contract §9.1): exact limits, what is returned, what is refused.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Api } from "../support/api.ts";
import { makeEnvironment, newName, startApi } from "../support/api.ts";

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

const toolset = (...configs: object[]) => [{ type: "agent_toolset_20260401", configs }];
const make = (...configs: object[]) => api.call("POST", "/v1/agents", { name: newName(), model: "m", tools: toolset(...configs) });
const fetching = (fields: object) => make({ name: "web_fetch", ...fields });
const searching = (fields: object) => make({ name: "web_search", ...fields });
const POLICY = { enabled: true, permission_policy: { type: "always_allow" } };
const AT = "tools.0.configs.0";

const LABEL = "a".repeat(63);
/** A host name of exactly so many characters. */
const hostOf = (chars: number): string => {
  const tail = `.${LABEL}.${LABEL}.${LABEL}.example`;
  return "b".repeat(chars - tail.length) + tail;
};
const hosts = (count: number) => Array.from({ length: count }, (_, index) => `h${index}.example.com`);

async function refusal(
  answer: Promise<{ readonly status: number; readonly body: { readonly error?: { readonly message: string } } }>,
): Promise<string> {
  const { status, body } = await answer;
  return `${status} ${body.error?.message ?? ""}`;
}

describe("web settings", () => {
  test("are returned as they were given, with what was left out as null; a session pins them", async () => {
    const user_location = { type: "approximate", city: "Oslo", country: "NO", timezone: "Europe/Oslo" };
    const { status, body } = await make(
      { name: "web_fetch", allowed_domains: ["Docs.Example.com", "b.example"], blocked_domains: null, max_content_tokens: 1 },
      { name: "web_search", blocked_domains: ["ads.example/Path"], user_location },
      { name: "bash", allowed_domains: null, user_location: null },
    );
    expect(status).toBe(200);
    const configs = [
      {
        name: "web_fetch",
        type: "web_fetch",
        ...POLICY,
        allowed_domains: ["Docs.Example.com", "b.example"],
        max_content_tokens: 1,
        url_sources: null,
      },
      { name: "web_search", type: "web_search", ...POLICY, blocked_domains: ["ads.example/Path"], user_location: { ...user_location, region: null } },
      { name: "bash", type: "bash", ...POLICY },
    ];
    expect(body.tools[0].configs).toEqual(configs);
    expect((await api.call("GET", `/v1/agents/${body.id}`)).body).toEqual(body);
    const environment = await makeEnvironment(api);
    const session = await api.call("POST", "/v1/sessions", { agent: body.id, environment_id: environment.id });
    expect(session.body.agent.tools[0].configs).toEqual(configs);
    const bare = await make({ name: "web_fetch" }, { name: "web_search" });
    expect(bare.body.tools[0].configs).toEqual([
      { name: "web_fetch", type: "web_fetch", ...POLICY, max_content_tokens: null, url_sources: null },
      { name: "web_search", type: "web_search", ...POLICY, user_location: null },
    ]);
    const same = { tools: toolset({ name: "web_fetch", allowed_domains: null, url_sources: null }, { name: "web_search" }) };
    expect((await api.call("POST", `/v1/agents/${bare.body.id}`, same)).body.version).toBe(1);
  });

  test("have their limits at exact values", async () => {
    const pairsOf: [(fields: object) => ReturnType<typeof make>, fine: object, over: object][] = [
      [fetching, { allowed_domains: hosts(64) }, { allowed_domains: hosts(65) }],
      [fetching, { blocked_domains: hosts(1) }, { blocked_domains: [] }],
      [fetching, { allowed_domains: [hostOf(253)] }, { allowed_domains: [hostOf(254)] }],
      [fetching, { allowed_domains: [`${LABEL}.example`] }, { allowed_domains: [`${LABEL}a.example`] }],
      [searching, { allowed_domains: [`a.example/${"p".repeat(245)}`] }, { allowed_domains: [`a.example/${"p".repeat(246)}`] }],
      [fetching, { max_content_tokens: 1 }, { max_content_tokens: 0 }],
      [fetching, { max_content_tokens: null }, { max_content_tokens: 1.5 }],
      [fetching, { allowed_domains: null, blocked_domains: ["a.example"] }, { allowed_domains: ["b.example"], blocked_domains: ["a.example"] }],
      [
        searching,
        { user_location: { type: "approximate", city: "x".repeat(255) } },
        { user_location: { type: "approximate", city: "x".repeat(256) } },
      ],
      [searching, { user_location: { type: "approximate" } }, { user_location: {} }],
    ];
    for (const [ask, fine, over] of pairsOf) expect([fine, (await ask(fine)).status, (await ask(over)).status]).toEqual([fine, 200, 400]);
  });

  test.each([
    ["https://a.example", "must be a plain host name, without scheme and port"],
    ["a.example:443", "must be a plain host name, without scheme and port"],
    ["[::1]", "must be a plain host name, without scheme and port"],
    ["10.0.0.1", "must not be an IP address"],
    ["a.0x7f", "must not be an IP address"],
    ["*.example.com", "must not hold a wildcard"],
    ["com", "must not be a bare suffix"],
    [".com", "must be a plain host name"],
    ["a.example.", "must be a plain host name"],
    ["a b.example", "must be a plain host name"],
    ["-a.example", "must be a plain host name"],
    ["a_b.example", "must be a plain host name"],
    ["me@a.example", "must be a plain host name"],
    ["bücher.example", "must be a plain host name"],
    ["localhost", "must not be a local name"],
    ["a.LOCALHOST", "must not be a local name"],
    ["printer.local", "must not be a local name"],
    ["db.internal", "must not be a local name"],
    ["x.home.arpa", "must not be a local name"],
  ])("take no domain like %s", async (domain, says) => {
    for (const [ask, list] of [
      [fetching, "allowed_domains"],
      [searching, "blocked_domains"],
    ] as const)
      expect(await refusal(ask({ [list]: [domain] }))).toBe(`400 ${AT}.${list}.0: ${says}`);
  });

  test("take a path for a search only, and no name twice, whatever its case", async () => {
    expect(await refusal(fetching({ allowed_domains: ["a.example/docs"] }))).toBe(`400 ${AT}.allowed_domains.0: must not hold a path`);
    for (const path of ["/", "/docs/a-b_c.d", "/a%20b"]) expect((await searching({ allowed_domains: [`a.example${path}`] })).status).toBe(200);
    for (const path of ["/a?b", "/a#b", "/a b", "/*", "/ü"])
      expect(await refusal(searching({ allowed_domains: [`a.example${path}`] }))).toBe(
        `400 ${AT}.allowed_domains.0: must hold a plain path, or none`,
      );
    expect(await refusal(fetching({ allowed_domains: ["a.example", "b.example", "A.example"] }))).toBe(`400 ${AT}.allowed_domains.2: is given twice`);
    expect((await searching({ allowed_domains: ["a.example/x", "A.example/X"] })).status).toBe(200);
    expect(await refusal(searching({ allowed_domains: ["a.example/x", "A.example/x"] }))).toBe(`400 ${AT}.allowed_domains.1: is given twice`);
  });

  test("that belong to another tool, and url_sources, are refused by name", async () => {
    const location = { user_location: { type: "approximate" } };
    expect(await refusal(fetching(location))).toBe(`400 ${AT}.user_location: is not supported`);
    expect(await refusal(searching({ max_content_tokens: 1 }))).toBe(`400 ${AT}.max_content_tokens: is not supported`);
    expect(await refusal(make({ name: "bash", allowed_domains: ["a.example"] }))).toBe(`400 ${AT}.allowed_domains: is not supported`);
    expect(await refusal(fetching({ url_sources: { user_input: "all" } }))).toBe(`400 ${AT}.url_sources: is not supported`);
    expect(await refusal(fetching({ bogus: 1 }))).toBe(`400 ${AT}.bogus: Extra inputs are not permitted`);
    expect(await refusal(fetching({ allowed_domains: ["b.example"], blocked_domains: ["a.example"] }))).toBe(
      `400 ${AT}.blocked_domains: can't be combined with allowed_domains`,
    );
  });

  test("say where a user is in known terms only", async () => {
    const place = (fields: object) => searching({ user_location: { type: "approximate", ...fields } });
    for (const fine of [{ country: "NO" }, { timezone: "America/Los_Angeles" }, { timezone: "UTC" }, { city: null, region: "Viken" }])
      expect([fine, (await place(fine)).status]).toEqual([fine, 200]);
    for (const odd of [{ country: "no" }, { country: "NOR" }, { timezone: "Mars/Base" }, { timezone: "+01:00" }, { city: "" }, { street: "x" }])
      expect([odd, (await place(odd)).status]).toEqual([odd, 400]);
    expect((await searching({ user_location: { type: "exact" } })).status).toBe(400);
  });
});
