// Where the authorization of an MCP server is found: one scripted server a row.

import { afterEach, expect, test } from "vitest";
import { challenge, failureOf, metadataOf, person, type Routes, redirect, World } from "../support/oauth-world.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((each) => each.close()));
});

async function tried(path: string, change: (origin: string) => Routes): Promise<{ world: World; came: unknown }> {
  const world = await World.start(change);
  const somebody = person([world.host]);
  opened.push(world, somebody);
  const came = await failureOf(somebody.connect(`${world.origin}${path}`));
  return { world, came };
}

const GONE = { status: 404 };
const resource = (origin: string, at: string, more: object = {}) => ({
  body: { resource: `${origin}${at}`, authorization_servers: [origin], ...more },
});
const prm = "GET /.well-known/oauth-protected-resource";
const as = "GET /.well-known/oauth-authorization-server";

/** A path, what differs from a server as it should be, and the resource that is sent. */
const FOUND: readonly [name: string, path: string, change: (origin: string) => Routes, resource: string | null][] = [
  ["the challenge names the metadata", "/mcp", () => ({}), "/mcp"],
  [
    "no header, metadata under the path",
    "/mcp",
    (origin) => ({ "POST /mcp": { status: 401 }, "GET /prm": GONE, [`${prm}/mcp`]: resource(origin, "/mcp") }),
    "/mcp",
  ],
  ["no challenge at all", "/mcp", (origin) => ({ "POST /mcp": { status: 200 }, [`${prm}/mcp`]: resource(origin, "/mcp") }), "/mcp"],
  ["metadata only at the root", "/mcp", (origin) => ({ "POST /mcp": challenge('realm="x"'), [prm]: resource(origin, "") }), ""],
  ["the challenge names a place that has nothing", "/mcp", (origin) => ({ "GET /prm": GONE, [`${prm}/mcp`]: resource(origin, "/mcp") }), "/mcp"],
  [
    "a page for people where metadata could be",
    "/mcp",
    (origin) => ({ "POST /mcp": { status: 401 }, [`${prm}/mcp`]: { body: "<!doctype html>" }, [prm]: resource(origin, "/") }),
    "/",
  ],
  [
    "a redirect to a login page where metadata could be",
    "/mcp",
    (origin) => ({ "POST /mcp": { status: 401 }, [`${prm}/mcp`]: redirect(`${origin}/login`), [prm]: resource(origin, "/") }),
    "/",
  ],
  [
    "a slash at the end of the address, none in the resource",
    "/mcp/",
    (origin) => ({ "POST /mcp/": challenge(`resource_metadata="${origin}/prm"`) }),
    "/mcp",
  ],
  ["a slash in the resource, none in the address", "/mcp", (origin) => ({ "GET /prm": resource(origin, "/mcp/") }), "/mcp/"],
  [
    "a slash at the end of the metadata's path",
    "/mcp/",
    (origin) => ({ "POST /mcp/": { status: 401 }, [`${prm}/mcp/`]: resource(origin, "/mcp/") }),
    "/mcp/",
  ],
  [
    "the authorization server has a slash, its document none",
    "/mcp",
    (origin) => ({ "GET /prm": resource(origin, "/mcp", { authorization_servers: [`${origin}/`] }) }),
    "/mcp",
  ],
  ["the document's issuer has a slash", "/mcp", (origin) => ({ [as]: { body: metadataOf(origin, { issuer: `${origin}/` }) } }), "/mcp"],
  [
    "described only by its OpenID document",
    "/mcp",
    (origin) => ({ [as]: GONE, "GET /.well-known/openid-configuration": { body: metadataOf(origin, { jwks_uri: `${origin}/jwks` }) } }),
    "/mcp",
  ],
  [
    "an issuer with a path, its OpenID document behind it",
    "/mcp",
    (origin) => ({
      "GET /prm": resource(origin, "/mcp", { authorization_servers: [`${origin}/tenant`] }),
      "GET /tenant/.well-known/openid-configuration": { body: metadataOf(origin, { issuer: `${origin}/tenant` }) },
    }),
    "/mcp",
  ],
  [
    "an issuer with a path, its document before it",
    "/mcp",
    (origin) => ({
      "GET /prm": resource(origin, "/mcp", { authorization_servers: [`${origin}/tenant`] }),
      [`${as}/tenant`]: { body: metadataOf(origin, { issuer: `${origin}/tenant` }) },
    }),
    "/mcp",
  ],
  ["an older server with no resource metadata", "/mcp", () => ({ "POST /mcp": { status: 401 }, "GET /prm": GONE }), null],
];

