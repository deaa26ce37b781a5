// Resources of a session (contract §14) through the gateway's door, by the official SDK: repositories, and a token that is seen nowhere.

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { sweepRepositories } from "../../gateway/repository-tokens.ts";
import { Repositories } from "../../vault-proxy/git/repositories.ts";
import { type Api, makeAgent, makeEnvironment, makeSession, startApi } from "../support/api.ts";

vi.setConfig({ testTimeout: 60_000 });

const TOKEN = "ghp_canary/0123456789+abcdefghijklmnop";
const URL_OF = "https://github.com/acme/site";
const repository = (fields: object = {}) => ({ type: "github_repository" as const, url: URL_OF, authorization_token: TOKEN, ...fields });

let api: Api;
beforeAll(async () => {
  api = await startApi({ vaults: true, gitOrigins: ["http://127.0.0.1:4000"] });
});
afterAll(() => api.close());

/** What the vault proxy keeps for a session. */
const kept = (session: string) => {
  if (api.vaults === null) throw new Error("no vaults");
  return new Repositories(api.vaults.vaults).of("default", session);
};

async function refused(asked: Promise<unknown>): Promise<[status: number | undefined, says: string]> {
  try {
    await asked;
  } catch (error) {
    if (!(error instanceof Anthropic.APIError)) throw error;
    return [error.status, (error.error as { error: { message: string } }).error.message];
  }
  throw new Error("nothing was refused");
}

test("a session shows its repositories, lists and retrieves them, and never their tokens", async () => {
  const session = await makeSession(api, {
    resources: [
      repository(),
      repository({ url: "http://127.0.0.1:4000/group/sub/tool", authorization_token: undefined, mount_path: "/workspace/deep/tool" }),
    ],
  });
  const time = expect.stringMatching(/^\d{4}-.*Z$/);
  const common = { type: "github_repository", created_at: time, updated_at: time, checkout: null };
  const shown = [
    { id: expect.stringMatching(/^sesrsc_[0-9A-Za-z]{24}$/), ...common, url: URL_OF, mount_path: "/workspace/site" },
    { id: expect.stringMatching(/^sesrsc_/), ...common, url: "http://127.0.0.1:4000/group/sub/tool", mount_path: "/workspace/deep/tool" },
  ];
  expect(session.resources).toEqual(shown);
  expect((await api.client.beta.sessions.retrieve(session.id)).resources).toEqual(shown);
  const listed: unknown[] = [];
  for await (const each of api.client.beta.sessions.resources.list(session.id, { limit: 1 })) listed.push(each);
  expect(listed).toEqual(shown);
  const id = session.resources.flatMap((each) => ("id" in each ? [each.id] : []))[0] ?? "";
  expect(await api.client.beta.sessions.resources.retrieve(id, { session_id: session.id })).toEqual(session.resources[0]);
  expect(await kept(session.id)).toEqual([
    { url: URL_OF, token: TOKEN },
    { url: "http://127.0.0.1:4000/group/sub/tool", token: null },
  ]);
});

test("a token can be changed, and nothing else of it", async () => {
  const session = await makeSession(api, { resources: [repository(), repository({ url: "https://github.com/acme/other" })] });
  const [first] = session.resources.flatMap((each) => ("id" in each ? [each] : []));
  if (first === undefined) throw new Error("no resource");
  const { resources } = api.client.beta.sessions;
  const updated = await resources.update(first.id, { session_id: session.id, authorization_token: "ghp_other" });
  expect({ ...updated, updated_at: "" }).toEqual({ ...first, updated_at: "" });
  expect((await resources.retrieve(first.id, { session_id: session.id })).type).toBe("github_repository");
  expect((await kept(session.id)).map(({ token }) => token)).toEqual(["ghp_other", TOKEN]);
  expect(await refused(resources.delete(first.id, { session_id: session.id }))).toEqual([
    400,
    expect.stringContaining("stays as long as its session"),
  ]);
  expect(await refused(resources.add(session.id, { type: "file", file_id: "f" }))).toEqual([400, expect.stringContaining("not supported here")]);
  expect(await refused(resources.retrieve("sesrsc_unknown", { session_id: session.id }))).toEqual([404, "There is no such resource."]);
  const odd = await api.call("POST", `/v1/sessions/${session.id}/resources/${first.id}`, { authorization_token: "x", url: URL_OF });
  expect([odd.status, odd.body.error.message]).toEqual([400, "url: Extra inputs are not permitted"]);
  const added = await api.call("POST", `/v1/sessions/${session.id}/resources`, repository());
  expect([added.status, added.body.error.message]).toEqual([400, expect.stringContaining("given when the session is created")]);
});

