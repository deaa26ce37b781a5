// A registered hand whose server wants a credential: that of the vaults which its registration names, whoever uses it.

import { dirname } from "node:path";
import { pino } from "pino";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { VaultProxy } from "../../gateway/vault-proxy.ts";
import { servers } from "../harnesses/agents.ts";
import { RawServer, says, tool } from "../support/mcp/raw.ts";
import { openRegistry, type RegistryDoor } from "../support/registry.ts";
import { Caller } from "../vault-proxy/mcp-kit.ts";
import { startNode, type TestNode } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const TOKEN = "canary-bearer-of-a-registered-hand-0123456789";
let node: TestNode;
let registry: RegistryDoor;
let vaultProxy: VaultProxy;
let server: RawServer;
let vault: string;
beforeAll(async () => {
  node = await startNode({ internalHosts: ["127.0.0.1"] });
  vaultProxy = await VaultProxy.open({ url: node.vaultUrl, keysDir: dirname(node.keyFile), log: pino({ level: "silent" }) });
  registry = await openRegistry({ store: node.store, hands: node.hands, vaultProxy });
  server = await RawServer.start({
    hasSessions: true,
    tools: [tool("search")],
    call: () => says("found"),
    script: ({ request, response }) => {
      if (request.headers.authorization === `Bearer ${TOKEN}`) return false;
      response.writeHead(401, { "www-authenticate": "Bearer" }).end();
      return true;
    },
  });
  vault = await new Caller(node.vaultUrl, node.signer).bearer(server.url, TOKEN);
  await node.work();
});
afterAll(async () => {
  await registry.close();
  await node.close();
  await vaultProxy.close();
  await server.close();
});

test.each(["shared", "session"])("its own vaults open a hand of the sharing %s for sessions that have none", async (sharing) => {
  const transport = { type: "http", url: server.url };
  const without = await registry.call("POST", "/v1/hands", { name: "without", transport, sharing });
  expect([without.status, without.body.error.message]).toEqual([400, expect.stringContaining("refused the credentials it was given, or wants some")]);
  const name = `guarded-${sharing}`;
  const made = await registry.register({ name, transport, sharing, vault_ids: [vault] });
  expect(made).toMatchObject({ vault_ids: [vault], health: { status: "ready" }, tools: [{ name: "search" }] });
  const { tools, mcp_servers } = servers({ s: `hand:${name}` });
  for (const session of [await node.open(tools, { mcp_servers }), await node.open(tools, { mcp_servers })]) {
    await session.say("call mcp__s__search: {}\necho: got");
    await session.idle();
    expect((await session.results()).map(({ text }) => text)).toEqual(["found"]);
  }
  // What opens one hand opens no other: an agent's own server at the same address stays shut.
  const plain = servers({ s: server.url });
  const other = await node.open(plain.tools, { mcp_servers: plain.mcp_servers });
  await other.say("say: hello");
  await other.idle();
  const errors = (await other.log()).flatMap(({ entry }) => (entry.type === "session.error" ? [entry.error.type] : []));
  expect(errors).toEqual(["mcp_authentication_failed_error"]);
  expect(JSON.stringify([made, registry.logged, node.logged])).not.toContain(TOKEN);
});
