// The address of a session's own log: agents may name it, nobody may register it.

import { afterAll, beforeAll, expect, test } from "vitest";
import { type Api, startApi } from "../support/api.ts";

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

test("an agent may have the log as a server, and no hand takes its name", async () => {
  const tools = [{ type: "mcp_toolset", mcp_server_name: "session" }];
  const mcp_servers = [{ type: "url", name: "session", url: "hand:session" }];
  const made = await api.call("POST", "/v1/agents", { name: "Reader", model: "m", tools, mcp_servers });
  expect(made).toMatchObject({ status: 200, body: { mcp_servers } });
  const registered = await api.call("POST", "/v1/hands", { name: "session", transport: { type: "http", url: "https://a.example/mcp" } });
  expect(registered).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringContaining("own log") } },
  });
});
