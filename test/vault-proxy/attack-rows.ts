// The attack table: what is tried at each route of the vault proxy, and how it is refused. Pure data, but for tokens that must be forged.

import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Change, World } from "./attack-world.ts";
import { Signer } from "./signer.ts";

const now = (): number => Math.floor(Date.now() / 1000);
const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");

/** A token of no algorithm, or of one that takes the public key for a secret. */
function forged(claims: object, alg: string, world: World): string {
  const all = { iss: "manyhands", aud: "vault-proxy", fence: 3, vaults: [], exp: now() + 50, ...claims };
  const signed = `${part({ alg, kid: "k1" })}.${part(all)}`;
  const { x } = JSON.parse(readFileSync(world.signer.file, "utf8")) as { x: string };
  return `${signed}.${alg === "none" ? "" : createHmac("sha256", Buffer.from(x, "base64url")).update(signed).digest("base64url")}`;
}

async function stranger(claims: Record<string, unknown>, kid: string): Promise<string> {
  const other = new Signer();
  await other.rotate(kid);
  const token = await other.sign(claims);
  other.remove();
  return token;
}

type Claims = Record<string, unknown>;
const changed =
  (more: Claims) =>
  async (world: World, claims: Claims): Promise<Change> => ({ authorization: `Bearer ${await world.signer.sign({ ...claims, ...more })}` });
const shown =
  (make: (world: World, claims: Claims) => string | Promise<string>) =>
  async (world: World, claims: Claims): Promise<Change> => ({ authorization: await make(world, claims) });

/** Whoever shows these has no grant: wrong, expired, foreign, revoked, for another use, or in another place. */
export const GRANTS: readonly [name: string, change: (world: World, claims: Claims) => Promise<Change>][] = [
  ["no grant", async () => ({ authorization: null })],
  ["an empty one", shown(() => "Bearer ")],
  ["a word", shown(() => "Bearer nonsense")],
  ["another scheme", shown(async (world, claims) => `Basic ${await world.signer.sign(claims)}`)],
  ["two grants in one", shown(async (world, claims) => `Bearer ${await world.signer.sign(claims)}, Bearer x.y.z`)],
  ["one that has ended", changed({ exp: now() - 60 })],
  ["one that lives too long", changed({ exp: now() + 7_200 })],
  ["one without an end", changed({ exp: undefined })],
  ["one that begins later", changed({ nbf: now() + 300 })],
  ["another issuer's name", changed({ iss: "stranger" })],
  ["no issuer", changed({ iss: undefined })],
  ["another audience", changed({ aud: "https://vault-proxy.example" })],
  ["an audience that only begins alike", changed({ aud: "vault-proxy2" })],
  ["a list of other audiences", changed({ aud: ["vault", "proxy"] })],
  ["no audience", changed({ aud: undefined })],
  ["a stranger's signature under our key's name", shown(async (_world, claims) => `Bearer ${await stranger(claims, "k1")}`)],
  ["a stranger's signature under another name", shown(async (_world, claims) => `Bearer ${await stranger(claims, "k2")}`)],
  ["no algorithm", shown((world, claims) => `Bearer ${forged(claims, "none", world)}`)],
  ["the public key as a secret", shown((world, claims) => `Bearer ${forged(claims, "HS256", world)}`)],
  [
    "a changed claim under a good signature",
    shown(async (world, claims) => {
      const [head, , signature] = (await world.signer.sign(claims)).split(".");
      return `Bearer ${head}.${part({ ...claims, iss: "manyhands", aud: "vault-proxy", fence: 3, exp: now() + 50, sub: "sesn_2" })}.${signature}`;
    }),
  ],
  ["another use", changed({ use: ["revoke"] })],
  ["a use that only begins alike", changed({ use: ["mcpx", "modelx", "egressx", "vaultsx"] })],
  ["no use", changed({ use: [] })],
  ["a revoked session's", changed({ sub: "sesn_over" })],
  ["a subject that is a path", changed({ sub: "sesn_../../x" })],
  [
    "a session's grant for a gateway's token, and the other way round",
    async (world, claims) => changed({ sub: claims.sub === "gateway" ? "sesn_1" : "gateway" })(world, claims),
  ],
  [
    "the right one in the query",
    async (world, claims) => {
      const token = await world.signer.sign(claims);
      return { authorization: null, edit: (text) => text.replace(/^(\w+ [^ ]+)/, `$1?access_token=${token}`) };
    },
  ],
  [
    "the right one in other headers",
    async (world, claims) => {
      const token = await world.signer.sign(claims);
      return { authorization: null, headers: [`X-Api-Key: ${token}`, `Proxy-Authorization: Bearer ${token}`, `Cookie: authorization=${token}`] };
    },
  ],
];

/** An address that is somebody's own, in every spelling that some program reads as it. */
export const spellings = (port: number, allowed: number): readonly string[] => [
  `127.0.0.1:${port}`,
  `localhost:${port}`,
  `LOCALHOST:${port}`,
  `localhost.:${port}`,
  `127.0.0.1.:${port}`,
  `2130706433:${port}`,
  `0x7f000001:${port}`,
  `0x7f.0.0.1:${port}`,
  `0177.0.0.1:${port}`,
  `017700000001:${port}`,
  `127.1:${port}`,
  `127.0.1:${port}`,
  `0:${port}`,
  `0.0.0.0:${port}`,
  `127.9.9.9:${port}`,
  `[::1]:${port}`,
  `[::]:${port}`,
  `[::ffff:127.0.0.1]:${port}`,
  `[::ffff:7f00:1]:${port}`,
  `[::127.0.0.1]:${port}`,
  `[64:ff9b::7f00:1]:${port}`,
  `[2002:7f00:1::]:${port}`,
  `[::1%25lo]:${port}`,
  `%31%32%37.0.0.1:${port}`,
  `127%2e0%2e0%2e1:${port}`,
  `user@127.0.0.1:${port}`,
  `127.0.0.1:${allowed}@127.0.0.1:${port}`,
  `127.0.0.1:${port}#@127.0.0.1:${allowed}`,
  `127.0.0.1:${port}\\@127.0.0.1:${allowed}`,
  "169.254.169.254",
  "[fd00:ec2::254]",
  "10.0.0.1",
  "metadata.google.internal.",
];

