// Hands by MCP tools: the official clients register, look at and remove them; a token sees and does what its scopes allow.

import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { RawServer, tool } from "../support/mcp/raw.ts";
import { type Reply, stateless } from "../support/mcp.ts";
import { API_KEY, openRegistry, type RegistryDoor } from "../support/registry.ts";
import { startNode, type TestNode } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const ISSUER = "https://login.example.com";
const PUBLIC = "https://hands.example.com";

let node: TestNode;
let registry: RegistryDoor;
let server: RawServer;
let jwks: Server;
let keys: Awaited<ReturnType<typeof generateKeyPair>>;
beforeAll(async () => {
  keys = await generateKeyPair("ES256", { extractable: true });
  const published = JSON.stringify({ keys: [{ ...(await exportJWK(keys.publicKey)), kid: "k", alg: "ES256" }] });
  jwks = createServer((_request, response) => void response.setHeader("content-type", "application/json").end(published));
  await new Promise<void>((resolve) => jwks.listen(0, "127.0.0.1", resolve));
  const jwksUrl = `http://127.0.0.1:${(jwks.address() as AddressInfo).port}/keys`;
  node = await startNode({ servers: { times: { connectMs: 3_000, idleMs: 5_000, totalMs: 20_000 } } });
  registry = await openRegistry(node, { publicUrl: PUBLIC, issuer: { issuer: ISSUER, jwksUrl } });
  server = await RawServer.start({ hasSessions: true, tools: [tool("add"), tool("hide", { description: "x <!-- y -->" })] });
});
afterAll(async () => {
  await server.close();
  await registry.close();
  await node.close();
  await new Promise((resolve) => jwks.close(resolve));
});

type Called = Readonly<Record<string, unknown>> & { readonly isError?: boolean };
interface Session {
  call(name: string, args?: Record<string, unknown>): Promise<Called>;
  close(): Promise<void>;
}
const headers = { authorization: `Bearer ${API_KEY}` };

const CLIENTS: readonly (readonly [string, () => Promise<Session>])[] = [
  [
    "of the stateless era",
    async () => {
      const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } });
      await client.connect(new StreamableHTTPClientTransport(new URL(`${registry.url}/mcp`), { requestInit: { headers } }));
      await client.listTools();
      return { call: async (name, args = {}) => (await client.callTool({ name, arguments: args })) as Called, close: () => client.close() };
    },
  ],
  [
    "of the handshake era",
    async () => {
      const client = new OldClient({ name: "test", version: "1" });
      await client.connect(new OldTransport(new URL(`${registry.url}/mcp`), { requestInit: { headers } }) as Transport);
      // From here on it holds every structured result against the tool's schema.
      await client.listTools();
      return { call: async (name, args = {}) => (await client.callTool({ name, arguments: args })) as Called, close: () => client.close() };
    },
  ],
];

