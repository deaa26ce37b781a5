// Vaults and credentials through the gateway's door, by the official SDK (contract §15).

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type Api, makeAgent, makeEnvironment, makeSession, newName, startApi } from "../support/api.ts";
import { proves } from "../support/proves.ts";

// Each write is on the disk before it is answered, and a busy disk takes its time.
vi.setConfig({ testTimeout: 60_000 });

let api: Api;
beforeAll(async () => {
  api = await startApi({ vaults: true });
});
afterAll(() => api.close());

const vaults = () => api.client.beta.vaults;
const makeVault = (fields: object = {}) => vaults().create({ display_name: newName(), ...fields });
const bearer = (url: string, token = "a-token") => ({ auth: { type: "static_bearer" as const, mcp_server_url: url, token } });
const variable = (fields: object = {}) => ({
  auth: { type: "environment_variable" as const, secret_name: "TOKEN", secret_value: "v", networking: { type: "unrestricted" as const }, ...fields },
});
const oauth = (fields: object = {}) => ({
  auth: {
    type: "mcp_oauth" as const,
    mcp_server_url: "https://o.example/mcp",
    access_token: "canary-access",
    expires_at: "2099-01-01T00:00:00Z",
    refresh: {
      token_endpoint: "https://o.example/token",
      client_id: "client-1",
      refresh_token: "canary-refresh",
      scope: "read",
      token_endpoint_auth: { type: "client_secret_post" as const, client_secret: "canary-client-secret" },
    },
    ...fields,
  },
});

/** Status and message of a refused request. */
async function refused(asked: Promise<unknown>): Promise<[status: number | undefined, says: string]> {
  try {
    await asked;
  } catch (error) {
    if (!(error instanceof Anthropic.APIError)) throw error;
    const body = error.error as { error: { message: string }; request_id: string };
    expect(body.request_id).toBe(error.requestID);
    return [error.status, body.error.message];
  }
  throw new Error("nothing was refused");
}

test("a vault is made, found, changed, listed, archived and deleted", async () => {
  const made = await makeVault({ metadata: { user: "u1" } });
  expect(made).toEqual({
    id: expect.stringMatching(/^vlt_[0-9A-Za-z]{24}$/),
    type: "vault",
    display_name: made.display_name,
    metadata: { user: "u1" },
    created_at: expect.any(String),
    updated_at: made.created_at,
    archived_at: null,
  });
  expect(await vaults().retrieve(made.id)).toEqual(made);
  const updated = await vaults().update(made.id, { display_name: "other", metadata: { user: null, team: "t" } });
  expect([updated.display_name, updated.metadata]).toEqual(["other", { team: "t" }]);
  const archived = await vaults().archive(made.id);
  expect(archived.archived_at).not.toBeNull();
  expect(await vaults().archive(made.id)).toEqual(archived);
  const ids = async (include_archived: boolean) => (await vaults().list({ limit: 3, include_archived })).data.map(({ id }) => id);
  expect([(await ids(false)).includes(made.id), (await ids(true)).includes(made.id)]).toEqual([false, true]);
  expect(await refused(vaults().update(made.id, { display_name: "x" }))).toEqual([400, "The vault is archived and can't be changed."]);
  expect(await refused(vaults().credentials.create(made.id, bearer("https://a.example")))).toEqual([
    400,
    "The vault is archived and can't be changed.",
  ]);
  expect(await vaults().delete(made.id)).toEqual({ id: made.id, type: "vault_deleted" });
  expect(await refused(vaults().retrieve(made.id))).toEqual([404, "There is no such vault."]);
});

test("lists come newest first, page by page, without a hole or a double", async () => {
  const made: string[] = [];
  for (let count = 0; count < 5; count += 1) made.unshift((await makeVault()).id);
  const seen: string[] = [];
  for await (const { id } of vaults().list({ limit: 2 })) {
    seen.push(id);
    if (seen.length === 5) break;
  }
  expect(seen).toEqual(made);
  const [vault = ""] = made;
  const credentials: string[] = [];
  for (let count = 0; count < 3; count += 1) credentials.unshift((await vaults().credentials.create(vault, bearer(`https://${count}.example`))).id);
  const listed: string[] = [];
  for await (const { id } of vaults().credentials.list(vault, { limit: 2 })) listed.push(id);
  expect(listed).toEqual(credentials);
  const { next_page } = await vaults().list({ limit: 1 });
  expect((await refused(vaults().credentials.list(vault, { page: next_page ?? "" })))[0]).toBe(400);
});

