// A hand whose credential is in a vault: the vault proxy puts it in, and neither the gateway nor the client ever has it.

import { afterAll, beforeAll, expect } from "vitest";
import { API_KEY, type Api, newName, startApi } from "../support/api.ts";
import { handshake, stateless } from "../support/mcp.ts";
import { proves } from "../support/proves.ts";
import { json, registerHand, type ScriptedHand, startScriptedHand } from "../support/relay.ts";

const TOKEN = "canary-token-of-a-hand-0123456789";
const KEY = { authorization: `Bearer ${API_KEY}` };
let api: Api;
let hand: ScriptedHand;

beforeAll(async () => {
  api = await startApi({ vaults: true, internalHosts: ["127.0.0.1"] });
  hand = await startScriptedHand({ eras: ["handshake", "stateless"] });
});
afterAll(async () => {
  await api.close();
  await hand.close();
});

proves("mcp:relay", "a hand whose credential is in a vault is reached with it, in both eras, and nobody else sees it", async () => {
  const vaults = api.client.beta.vaults;
  const { id } = await vaults.create({ display_name: newName() });
  await registerHand(api.store, { name: "sealed", url: hand.url, vault_ids: [id] });
  const door = `${api.url}/mcp/hands/sealed`;
  const list = { id: 1, method: "prompts/list" };

  const without = await stateless(door, KEY, list);
  expect(without.messages).toMatchObject([{ id: 1, error: { data: { reason: "hand_refused" }, message: expect.stringContaining("holds a credential") } }]);
  expect(hand.seen).toEqual([]);

  await vaults.credentials.create(id, { auth: { type: "static_bearer", mcp_server_url: hand.url, token: TOKEN } });
  hand.answer(({ body, headers }, response) => {
    const { id: asked } = body === "" ? { id: undefined } : JSON.parse(body);
    if (asked === undefined) response.writeHead(202).end();
    else json(response, { jsonrpc: "2.0", id: asked, result: { prompts: [], ttlMs: 9, cacheScope: "public", heard: headers.authorization } });
  });
  const modern = await stateless(door, KEY, list);
  expect(modern.messages[0]?.result).toMatchObject({ prompts: [], ttlMs: 0, cacheScope: "private" });
  const { call, session } = await handshake(door, KEY);
  const old = await call(2, "prompts/list");
  expect(old.messages[0]?.result).toMatchObject({ prompts: [] });
  expect(hand.seen.map(({ headers }) => headers.authorization)).toEqual(hand.seen.map(() => `Bearer ${TOKEN}`));
  expect(hand.seen.at(-1)?.headers["mcp-session-id"]).toBe("theirs-1");
  expect(session).toMatch(/^mcpr_/);
  expect(JSON.stringify(hand.seen)).not.toContain(API_KEY);
  for (const text of [modern.text, old.text, api.logged.join("\n")]) expect(text).not.toContain(TOKEN);
});