describe.each(CLIENTS)("an official client %s", (kind, open) => {
  const name = kind.includes("stateless") ? "new-one" : "old-one";

  test("registers a hand, finds it with what its server has, and removes it", async () => {
    const client = await open();
    const done = async (tool: string, args?: Record<string, unknown>) => {
      const result = await client.call(tool, args);
      expect(result.isError ?? false, JSON.stringify(result)).toBe(false);
      return result.structuredContent;
    };
    const fields = { name, url: server.url, description: "Adds", sharing: "shared", allowed_tools: ["add"] };
    const made = await done("register_hand", fields);
    expect(made).toEqual({
      name,
      description: "Adds",
      source: "api",
      sharing: "shared",
      status: "ready",
      error: null,
      transport: { type: "http", url: server.url },
      allowed_tools: ["add"],
      tools: ["add"],
      held_back: [{ name: "hide", reason: "suspicious", says: "its description holds an HTML comment" }],
      definitions: [{ name: "add", description: "The tool add.", input_schema: expect.objectContaining({ type: "object" }) }],
    });
    expect(await done("register_hand", fields)).toEqual(made);
    expect(await done("get_hand", { name })).toEqual(made);
    expect(await done("list_hands")).toMatchObject({
      hands: [
        { name: "sandbox", source: "built_in" },
        { name, tools: ["add"], held_back: [{ name: "hide" }] },
      ],
      next_page: null,
    });
    expect(await done("remove_hand", { name })).toEqual({ removed: name });
    const gone = await client.call("get_hand", { name });
    expect([gone.isError, JSON.stringify(gone.content)]).toEqual([true, expect.stringContaining("There is no such hand.")]);
    await client.close();
  });

  test("is told what is wrong with a registration, in the words of the HTTP API", async () => {
    const client = await open();
    const refused = async (args: Record<string, unknown>) => {
      const result = await client.call("register_hand", args);
      expect(result.isError).toBe(true);
      return JSON.stringify(result.content);
    };
    expect(await refused({ name: "x", url: "http://127.0.0.1:9/mcp" })).toContain("The server could not be used");
    expect(await refused({ name: "x", server: "nobody-named-this" })).toContain("the operator's file names no such server");
    expect(await refused({ name: "Not A Name", url: server.url })).toContain("name: must be 1 to 63");
    expect(await refused({ name: "x" })).toContain("transport.url");
    expect(await refused({ name: "x", url: server.url, server: "y" })).toContain("transport.server: Extra inputs are not permitted");
    await client.close();
  });
});

const Listed = z.object({ tools: z.array(z.object({ name: z.string(), annotations: z.unknown(), outputSchema: z.unknown() })) });
/** The tools for hands of a list. */
const toolsIn = ({ messages }: Reply) => Listed.parse(messages[0]?.result).tools.filter(({ name }) => /_hands?$/.test(name));

test("the tools say of themselves what is true", async () => {
  const answer = await stateless(`${registry.url}/mcp`, headers, { id: 1, method: "tools/list" });
  const hands = toolsIn(answer);
  expect(hands.map(({ name, annotations, outputSchema }) => [name, annotations, outputSchema !== undefined])).toEqual([
    ["list_hands", { readOnlyHint: true, idempotentHint: true, openWorldHint: false }, true],
    ["get_hand", { readOnlyHint: true, idempotentHint: true, openWorldHint: false }, true],
    ["register_hand", { readOnlyHint: false, destructiveHint: false, idempotentHint: true, openWorldHint: true }, true],
    ["remove_hand", { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false }, true],
  ]);
});

test.each([
  ["sessions:read sessions:write", []],
  ["hands:read", ["list_hands", "get_hand"]],
  ["hands:write", ["register_hand", "remove_hand"]],
  ["hands:read hands:write", ["list_hands", "get_hand", "register_hand", "remove_hand"]],
])("a token for %s sees and calls exactly %j", async (scope, may) => {
  const now = Math.floor(Date.now() / 1_000);
  const claims = { iss: ISSUER, aud: `${PUBLIC}/mcp`, sub: "user", exp: now + 600, iat: now, scope };
  const token = await new SignJWT(claims).setProtectedHeader({ alg: "ES256", kid: "k", typ: "at+jwt" }).sign(keys.privateKey);
  const bearer = { authorization: `Bearer ${token}` };
  const ask = (method: string, params?: Record<string, unknown>) =>
    stateless(`${registry.url}/mcp`, bearer, { id: 1, method, ...(params && { params }) });
  expect(toolsIn(await ask("tools/list")).map(({ name }) => name)).toEqual(may);
  const args: Record<string, Record<string, unknown>> = {
    list_hands: {},
    get_hand: { name: "nobody" },
    register_hand: { name: "by-token", url: server.url },
    remove_hand: { name: "by-token" },
  };
  for (const [name, given] of Object.entries(args)) {
    const answer = await ask("tools/call", { name, arguments: given });
    expect([name, answer.status]).toEqual([name, may.some((each) => each === name) ? 200 : 403]);
    if (answer.status === 403) expect(answer.headers["www-authenticate"]).toContain('error="insufficient_scope"');
  }
  expect((await registry.call("GET", "/v1/hands/by-token")).status).toBe(404);
});
