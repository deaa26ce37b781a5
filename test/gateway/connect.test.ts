// A person connects an MCP server: the command, the gateway, the vault proxy and a real authorization server.

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { connect } from "../../gateway/connect/command.ts";
import { type ConnectWords, readWords } from "../../gateway/connect/words.ts";
import { API_KEY, type Api, newName, startApi } from "../support/api.ts";
import { browse, type PersonServer, startPersonServer } from "../support/oauth/person-server.ts";
import { until } from "../support/until.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let server: PersonServer;
let api: Api;
beforeAll(async () => {
  server = await startPersonServer();
  api = await startApi({ vaults: true, internalHosts: [server.host] });
});
afterAll(async () => {
  await api.close();
  await server.close();
});

const makeVault = async () => (await api.client.beta.vaults.create({ display_name: newName() })).id;
const OTHER = { "x-api-key": "test-key-2" };
const STRANGER = "http://127.0.0.1:41998/callback";

function words(vault: string, ...more: string[]): ConnectWords {
  const read = readWords([server.mcpUrl, "--vault", vault, "--no-browser", ...more]);
  if (typeof read === "string") throw new Error(read);
  return read;
}

/** Runs the command, and opens what it prints. */
async function byCommand(asked: ConnectWords, isWilling = true): Promise<{ code: number; said: string; page: string }> {
  const said: string[] = [];
  const done = connect({ url: api.url, key: API_KEY }, asked, (line) => void said.push(line));
  await until(() => /https?:\S+\/auth\?/.test(said.join("\n")));
  const { text } = await browse(/http\S+\/auth\?\S+/.exec(said.join("\n"))?.[0] ?? "", { isWilling });
  return { code: await done, said: said.join("\n"), page: text };
}

interface Kept {
  readonly access_token: string | null;
  readonly expires_at: string | null;
  readonly refresh: { readonly refresh_token: string | null; readonly scope: string; readonly resource: string; readonly client_id: string };
}

/** The record as the vault has it: only a test opens it. */
async function keptIn(vault: string): Promise<{ id: string; archivedAt: number | null; auth: Kept }[]> {
  if (api.vaults === null) throw new Error("no vaults");
  const found = await api.vaults.vaults.get({ workspace: "default", kind: "vault", id: vault });
  return (found?.body as { credentials: { id: string; archivedAt: number | null; auth: Kept }[] } | undefined)?.credentials ?? [];
}

const start = (vault: string, fields: object = {}, headers: Record<string, string> = {}) =>
  api.call("POST", `/v1/vaults/${vault}/connect`, { mcp_server_url: server.mcpUrl, redirect_uri: STRANGER, ...fields }, headers);
const finish = (vault: string, body: object, headers: Record<string, string> = {}) =>
  api.call("POST", `/v1/vaults/${vault}/connect/finish`, body, headers);

/** What the browser would bring to a redirect address where nobody listens. */
async function back(authorizationUrl: string): Promise<URLSearchParams> {
  const { url } = await browse(authorizationUrl, { stopAt: STRANGER });
  return new URL(url).searchParams;
}

test("the command ends with tokens in the vault that are good, renewable, and told to nobody", async () => {
  const vault = await makeVault();
  const { code, said, page } = await byCommand(words(vault));
  expect([code, page.includes("Connected.")]).toEqual([0, true]);

  const [kept, ...more] = await keptIn(vault);
  expect([more.length, await server.isGood(kept?.auth.access_token ?? "")]).toEqual([0, true]);
  expect(kept?.auth.refresh).toMatchObject({
    token_endpoint: `${server.issuer}/token`,
    resource: server.mcpUrl,
    scope: "tools:use",
    token_endpoint_auth: { type: "none", client_secret: null },
    refresh_token: expect.any(String),
  });
  const listed = (await api.client.beta.vaults.credentials.list(vault)).data;
  expect(listed).toMatchObject([{ id: kept?.id, auth: { type: "mcp_oauth", mcp_server_url: server.mcpUrl } }]);

  const folder = join(api.vaults?.folder ?? "", "audit");
  const audit = (await Promise.all((await readdir(folder)).map((name) => readFile(join(folder, name), "utf8")))).join("");
  expect(audit).toContain(`"use":"oauth_connect"`);
  const state = new URL(/http\S+\/auth\?\S+/.exec(said)?.[0] ?? "").searchParams.get("state") ?? "none";
  const shown = [...api.logged, audit, JSON.stringify(listed), page].join("\n");
  for (const secret of [kept?.auth.access_token, kept?.auth.refresh.refresh_token, state]) {
    expect(secret).toEqual(expect.any(String));
    expect(shown).not.toContain(secret);
  }
  expect(said).not.toContain(kept?.auth.access_token);
});