const COMMIT = "0123456789abcdef0123456789abcdef01234567";
test.each([
  [{ url: "https://github.com/acme" }, "url: must be https://github.com/owner/repo"],
  [{ url: "https://github.com/acme/site.git" }, "without .git"],
  [{ url: "https://github.com/acme/site/" }, "url: must be"],
  [{ url: "https://github.com/acme/../site" }, "url: must be"],
  [{ url: "https://github.com/acme/%2e%2e" }, "url: must be"],
  [{ url: "https://github.com/a/b/c" }, "url: must be"],
  [{ url: "http://github.com/acme/site" }, "url: must be"],
  [{ url: "https://github.com:444/acme/site" }, "url: must be"],
  [{ url: "https://user@github.com/acme/site" }, "url: must be"],
  [{ url: "https://github.com./acme/site" }, "url: must be"],
  [{ url: "https://GitHub.com/acme/site" }, "url: must be"],
  [{ url: "https://127.0.0.1:4000/acme/site" }, "url: must be"],
  [{ url: "http://2130706433:4000/acme/site" }, "url: must be"],
  [{ url: "https://github.com/acme/site?x=1" }, "url: must be"],
  [{ mount_path: "/etc/x" }, "mount_path: must be a folder below /workspace"],
  [{ mount_path: "/workspace" }, "mount_path: must be a folder below /workspace"],
  [{ mount_path: "/workspace/../etc" }, "mount_path: must be"],
  [{ mount_path: "/workspace/.manyhands/x" }, "mount_path: must be"],
  [{ checkout: { type: "branch", name: "--upload-pack=x" } }, "checkout.name: is no name of a branch"],
  [{ checkout: { type: "branch", name: "a..b" } }, "checkout.name: is no name of a branch"],
  [{ checkout: { type: "commit", sha: "abc" } }, "checkout.sha: must be a full commit SHA"],
  [{ authorization_token: "with space" }, "authorization_token: must be 1 to 1024 printable"],
  [{ authorization_token: 7 }, "authorization_token: must be 1 to 1024 printable"],
  [{ bogus: 1 }, "bogus: Extra inputs"],
])("%j is refused by its path, and its token is not said", async (fields, says) => {
  const [status, message] = await refused(makeSession(api, { resources: [repository(fields)] }));
  expect([status, message]).toEqual([400, expect.stringContaining(`resources.0.${says.startsWith("without") ? "url" : says.split(":")[0]}`)]);
  expect(message).toContain(says);
  expect(message).not.toContain(TOKEN);
});

test("folders that meet, and a repository that is there twice, are refused; a branch and a commit are taken", async () => {
  const other = repository({ url: "https://github.com/acme/other", mount_path: "/workspace/site/inner" });
  expect(await refused(makeSession(api, { resources: [repository(), other] }))).toEqual([400, expect.stringContaining("resources.1.mount_path")]);
  const same = repository({ mount_path: "/workspace/elsewhere" });
  expect(await refused(makeSession(api, { resources: [repository(), same] }))).toEqual([400, expect.stringContaining("resources.1.url")]);
  const checkouts = [
    { type: "branch", name: "feature/x-1" },
    { type: "commit", sha: COMMIT },
  ] as const;
  for (const checkout of checkouts) {
    const { resources } = await makeSession(api, { resources: [repository({ checkout })] });
    expect(resources[0]).toMatchObject({ checkout });
  }
});

