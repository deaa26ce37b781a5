// The attack table of the vault proxy: each attempt is refused, and nothing of it reaches a listener. The rows are in attack-rows.ts; each route's first test
// is the same request without an attack, which does reach it.

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { GRANTS, METHODS, PATHS, SHAPES, spellings } from "./attack-rows.ts";
import { attack, gatewayDoor, KEY, ROUTES, type Route, startWorld, TOKEN, told, type World } from "./attack-world.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let world: World;
beforeAll(async () => {
  world = await startWorld();
  const token = await world.signer.sign({ sub: "sesn_over", use: ["revoke"] });
  const revoked = await fetch(`${world.proxy.url}/revoke`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify({ session: "sesn_over" }),
  });
  expect(revoked.status).toBe(200);
});
afterAll(async () => {
  // Whatever came late, came.
  expect(world.canary.seen).toEqual([]);
  await world.close();
});

const reached = () => ({ connections: world.upstream.seen.length, requests: world.heard.length, canary: world.canary.seen.length });
async function refused(route: Route, change: Parameters<typeof attack>[2], how: RegExp): Promise<void> {
  const before = reached();
  expect(told(await attack(world, route, change))).toMatch(how);
  expect(reached()).toEqual(before);
}
const headerOf = (name: string) =>
  world.heard.at(-1)?.headers[(world.heard.at(-1)?.headers ?? []).findIndex((each) => each.toLowerCase() === name) + 1];

describe.each(Object.values(ROUTES))("$name", (route) => {
  test("without an attack, its request reaches the listener", async () => {
    const before = reached().requests;
    const answer = await attack(world, route, {});
    expect(world.heard.length, answer).toBeGreaterThan(before);
    if (route.name === "mcp") expect(headerOf("authorization")).toBe(`Bearer ${TOKEN}`);
    if (route.name === "model") expect(headerOf("x-api-key")).toBe(KEY);
  });

  test.each(SHAPES)("%s is refused", async (_name, change, how) => {
    await refused(route, change(world), how);
  });
});

describe.each([ROUTES.mcp, ROUTES.model, ROUTES.line, ROUTES.api, ROUTES.connecting])("$name opens to nobody who shows", (route) => {
  test.each(GRANTS)("%s", async (_name, change) => {
    await refused(route, await change(world, route.claims(world)), /^40[0134]( no_grant| other_use| no_route)?$/);
  });
});

describe.each([
  gatewayDoor("/seal", { resources: [] }),
  gatewayDoor("/repositories", { session: "sesn_2", repositories: [{ url: "https://github.com/a/b", token: null }] }),
  gatewayDoor("/repositories/sweep", { sessions: ["sesn_1"] }),
  gatewayDoor("/vaults/check", { vault_ids: [] }),
  gatewayDoor("/v1/vaults", { display_name: "x" }),
])("$name is for gateways alone", (route) => {
  test("and not for who shows anything else", async () => {
    expect(told(await attack(world, route, {}))).toBe("200");
    for (const [name, change] of GRANTS)
      expect(told(await attack(world, route, await change(world, route.claims(world)))), name).toMatch(/^40[0134]( no_route)?$/);
  });
});

describe("an address that is somebody's own is gone to by no route, in no spelling:", () => {
  const targets = () => spellings(world.canary.port, world.upstream.port);

  test("as an MCP server that a credential is bound to", async () => {
    let kept = 0;
    for (const scheme of ["https", "http"])
      for (const spelled of targets()) {
        const address = `${scheme}://${spelled}/mcp`;
        const vault = await world.caller.vault();
        const made = await world.caller.credential(vault, { type: "static_bearer", mcp_server_url: address, token: TOKEN }).catch(String);
        if (made.startsWith("Error")) expect(made, address).toContain(": 400 ");
        else kept += 1;
        const authorization = `Bearer ${await world.signer.sign({ ...ROUTES.mcp.claims(world), vaults: [vault] })}`;
        await refused(ROUTES.mcp, { address, authorization }, /^(400 bad_target|404 no_credential|502 server_(refused|unreachable))$/);
        // Nor does a credential of another server go there.
        await refused(ROUTES.mcp, { address }, /^(400 bad_target|404 no_credential)$/);
      }
    expect(kept).toBeGreaterThan(15);
  });

  test("as the server behind the one that is named", async () => {
    for (const spelled of targets()) {
      const server = `X-Manyhands-Server: http://127.0.0.1:${world.upstream.port}/mcp`;
      await refused(ROUTES.mcp, { address: `http://${spelled}/mcp`, headers: [server] }, /^400 bad_target$/);
    }
  });

  test("as a server to connect", async () => {
    for (const scheme of ["https", "http", "ftp", "file", "gopher"])
      for (const spelled of targets()) await refused(ROUTES.connecting, { address: `${scheme}://${spelled}/mcp` }, /^400$/);
  });

  test("as an authorization server of a credential, at its renewal and at its validation", async () => {
    const address = `http://127.0.0.1:${world.upstream.port}/renews`;
    let kept = 0;
    for (const spelled of targets()) {
      const vault = await world.caller.vault();
      const refresh = { client_id: "c", refresh_token: "r", token_endpoint_auth: { type: "none" }, token_endpoint: `https://${spelled}/token` };
      const made = await world.caller.credential(vault, { type: "mcp_oauth", mcp_server_url: address, access_token: TOKEN, refresh }).catch(String);
      if (made.startsWith("Error")) {
        expect(made, spelled).toContain(": 400 ");
        continue;
      }
      kept += 1;
      const authorization = `Bearer ${await world.signer.sign({ ...ROUTES.mcp.claims(world), vaults: [vault] })}`;
      // The server refuses the token, and so it is to be renewed.
      expect(told(await attack(world, ROUTES.mcp, { address, authorization })), spelled).toBe("503 not_refreshed");
      const validated = await world.caller.api<{ status: string }>("POST", `/v1/vaults/${vault}/credentials/${made}/mcp_oauth_validate`);
      expect(validated.status, spelled).not.toBe("valid");
      expect(world.canary.seen, spelled).toEqual([]);
    }
    expect(kept).toBeGreaterThan(15);
  });

  test("as a repository of a session", async () => {
    for (const scheme of ["https", "http"])
      for (const spelled of targets()) {
        const door = gatewayDoor("/repositories", {
          session: "sesn_2",
          repositories: [{ url: `${scheme}://${spelled}/acme/private`, token: null }],
        });
        await refused(door, {}, /^400$/);
        await refused(ROUTES.git, { address: spelled }, /^40[04]/);
      }
  });

  test.each([ROUTES.plain, ROUTES.connect])("by $name", async (route) => {
    for (const spelled of targets()) {
      const address = /:\d+$/.test(spelled) || route === ROUTES.plain ? spelled : `${spelled}:80`;
      await refused(route, { address }, /^(400( not_a_place| not_a_proxy_request)?|403 internal|502 unknown_name)$/);
    }
  });
});

describe("another target than the door's own is not there:", () => {
  test.each(PATHS.map(([route, path, how], row) => [`${row}`, route, path, how] as const))("%s %s", async (_row, route, path, how) => {
    await refused(ROUTES[route], { path: path(world) }, how);
  });

  test.each([ROUTES.mcp, ROUTES.model, ROUTES.git, ROUTES.api, ROUTES.connecting])("$name by another method", async (route) => {
    for (const method of METHODS) await refused(route, { method }, /^40[045]/);
  });
});
