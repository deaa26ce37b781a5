// The way of one authorization: which client, which scope, which issuer's answer is believed, and what a state is good for.

import { afterEach, expect, test } from "vitest";
import type { ConnectorOptions, StartAsk } from "../../vault-proxy/oauth/connector.ts";
import { failureOf, metadataOf, type Person, person, REDIRECT, type Routes, World } from "../support/oauth-world.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((each) => each.close()));
});

interface Scene {
  readonly world: World;
  readonly somebody: Person;
  readonly server: string;
}

async function scene(more: object = {}, change: Routes = {}, options: Partial<ConnectorOptions> = {}): Promise<Scene> {
  const world = await World.start((origin) => ({ "GET /.well-known/oauth-authorization-server": { body: metadataOf(origin, more) }, ...change }));
  const somebody = person([world.host], options);
  opened.push(world, somebody);
  return { world, somebody, server: `${world.origin}/mcp` };
}

const sentTo = (world: World): URLSearchParams => new URL(world.of("GET /authorize")[0]?.path ?? "", world.origin).searchParams;
const tokenRequest = (world: World): URLSearchParams => new URLSearchParams(world.of("POST /token")[0]?.body);

test("what the browser is sent with is a code's question under PKCE, and nothing that is secret", async () => {
  const { world, somebody, server } = await scene();
  await somebody.connect(server);
  const sent = Object.fromEntries(sentTo(world));
  expect(sent).toEqual({
    response_type: "code",
    client_id: "client-1",
    code_challenge: expect.stringMatching(/^[\w-]{43}$/),
    code_challenge_method: "S256",
    redirect_uri: REDIRECT,
    state: expect.stringMatching(/^[0-9a-z]+\.[\w-]{43}$/),
    scope: "read",
    resource: server,
  });
  expect(sent.code_challenge).not.toBe(tokenRequest(world).get("code_verifier"));
});

const DOCUMENT = { url: "https://ours.example/oauth/client.json", redirectUri: "http://127.0.0.1/callback" };
const GIVEN = { client_id: "given", client_secret: "client-secret" };
const registers = (more: object): Routes => ({
  "POST /register": ({ body }) => ({ status: 201, body: { ...(JSON.parse(body) as object), client_id: "client-1", ...more } }),
});
const basic = (id: string, secret: string): string => `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}`;

/** What the authorization server says and does, what we have, and how the token endpoint sees us. */
const CLIENTS: readonly [
  name: string,
  more: object,
  change: Routes,
  ask: Partial<StartAsk>,
  seen: { authorization: string | undefined; id: string | null; secret: string | null },
][] = [
  ["given beforehand, no word of methods", {}, {}, { client: GIVEN }, { authorization: basic("given", "client-secret"), id: null, secret: null }],
  [
    "given beforehand, in the body",
    { token_endpoint_auth_methods_supported: ["client_secret_post"] },
    {},
    { client: GIVEN },
    { authorization: undefined, id: "given", secret: "client-secret" },
  ],
  ["given beforehand, without a secret", {}, {}, { client: { client_id: "given" } }, { authorization: undefined, id: "given", secret: null }],
  [
    "our own document, where it is known",
    { client_id_metadata_document_supported: true },
    {},
    {},
    { authorization: undefined, id: DOCUMENT.url, secret: null },
  ],
  [
    "registered, since the document has no such redirect",
    { client_id_metadata_document_supported: true },
    {},
    { redirectUri: "https://app.example/back" },
    { authorization: undefined, id: "client-1", secret: null },
  ],
  [
    "registered, with a secret in the header",
    { token_endpoint_auth_methods_supported: ["client_secret_basic"] },
    registers({ client_secret: "made" }),
    {},
    { authorization: basic("client-1", "made"), id: null, secret: null },
  ],
  [
    "registered, with a secret in the body",
    { token_endpoint_auth_methods_supported: ["client_secret_post"] },
    registers({ client_secret: "made" }),
    {},
    { authorization: undefined, id: "client-1", secret: "made" },
  ],
];

test.each(CLIENTS)("the client is %s", async (_name, more, change, ask, seen) => {
  const { world, somebody, server } = await scene(more, change, { document: DOCUMENT });
  const tokens = await somebody.connect(server, ask);
  const [request] = world.of("POST /token");
  const body = tokenRequest(world);
  expect({ authorization: request?.authorization, id: body.get("client_id"), secret: body.get("client_secret") }).toEqual(seen);
  expect(world.of("POST /register")).toHaveLength(tokens.client.client_id === "client-1" ? 1 : 0);
});

test("who can't be a client is told what to do", async () => {
  const { somebody, server } = await scene({ registration_endpoint: undefined });
  await expect(somebody.start(server)).rejects.toThrow(`register one there with the redirect address ${REDIRECT} and give its client_id`);
  // It was asked for a client with a secret, and registers one that has none.
  const wants = await scene({ token_endpoint_auth_methods_supported: ["client_secret_basic"] });
  expect(await failureOf(wants.somebody.start(wants.server))).toBe("no_client");
  const refuses = await scene(
    {},
    { "POST /register": { status: 400, body: { error: "invalid_client_metadata", error_description: "canary-words" } } },
  );
  const failure = await refuses.somebody.start(refuses.server).catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: "registration_refused" });
  expect(String(failure)).not.toContain("canary-words");
});