type Fixed = readonly [name: string, change: (world: World) => Change, told: RegExp];
const fixed = (name: string, change: Change, told: RegExp): Fixed => [name, () => change, told];
const BAD = /^400/;
const add = (line: string): Change => ({ headers: [line] });

/** Requests that two readers could read differently, at whatever route. */
export const SHAPES: readonly Fixed[] = [
  fixed("a bare CR in a header", add("X-A: 1\rX-Manyhands-Target: http://127.0.0.1/"), BAD),
  fixed("a zero in a header", add("X-A: 1\u0000"), BAD),
  fixed("a header's name with a space", add("X-A : 1"), BAD),
  fixed("a header on two lines", add("X-A: 1\r\n : 2"), BAD),
  fixed("two lengths", add("Content-Length: 3\r\nContent-Length: 40"), BAD),
  fixed("a length and pieces", add("Content-Length: 3\r\nTransfer-Encoding: chunked"), BAD),
  fixed("a length with a sign", add("Content-Length: +2"), BAD),
  fixed("pieces in disguise", add("Transfer-Encoding: xchunked"), BAD),
  fixed("another version", { version: "3.0" }, BAD),
  fixed("no Host", { edit: (text) => text.replace(/Host: vault-proxy\r\n/, "") }, BAD),
];

const NOT_THERE = /^404/;
/** Targets in a request's first line that are not the route's own. */
export const PATHS: readonly (readonly [route: "mcp" | "model" | "git" | "api" | "connecting", path: (world: World) => string, told: RegExp])[] = [
  ["mcp", ({ upstream }) => `http://127.0.0.1:${upstream.port}/mcp`, NOT_THERE],
  ["mcp", ({ proxy }) => `${proxy.url}/mcp`, NOT_THERE],
  ...["//mcp", "/mcp/", "/MCP", "/mcp/../mcp", "/x/../mcp", "/%6dcp", "/mcp?a=1", "/mcp;a", "/mcp\\", "/model/../mcp", "/mcp#a"].map(
    (path) => ["mcp", () => path, /^40[04]/] as const,
  ),
  ["model", ({ upstream }) => `http://127.0.0.1:${upstream.port}/model/v1/messages`, NOT_THERE],
  ...[
    "/model/v1/messages/",
    "/model/v1/messages/batches",
    "/model/v1/messages/../messages",
    "/model/v1/messages/%2e%2e/files",
    "/model/v1/files",
    "/model//v1/messages",
    "/model/v1/messages?beta=true&key=1",
    "/model/v1/messages?beta=false",
    "/model/v1/messages%3fbeta=true",
    "/model/@127.0.0.1/v1/messages",
    "/model/v1/messages/count_tokens/..",
  ].map((path) => ["model", () => path, NOT_THERE] as const),
  ...[
    "acme/other",
    "acme/private/../private",
    "acme/private/%2e%2e/private",
    "acme//private",
    "acme%2fprivate",
    "ACME/private",
    "acme/private.git",
  ].map((name) => ["git", ({ upstream }: World) => `/git/127.0.0.1:${upstream.port}/${name}/info/refs?service=git-upload-pack`, NOT_THERE] as const),
  ...["info/refs", "info/refs?service=git-upload-archive", "info/refs?service=git-upload-pack&a=1", "git-upload-pack", "HEAD", "../../x"].map(
    (rest) => ["git", ({ upstream }: World) => `/git/127.0.0.1:${upstream.port}/acme/private/${rest}`, NOT_THERE] as const,
  ),
  ["git", ({ upstream }) => `http://127.0.0.1:${upstream.port}/acme/private/info/refs?service=git-upload-pack`, /^403/],
  ["api", ({ proxy, vault, oauth }) => `${proxy.url}/v1/vaults/${vault}/credentials/${oauth}/mcp_oauth_validate`, NOT_THERE],
  ["api", ({ vault, oauth }) => `/v1/vaults/${vault}/../${vault}/credentials/${oauth}/mcp_oauth_validate`, NOT_THERE],
  ["api", ({ vault, oauth }) => `/v1/vaults/${vault}/credentials/..%2f..%2f${vault}%2fcredentials%2f${oauth}/mcp_oauth_validate`, NOT_THERE],
  ["api", ({ oauth }) => `/v1/vaults/..%2f..%2fdefault/credentials/${oauth}/mcp_oauth_validate`, NOT_THERE],
  ["api", ({ vault, oauth }) => `/v1/vaults/${vault}%00/credentials/${oauth}/mcp_oauth_validate`, NOT_THERE],
  ["connecting", ({ proxy, vault }) => `${proxy.url}/v1/vaults/${vault}/connect`, NOT_THERE],
  ["connecting", ({ vault }) => `/v1/vaults/${vault}/connect/..`, NOT_THERE],
];

/** Methods that no door has. */
export const METHODS: readonly string[] = ["TRACE", "OPTIONS", "PUT", "PATCH", "HEAD", "PROPFIND"];