test.each(FOUND)("found: %s", async (_name, path, change, expected) => {
  const { world, came } = await tried(path, change);
  const advertised = expected === null ? null : `${world.origin}${expected}`;
  expect(came).toMatchObject({ accessToken: "access-1", refreshToken: "refresh-1", resource: advertised });
  // As it was advertised, to the letter, at both of its places.
  const asked = new URL(world.of("GET /authorize")[0]?.path ?? "", world.origin).searchParams;
  const token = new URLSearchParams(world.of("POST /token")[0]?.body);
  expect([asked.get("resource"), token.get("resource")]).toEqual([advertised, advertised]);
});

const REFUSED: readonly [name: string, change: (origin: string) => Routes, code: string][] = [
  ["a resource of another origin", () => ({ "GET /prm": { body: { resource: "https://other.example/mcp" } } }), "resource_mismatch"],
  ["a resource beside the address", (origin) => ({ "GET /prm": resource(origin, "/mc") }), "resource_mismatch"],
  ["a resource below the address", (origin) => ({ "GET /prm": resource(origin, "/mcp/inner") }), "resource_mismatch"],
  ["metadata without a resource, named by the challenge", () => ({ "GET /prm": { body: { authorization_servers: [] } } }), "bad_metadata"],
  ["a document of another issuer", (origin) => ({ [as]: { body: metadataOf(origin, { issuer: "https://other.example" }) } }), "issuer_mismatch"],
  ["a document without a token endpoint", (origin) => ({ [as]: { body: metadataOf(origin, { token_endpoint: undefined }) } }), "bad_metadata"],
  [
    "an authorization page that is a script",
    (origin) => ({ [as]: { body: metadataOf(origin, { authorization_endpoint: "javascript:alert(1)" }) } }),
    "bad_metadata",
  ],
  ["no document anywhere", () => ({ [as]: GONE }), "no_metadata"],
  ["no word of PKCE", (origin) => ({ [as]: { body: metadataOf(origin, { code_challenge_methods_supported: undefined }) } }), "no_pkce"],
  ["PKCE in its weak form only", (origin) => ({ [as]: { body: metadataOf(origin, { code_challenge_methods_supported: ["plain"] }) } }), "no_pkce"],
  ["no codes", (origin) => ({ [as]: { body: metadataOf(origin, { response_types_supported: ["token"] }) } }), "bad_metadata"],
];

test.each(REFUSED)("refused, and nobody is registered or sent anywhere: %s", async (_name, change, code) => {
  const { world, came } = await tried("/mcp", change);
  expect(came).toBe(code);
  expect(world.paths.filter((each) => ["POST /register", "GET /authorize", "POST /token"].includes(each))).toEqual([]);
});

test("who has no document is told that default addresses are not tried, though something answers there", async () => {
  const world = await World.start(() => ({ [as]: GONE, "POST /mcp": { status: 401 }, "GET /prm": GONE }));
  const somebody = person([world.host]);
  opened.push(world, somebody);
  await expect(somebody.start(`${world.origin}/mcp`)).rejects.toThrow(/default addresses are not tried.*PKCE.*put it into the vault as a credential/);
  expect(world.paths.filter((path) => !path.includes("/.well-known/"))).toEqual(["POST /mcp"]);
});

test("a flood of metadata is an error and not a memory", async () => {
  const { came } = await tried("/mcp", () => ({ "GET /prm": { body: "x".repeat(300 * 1024) } }));
  expect(came).toBe("unreachable");
});