test("all three kinds are kept whole and shown without their secrets", async () => {
  const { id: vault_id } = await makeVault();
  const creds = vaults().credentials;
  const made = [
    await creds.create(vault_id, { display_name: "b", ...bearer("https://a.example/mcp", "canary-token") }),
    await creds.create(vault_id, oauth()),
    await creds.create(
      vault_id,
      variable({ secret_value: "canary-value", networking: { type: "limited", allowed_hosts: ["api.example", "*.example.org", "192.0.2.1"] } }),
    ),
  ];
  expect(made.map(({ auth }) => auth)).toEqual([
    { type: "static_bearer", mcp_server_url: "https://a.example/mcp" },
    {
      type: "mcp_oauth",
      mcp_server_url: "https://o.example/mcp",
      expires_at: "2099-01-01T00:00:00.000Z",
      refresh: {
        token_endpoint: "https://o.example/token",
        client_id: "client-1",
        scope: "read",
        resource: null,
        token_endpoint_auth: { type: "client_secret_post" },
      },
      needs_sign_in: false,
    },
    {
      type: "environment_variable",
      secret_name: "TOKEN",
      networking: { type: "limited", allowed_hosts: ["api.example", "*.example.org", "192.0.2.1"] },
      injection_location: { header: true, body: true },
    },
  ]);
  const [one, two, three] = made.map(({ id }) => id);
  const changed = [
    await creds.update(one ?? "", { vault_id, display_name: "renamed", auth: { type: "static_bearer", token: "canary-token-2" } }),
    await creds.update(two ?? "", {
      vault_id,
      auth: {
        type: "mcp_oauth",
        access_token: "canary-access-2",
        refresh: { scope: "", token_endpoint_auth: { type: "client_secret_basic", client_secret: "canary-client-2" } },
      },
    }),
    await creds.update(three ?? "", { vault_id, auth: { type: "environment_variable", injection_location: { body: false } } }),
  ];
  expect(changed[0]?.display_name).toBe("renamed");
  expect(changed[1]?.auth).toMatchObject({ refresh: { scope: null, token_endpoint_auth: { type: "client_secret_post" } } });
  expect(changed[2]?.auth).toMatchObject({ injection_location: { header: true, body: false } });
  const listed = (await creds.list(vault_id)).data;
  const archived = await vaults().archive(vault_id);
  const inside = (await creds.list(vault_id, { include_archived: true })).data;
  expect(inside.map(({ archived_at }) => archived_at)).toEqual([archived.archived_at, archived.archived_at, archived.archived_at]);
  const everything = JSON.stringify([made, changed, listed, inside]) + api.logged.join("\n");
  expect(everything).not.toContain("canary");
});

test("what names a credential is there once in a vault, and is free again after an archive", async () => {
  const { id: vault_id } = await makeVault();
  const creds = vaults().credentials;
  const made = await creds.create(vault_id, bearer("https://A.example:443/mcp/"));
  expect((await refused(creds.create(vault_id, bearer("https://a.example/mcp"))))[0]).toBe(409);
  await creds.create(vault_id, bearer("https://a.example/other"));
  await creds.create(vault_id, variable());
  expect((await refused(creds.create(vault_id, variable())))[0]).toBe(409);
  expect(await refused(creds.update(made.id, { vault_id, auth: { type: "mcp_oauth", access_token: "x" } }))).toEqual([
    400,
    "auth.type: can't be changed; it is static_bearer",
  ]);
  await creds.archive(made.id, { vault_id });
  const again = await creds.create(vault_id, bearer("https://a.example/mcp"));
  expect(await creds.delete(again.id, { vault_id })).toEqual({ id: again.id, type: "vault_credential_deleted" });
  expect(await refused(creds.retrieve(again.id, { vault_id }))).toEqual([404, "There is no such credential."]);
});

test("the limits are exact, and a refusal names the place and never the value", async () => {
  const { id: vault_id } = await makeVault({ display_name: "x".repeat(255) });
  const creds = vaults().credentials;
  expect((await refused(makeVault({ display_name: "x".repeat(256) })))[0]).toBe(400);
  expect((await refused(makeVault({ display_name: "" })))[0]).toBe(400);
  const hosts = (count: number) => ({ networking: { type: "limited", allowed_hosts: Array.from({ length: count }, (_, at) => `h${at}.example`) } });
  await creds.create(vault_id, variable(hosts(16)));
  const odd: [object, string][] = [
    [variable({ secret_name: "A", ...hosts(17) }), "auth.networking.allowed_hosts"],
    [variable({ secret_name: "A", networking: { type: "limited", allowed_hosts: ["https://api.example"] } }), "auth.networking.allowed_hosts.0"],
    [variable({ secret_name: "A", networking: { type: "limited", allowed_hosts: ["api.example:8080"] } }), "auth.networking.allowed_hosts.0"],
    [variable({ secret_name: "A", networking: { type: "limited", allowed_hosts: ["::1"] } }), "auth.networking.allowed_hosts.0"],
    [variable({ secret_name: "A", injection_location: { header: false } }), "auth.injection_location"],
    [variable({ secret_name: "1A" }), "auth.secret_name"],
    [bearer("http://a.example"), "auth.mcp_server_url"],
    [bearer("https://user:canary-in-url@a.example"), "auth.mcp_server_url"],
    [bearer("https://a.example", "canary with a space"), "auth.token"],
    [bearer("https://a.example", "canary\r\nx: y"), "auth.token"],
    [{ auth: { ...bearer("https://a.example", "canary-extra").auth, extra: "canary-extra" } }, "auth.extra"],
    [{ auth: { type: "canary_pigeon" } }, "auth.type"],
    [oauth({ expires_at: "2001-01-01T00:00:00Z" }), "auth.expires_at"],
  ];
  for (const [body, place] of odd) {
    const [status, says] = await refused(creds.create(vault_id, body as Parameters<typeof creds.create>[1]));
    expect([status, says.split(":")[0], says.includes("canary")]).toEqual([400, place, false]);
  }
  for (let count = 1; count < 20; count += 1) await creds.create(vault_id, bearer(`https://${count}.example`));
  expect(await refused(creds.create(vault_id, bearer("https://20.example")))).toEqual([400, "A vault holds at most 20 active credentials."]);
  const tooLong = await api.call("POST", "/v1/vaults", `{"display_name":"${"x".repeat(2 * 1024 * 1024)}"}`);
  expect([tooLong.status, tooLong.body.error.type]).toEqual([413, "request_too_large"]);
});

