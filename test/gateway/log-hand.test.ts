// The address of a session's own log: agents may name it, though nobody registered it.

import { afterAll, beforeAll, expect, test } from "vitest";
import { type Api, startApi } from "../support/api.ts";

let api: Api;
beforeAll(async () => {
  api = await startApi();
});
afterAll(() => api.close());

test("an agent may have the log as a server; another name must be registered", async () => {
  const tools = [{ type: "mcp_toolset", mcp_server_name: "session" }];
  const agent = (url: string) =>
    api.call("POST", "/v1/agents", { name: "Reader", model: "m", tools, mcp_servers: [{ type: "url", name: "session", url }] });
  expect(await agent("hand:session")).toMatchObject({ status: 200, body: { mcp_servers: [{ url: "hand:session" }] } });
  expect(await agent("hand:sessions")).toMatchObject({ status: 400 });
});