const SCOPES: readonly [
  name: string,
  challenged: string,
  listed: string[] | undefined,
  more: string | null,
  knows: string[],
  scope: string | null,
][] = [
  ["the challenge's", ', scope="a b"', ["c"], null, [], "a b"],
  ["all that the metadata lists", "", ["c", "d"], null, [], "c d"],
  ["none", "", undefined, null, [], null],
  ["none, though lasting access is known", "", undefined, null, ["offline_access"], null],
  ["more than was granted before", ', scope="a"', ["c"], "b a", [], "a b"],
  ["lasting, where the word is known", ', scope="a"', undefined, null, ["offline_access"], "a offline_access"],
];
test.each(SCOPES)("the scope is %s", async (_name, challenged, listed, more, scopes_supported, scope) => {
  const world = await World.start((origin) => ({
    "POST /mcp": { status: 401, headers: { "www-authenticate": `Bearer resource_metadata="${origin}/prm"${challenged}` } },
    "GET /prm": { body: { resource: `${origin}/mcp`, authorization_servers: [origin], scopes_supported: listed } },
    "GET /.well-known/oauth-authorization-server": { body: metadataOf(origin, { scopes_supported }) },
  }));
  const somebody = person([world.host]);
  opened.push(world, somebody);
  const tokens = await somebody.connect(`${world.origin}/mcp`, { scope: more });
  expect([sentTo(world).get("scope"), tokens.scope]).toEqual([scope, scope]);
});

const OTHER = "https://attacker.example";
const ISSUERS: readonly [name: string, says: boolean, iss: (origin: string) => string | null, outcome: "tokens" | "refused"][] = [
  ["its own issuer, as announced", true, (origin) => origin, "tokens"],
  ["its own issuer, unannounced", false, (origin) => origin, "tokens"],
  ["none, and announced none", false, () => null, "tokens"],
  ["none, though it announced one", true, () => null, "refused"],
  ["another issuer", true, () => OTHER, "refused"],
  ["another issuer, unannounced", false, () => OTHER, "refused"],
  ["its own issuer in another spelling", true, (origin) => `${origin}/`, "refused"],
];
test.each(ISSUERS)("an answer that names %s", async (_name, says, iss, outcome) => {
  const { world, somebody, server } = await scene({ authorization_response_iss_parameter_supported: says });
  const name = iss(world.origin);
  const withIss = (back: URLSearchParams) => name !== null && back.set("iss", name);
  const came = await failureOf(somebody.connect(server, {}, withIss));
  if (outcome === "tokens") expect(came).toMatchObject({ accessToken: "access-1" });
  else expect([came, world.of("POST /token")]).toEqual(["issuer_mismatch", []]);
});

test("an error of a stranger's is not read, and of one's own only its code", async () => {
  const { somebody, server } = await scene({ authorization_response_iss_parameter_supported: true });
  const back = (iss: string) => (params: URLSearchParams) => {
    params.delete("code");
    params.set("error", "access_denied");
    params.set("iss", iss);
  };
  expect(await failureOf(somebody.connect(server, {}, back(OTHER)))).toBe("issuer_mismatch");
  const own = await somebody.connect(server, {}, back(new URL(server).origin)).catch((error: unknown) => error);
  expect(own).toMatchObject({ code: "denied", message: expect.stringContaining("access_denied") });
});

test("a state is good once, for who began it, and for ten minutes", async () => {
  let now = 1_000_000;
  const { world, somebody, server } = await scene({}, {}, { now: () => now });
  const finish = (state: string, owner: string) =>
    failureOf(somebody.connector.finish({ state, owner, code: "code-1", iss: null, error: null }, async () => {}));
  const browse = async ({ authorizationUrl, state }: { authorizationUrl: string; state: string }) => {
    await fetch(authorizationUrl, { redirect: "manual" });
    return state;
  };

  const state = await browse(await somebody.start(server));
  expect(await finish(state, "somebody else")).toBe("unknown_state");
  expect(await finish(`${state}x`, "somebody")).toBe("unknown_state");
  // The stranger's try took nothing from the one whose it is.
  expect(await finish(state, "somebody")).toMatchObject({ accessToken: "access-1" });
  expect(await finish(state, "somebody")).toBe("unknown_state");

  const late = await somebody.start(server);
  expect(late.expiresAt).toBe(now + 600_000);
  now += 600_000;
  expect(await finish(late.state, "somebody")).toBe("unknown_state");
  expect(world.of("POST /token")).toHaveLength(1);
});

test("a code whose exchange fails is not tried again, and the server's words are not said again", async () => {
  const { world, somebody, server } = await scene(
    {},
    { "POST /token": { status: 400, body: { error: "invalid_grant", error_description: "canary-words" } } },
  );
  const failure = await somebody.connect(server).catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: "token_refused", message: expect.stringContaining("invalid_grant") });
  expect(String(failure)).not.toContain("canary-words");
  expect(world.of("POST /token")).toHaveLength(1);
});

test("tokens of another kind than bearer are not taken", async () => {
  const { somebody, server } = await scene({}, { "POST /token": { body: { access_token: "a", token_type: "DPoP" } } });
  expect(await failureOf(somebody.connect(server))).toBe("bad_tokens");
});

test("another authorization server is never shown the client of the one before", async () => {
  const first = await World.start();
  const second = await World.start(() => registers({ client_id: "client-2" }));
  let issuer = first.origin;
  const world = await World.start((origin) => ({ "GET /prm": () => ({ body: { resource: `${origin}/mcp`, authorization_servers: [issuer] } }) }));
  const somebody = person([world.host, first.host, second.host]);
  opened.push(first, second, world, somebody);
  await somebody.connect(`${world.origin}/mcp`);
  issuer = second.origin;
  const tokens = await somebody.connect(`${world.origin}/mcp`);
  expect([tokens.client.client_id, tokens.tokenEndpoint]).toEqual(["client-2", `${second.origin}/token`]);
  expect(JSON.stringify(second.asked)).not.toContain("client-1");
});