test("connecting again puts new tokens in the old ones' place, which are purged", async () => {
  const vault = await makeVault();
  await byCommand(words(vault));
  const [first] = await keptIn(vault);
  expect((await byCommand(words(vault))).code).toBe(0);
  const [old, fresh, ...more] = await keptIn(vault);
  expect(more).toEqual([]);
  expect(old).toMatchObject({ id: first?.id, archivedAt: expect.any(Number), auth: { access_token: null, refresh: { refresh_token: null } } });
  expect(fresh).toMatchObject({ archivedAt: null, auth: { access_token: expect.any(String) } });
  // Another authorization server, or another client there, is never shown what the first one was given.
  expect(fresh?.auth.refresh.client_id).not.toBe(first?.auth.refresh.client_id);
});

test("the browser brings a no: the command says so, and nothing is kept", async () => {
  const vault = await makeVault();
  const { code, said, page } = await byCommand(words(vault), false);
  expect([code, await keptIn(vault)]).toEqual([1, []]);
  expect(page).toContain("Not connected");
  expect(said).toContain("denied: ");
  expect(said).toContain("(access_denied)");
});

test("a client that was registered before is used, its secret kept for renewing alone", async () => {
  const vault = await makeVault();
  const client = { client_id: "registered-before", client_secret: "canary-client-secret" };
  const began = await start(vault, { client });
  expect(began.status).toBe(200);
  const params = await back(began.body.authorization_url);
  const made = await finish(vault, { state: params.get("state"), code: params.get("code"), iss: params.get("iss") });
  expect(made).toMatchObject({
    status: 200,
    body: { type: "vault_credential", auth: { refresh: { client_id: "registered-before", token_endpoint_auth: { type: "client_secret_basic" } } } },
  });
  expect(`${JSON.stringify([began.body, made.body])}${api.logged.join("")}`).not.toContain("canary-client-secret");
});

test("an answer that somebody else brings, or that comes for another vault, is the same as one that nobody asked for", async () => {
  const [vault, another] = [await makeVault(), await makeVault()];
  const began = await start(vault);
  const params = await back(began.body.authorization_url);
  const answer = { state: params.get("state"), code: params.get("code"), iss: params.get("iss") };
  const unknown = await finish(vault, { ...answer, state: "made-up" });
  expect(unknown.status).toBe(404);
  for (const refused of [await finish(vault, answer, OTHER), await finish(another, answer)])
    expect([refused.status, refused.body.error]).toEqual([404, unknown.body.error]);
  expect((await finish(vault, { ...answer })).status).toBe(200);
  // Used up.
  expect((await finish(vault, answer)).status).toBe(404);
});

test("an answer that comes from another issuer ends the authorization", async () => {
  const vault = await makeVault();
  const params = await back((await start(vault)).body.authorization_url);
  const answer = { state: params.get("state"), code: params.get("code"), iss: "https://attacker.example" };
  const refused = await finish(vault, answer);
  expect([refused.status, refused.body.error.message]).toEqual([400, expect.stringMatching(/^issuer_mismatch: /)]);
  expect(JSON.stringify(refused.body)).not.toContain("attacker");
  expect((await finish(vault, { ...answer, iss: params.get("iss") })).status).toBe(404);
});

test("what can't be begun is said at once, with what to do", async () => {
  const vault = await makeVault();
  const saying = async (fields: object) => {
    const { status, body } = await start(vault, fields);
    return [status, body.error?.message];
  };
  const bad = [400, "redirect_uri: must be an https:// address, or an http:// one on loopback, without user name, password and fragment"];
  for (const redirect_uri of ["http://app.example/back", "ftp://127.0.0.1/", "https://a:b@app.example/", "https://app.example/#x"])
    expect(await saying({ redirect_uri })).toEqual(bad);
  expect(await saying({ mcp_server_url: "http://127.0.0.1:9/mcp" })).toEqual([400, expect.stringContaining("MANYHANDS_INTERNAL_HOSTS")]);
  expect(await saying({ mcp_server_url: "https://127.0.0.1:9/mcp" })).toEqual([
    400,
    expect.stringMatching(/^unreachable: The MCP server can't be asked/),
  ]);
  const auth = { type: "static_bearer" as const, mcp_server_url: server.mcpUrl, token: "a-token" };
  await api.client.beta.vaults.credentials.create(vault, { auth });
  expect(await saying({})).toEqual([400, expect.stringContaining("archive it first")]);
  await api.client.beta.vaults.archive(vault);
  expect(await saying({})).toEqual([400, "The vault is archived and can't be changed."]);
});
