// What an environment asks for and no hand can give is said when a session is made, and breaks no client.

import { afterAll, beforeAll, expect, test } from "vitest";
import { NOTICE } from "../../gateway/http/call.ts";
import type { Api } from "../support/api.ts";
import { makeAgent, makeEnvironment, startApi } from "../support/api.ts";

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

const NO_PACKAGES = "config.packages: no packages are installed";
const limited = { type: "limited" };

test.each([
  ["the usual one", undefined, null],
  [
    "one with hosts and the agent's MCP servers",
    { type: "cloud", networking: { ...limited, allowed_hosts: ["example.com"], allow_mcp_servers: true } },
    null,
  ],
  ["one with packages", { type: "cloud", networking: { ...limited, allow_package_managers: true }, packages: { pip: ["numpy"] } }, NO_PACKAGES],
  ["one that asks for nothing", { type: "cloud", networking: limited }, null],
])("a session in %s", async (_, config, notice) => {
  const [agent, environment] = [await makeAgent(api), await makeEnvironment(api, config === undefined ? {} : { config })];
  const before = api.logged.length;
  const { data, response } = await api.client.beta.sessions.create({ agent: agent.id, environment_id: environment.id }).withResponse();
  expect(response.headers.get(NOTICE)).toBe(notice);
  expect(Object.keys(data).filter((field) => field.includes("notice"))).toEqual([]);
  const said = api.logged.slice(before).filter((line) => line.includes("environment.unmet"));
  expect(said.map((line) => JSON.parse(line).environmentId)).toEqual(notice === null ? [] : [environment.id]);
});
