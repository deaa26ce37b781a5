// No address that a server names makes the vault proxy go to one that the operator did not allow.

import type { LookupAddress } from "node:dns";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { challenge, failureOf, metadataOf, type Person, person, type Routes, redirect, startCanary, World } from "../support/oauth-world.ts";

/** A name of the test's own, whose address is the next one of these, and in the end the last. ORCHID addresses are nobody's. */
const NAME = "turns.test";
const PUBLIC = "2001:20::1";
const answers: string[] = [];
let lookups = 0;

vi.mock("node:dns", async (original) => {
  const dns = await original<typeof import("node:dns")>();
  const lookup = (name: string, options: object, then: (error: Error | null, found: LookupAddress[]) => void) => {
    if (name !== NAME) return dns.lookup(name, options as { all: true }, then);
    lookups += 1;
    const address = (answers.length > 1 ? answers.shift() : answers[0]) ?? PUBLIC;
    then(null, [{ address, family: address.includes(":") ? 6 : 4 }]);
  };
  return { ...dns, lookup };
});

let canary: Awaited<ReturnType<typeof startCanary>>;
const opened: { close(): Promise<void> }[] = [];
beforeAll(async () => {
  canary = await startCanary();
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((each) => each.close()));
});
afterAll(() => canary.close());

async function scene(change: (origin: string) => Routes): Promise<{ world: World; somebody: Person }> {
  const world = await World.start(change);
  const somebody = person([world.host]);
  opened.push(world, somebody);
  return { world, somebody };
}

const as = "GET /.well-known/oauth-authorization-server";
const FIELDS: readonly [field: string, change: (bad: string) => (origin: string) => Routes][] = [
  ["the challenge's resource_metadata", (bad) => () => ({ "POST /mcp": challenge(`resource_metadata="${bad}/prm"`) })],
  ["authorization_servers", (bad) => (origin) => ({ "GET /prm": { body: { resource: `${origin}/mcp`, authorization_servers: [bad] } } })],
  ["registration_endpoint", (bad) => (origin) => ({ [as]: { body: metadataOf(origin, { registration_endpoint: `${bad}/register` }) } })],
  ["token_endpoint", (bad) => (origin) => ({ [as]: { body: metadataOf(origin, { token_endpoint: `${bad}/token` }) } })],
];
const SPELLINGS = [
  "127.0.0.1",
  "localhost",
  "localhost.",
  "[::ffff:127.0.0.1]",
  "[::ffff:7f00:1]",
  "2130706433",
  "0x7f.1",
  "0177.0.0.1",
  "0.0.0.0",
  NAME,
];

test.each(FIELDS.flatMap(([field, change]) => SPELLINGS.map((host) => [field, host, change] as const)))(
  "%s at %s is refused, and nobody came to it",
  async (_field, host, change) => {
    answers.splice(0, Number.POSITIVE_INFINITY, "127.0.0.1");
    for (const scheme of ["https", "http"]) {
      const { world, somebody } = await scene(change(`${scheme}://${host}:${canary.port}`));
      expect(await failureOf(somebody.connect(`${world.origin}/mcp`))).toBe("unreachable");
    }
    expect(canary.visits()).toBe(0);
  },
);

test.each(["http://169.254.169.254/latest", "https://10.0.0.1/a", "https://[fd00::1]/a", "https://[fe80::1]/a", "https://user:word@as.example/a"])(
  "the person's browser is not sent to %s",
  async (bad) => {
    const { world, somebody } = await scene((origin) => ({ [as]: { body: metadataOf(origin, { authorization_endpoint: bad }) } }));
    expect(await failureOf(somebody.start(`${world.origin}/mcp`))).toBe("unreachable");
  },
);

test("the MCP server's own address is held to the same", async () => {
  const somebody = person([]);
  opened.push(somebody);
  for (const host of SPELLINGS) expect(await failureOf(somebody.start(`https://${host}:${canary.port}/mcp`))).toBe("unreachable");
  expect(canary.visits()).toBe(0);
});

test("a name that means something else a moment later gains nothing", async () => {
  lookups = 0;
  const changes = FIELDS.map(([, change]) => change(`https://${NAME}:${canary.port}`));
  for (const change of changes) {
    const { world, somebody } = await scene(change);
    // Public when it is looked at, internal ever after: it is the first one that is connected to, and that one is nowhere.
    answers.splice(0, Number.POSITIVE_INFINITY, PUBLIC, "127.0.0.1");
    expect(await failureOf(somebody.connect(`${world.origin}/mcp`))).toBe("unreachable");
    expect(await failureOf(somebody.connect(`${world.origin}/mcp`))).toBe("unreachable");
  }
  // Once a connection.
  expect(lookups).toBe(2 * changes.length);
  expect(canary.visits()).toBe(0);
});

const REDIRECTED: readonly [what: string, route: string, code: string][] = [
  ["the resource metadata", "GET /prm", "no_metadata"],
  ["the authorization server's document", as, "no_metadata"],
  ["a registration", "POST /register", "unreachable"],
  ["a token request", "POST /token", "unreachable"],
];
test.each(REDIRECTED.flatMap(([what, route, code]) => [302, 307, 308].map((status) => [what, status, route, code] as const)))(
  "%s that answers with %i is not followed, not even to the same origin",
  async (_what, status, route, code) => {
    for (const to of [`http://127.0.0.1:${canary.port}/x`, "/elsewhere"]) {
      const { world, somebody } = await scene(() => ({ [route]: redirect(to, status), ...(route === "GET /prm" && { [as]: { status: 404 } }) }));
      expect(await failureOf(somebody.connect(`${world.origin}/mcp`))).toBe(code);
      expect(world.paths.filter((each) => each.endsWith("/elsewhere"))).toEqual([]);
    }
    expect(canary.visits()).toBe(0);
  },
);

test("a host that the operator lists may be internal: the same world, its authorization server on another port", async () => {
  const issuer = await World.start();
  const world = await World.start((origin) => ({ "GET /prm": { body: { resource: `${origin}/mcp`, authorization_servers: [issuer.origin] } } }));
  const [both, one] = [person([world.host, issuer.host]), person([world.host])];
  opened.push(issuer, world, both, one);
  expect(await failureOf(one.connect(`${world.origin}/mcp`))).toBe("unreachable");
  expect(issuer.asked).toEqual([]);
  expect(await both.connect(`${world.origin}/mcp`)).toMatchObject({ accessToken: "access-1" });
});
