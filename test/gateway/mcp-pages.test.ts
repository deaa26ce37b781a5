// The lists that the door shows are read to their end by their own cursors: all of it, once, in one order.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { API_KEY, type Api, makeAgent, makeEnvironment, makeSession, startApi } from "../support/api.ts";

const SESSIONS = 45;
const Found = z.object({ sessions: z.array(z.looseObject({ session_id: z.string() })), next_page: z.string().nullable() });

let api: Api;
let client: Client;
let ids: readonly string[];
beforeAll(async () => {
  api = await startApi();
  const [agent, environment] = await Promise.all([makeAgent(api), makeEnvironment(api)]);
  const made: string[] = [];
  for (let n = 0; n < SESSIONS; n += 1) made.push((await makeSession(api, { agent: agent.id, environment_id: environment.id })).id);
  ids = made;
  client = new Client({ name: "test", version: "1" });
  const requestInit = { headers: { authorization: `Bearer ${API_KEY}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(`${api.url}/mcp`), { requestInit }));
});
afterAll(async () => {
  await client.close();
  await api.close();
});

test("sessions by a tool", async () => {
  const seen: string[] = [];
  let page: string | null = null;
  do {
    const { structuredContent } = await client.callTool({ name: "find_sessions", arguments: { limit: 10, ...(page !== null && { page }) } });
    const found = Found.parse(structuredContent);
    seen.push(...found.sessions.map(({ session_id }) => session_id));
    page = found.next_page;
    expect(seen.length).toBeLessThanOrEqual(SESSIONS);
  } while (page !== null);
  expect([...seen].sort()).toEqual([...ids].sort());
});

test("sessions as resources", async () => {
  const seen: string[] = [];
  let cursor: string | undefined;
  do {
    const { resources, nextCursor }: Awaited<ReturnType<Client["listResources"]>> = await client.listResources({ cursor });
    seen.push(...resources.map(({ uri }) => uri));
    cursor = nextCursor;
    expect(seen.length).toBeLessThanOrEqual(2 * SESSIONS);
  } while (cursor !== undefined);
  expect(new Set(seen).size).toBe(seen.length);
  for (const id of ids)
    expect(
      seen.some((uri) => uri.startsWith(`session://${id}`)),
      id,
    ).toBe(true);
});