test("a self-hosted environment has no repositories", async () => {
  const environment = await makeEnvironment(api, { config: { type: "self_hosted" } });
  const { id: agent } = await makeAgent(api);
  const [status, says] = await refused(api.client.beta.sessions.create({ agent, environment_id: environment.id, resources: [repository()] }));
  expect([status, says]).toEqual([
    400,
    expect.stringContaining(`Environment ${environment.id} is a self-hosted environment. \`resources\` are not supported`),
  ]);
});

test("a create that is repeated under its key makes one session; another token under it is another request", async () => {
  const [agent, environment] = await Promise.all([makeAgent(api), makeEnvironment(api)]);
  const body = (token: string) => ({ agent: agent.id, environment_id: environment.id, resources: [repository({ authorization_token: token })] });
  const key = { "idempotency-key": "git-1" };
  const first = await api.call("POST", "/v1/sessions", body(TOKEN), key);
  const again = await api.call("POST", "/v1/sessions", body(TOKEN), key);
  expect([again.status, again.body.id, again.body.resources]).toEqual([200, first.body.id, first.body.resources]);
  expect((await api.call("POST", "/v1/sessions", body("ghp_another"), key)).status).toBe(409);
  expect(await kept(first.body.id)).toEqual([{ url: URL_OF, token: TOKEN }]);
});

test("a token that is spelled with escapes is sealed like any other", async () => {
  const [agent, environment] = await Promise.all([makeAgent(api), makeEnvironment(api)]);
  const text = JSON.stringify({ agent: agent.id, environment_id: environment.id, resources: [repository()] });
  const escaped = text.replace("authorization_token", "\\u0061uthorization\\u005ftoken");
  const made = await api.call("POST", "/v1/sessions", escaped);
  expect(made.status).toBe(200);
  expect(await kept(made.body.id)).toEqual([{ url: URL_OF, token: TOKEN }]);
});

test("what is kept for a session goes with it: when it is archived, deleted, or never came about", async () => {
  const [archived, deleted] = await Promise.all([1, 2].map(() => makeSession(api, { resources: [repository()] })));
  if (archived === undefined || deleted === undefined) throw new Error("no sessions");
  await api.client.beta.sessions.archive(archived.id);
  await api.client.beta.sessions.delete(deleted.id);
  expect(await Promise.all([kept(archived.id), kept(deleted.id)])).toEqual([[], []]);
});

test("a sweep has the vault proxy forget what belongs to no session, and nothing else", async () => {
  const { vaults, vaultProxy, store } = api;
  if (vaults === null || vaultProxy === null) throw new Error("no vaults");
  const { id } = await makeSession(api, { resources: [repository()] });
  const long = new Repositories(vaults.vaults, () => Date.now() - 86_400_000);
  for (const session of ["sesn_never", id]) await long.put("default", session, [{ url: URL_OF, token: TOKEN }]);
  await new Repositories(vaults.vaults).put("default", "sesn_young", [{ url: URL_OF, token: TOKEN }]);
  const count = await sweepRepositories(vaultProxy, store, { principal: { workspace: "default", name: "t" }, requestId: "req_1" });
  expect(count).toBe(1);
  expect((await Promise.all(["sesn_never", id, "sesn_young"].map(kept))).map((all) => all.length)).toEqual([0, 1, 1]);
});

test("the token is in no answer, no line of a log, and on no disk but sealed", async () => {
  const { id } = await makeSession(api, { resources: [repository()] });
  const events = JSON.stringify(await api.store.getEvents(id as Parameters<Api["store"]["getEvents"]>[0]));
  expect(events).toContain(URL_OF);
  const folder = api.vaults?.folder ?? "";
  const files = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((each) => each.isFile());
  const texts = await Promise.all(files.map((each) => readFile(join(each.parentPath, each.name), "latin1")));
  expect(texts.length).toBeGreaterThan(2);
  for (const text of [events, api.logged.join("\n"), ...texts])
    for (const form of [TOKEN, Buffer.from(TOKEN).toString("base64"), "sealed_"]) expect(text.includes(form)).toBe(false);
});