test("a create that is repeated under its key makes one, also at once, and another body is refused", async () => {
  const key = newName();
  const headers = { "idempotency-key": key };
  const body = { display_name: "once" };
  const answers = await Promise.all([1, 2, 3, 4].map(() => api.call("POST", "/v1/vaults", body, headers)));
  const ids = new Set(answers.map((answer) => answer.body.id));
  expect([answers.map(({ status }) => status), ids.size]).toEqual([[200, 200, 200, 200], 1]);
  expect((await api.call("POST", "/v1/vaults", { display_name: "twice" }, headers)).status).toBe(409);
  const [id] = ids;
  const path = `/v1/vaults/${id}/credentials`;
  const made = await Promise.all([1, 2, 3].map(() => api.call("POST", path, bearer("https://a.example"), headers)));
  expect([made.map(({ status }) => status), new Set(made.map((answer) => answer.body.id)).size]).toEqual([[200, 200, 200], 1]);
  expect((await api.call("POST", path, bearer("https://b.example"), headers)).status).toBe(409);
});

test("a session has the vaults that it was given, and none that is archived or another's", async () => {
  const [one, two] = [await makeVault(), await makeVault()];
  const session = await makeSession(api, { vault_ids: [two.id, one.id] });
  expect((await api.client.beta.sessions.retrieve(session.id)).vault_ids).toEqual([two.id, one.id]);
  await vaults().archive(one.id);
  const made = { agent: (await makeAgent(api)).id, environment_id: (await makeEnvironment(api)).id };
  const ask = (vault_ids: string[]) => refused(api.client.beta.sessions.create({ ...made, vault_ids }));
  expect(await ask([two.id, one.id])).toEqual([400, `vault_ids.1: Vault ${one.id} is archived.`]);
  expect(await ask(["vlt_01doesnotexist"])).toEqual([404, "vault_ids.0: There is no such vault."]);
  expect((await ask(Array.from({ length: 51 }, (_, at) => `vlt_${at}`)))[0]).toBe(400);
});

test("the grants of a session that was archived or deleted are revoked", async () => {
  const revoked = (id: string) => api.logged.some((line) => line.includes("grant.revoked") && line.includes(id));
  const [one, two] = [await makeSession(api), await makeSession(api)];
  await api.client.beta.sessions.archive(one.id);
  await api.client.beta.sessions.delete(two.id);
  expect([revoked(one.id), revoked(two.id)]).toEqual([true, true]);
});

proves("credential:unseen", "nothing of a credential can be read in any file of the installation, any answer or any log line", async () => {
  const { id: vault_id } = await makeVault();
  const secrets = ["canary-file-token-51", "canary-file-value-52"];
  const made = [
    await vaults().credentials.create(vault_id, bearer("https://a.example", secrets[0])),
    await vaults().credentials.create(vault_id, variable({ secret_value: secrets[1] })),
    await refused(vaults().credentials.create(vault_id, bearer("https://a.example", secrets[0]))),
    (await vaults().credentials.list(vault_id)).data,
  ];
  const said = JSON.stringify(made) + api.logged.join("\n");
  for (const secret of secrets) expect(said).not.toContain(secret);
  const folder = api.vaults?.folder ?? "";
  const files = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
  expect(files.map(({ name }) => name)).toContain(vault_id);
  for (const { parentPath, name } of files) {
    const bytes = await readFile(join(parentPath, name));
    for (const secret of secrets)
      for (const spelled of [secret, Buffer.from(secret).toString("base64"), Buffer.from(secret).toString("hex")])
        expect([name, bytes.includes(spelled)]).toEqual([name, false]);
  }
});
