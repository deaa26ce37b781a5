// The way out of hands: what is let through, what is not, and that nothing reaches a listener that was not allowed.

import { once } from "node:events";
import type { Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { all, ask, type Host, startHost, startTcp, Way } from "./egress-kit.ts";
import { Signer, startProxy, type TestProxy } from "./proxy.ts";

const signer = new Signer();
let proxy: TestProxy;
let open: Host;
let canary: Host;
let echo: Host;
let silent: Host;

beforeAll(async () => {
  await signer.rotate("one");
  open = await startHost((req, res) => {
    if (req.url === "/moved") return void res.writeHead(302, { location: `http://127.0.0.1:${canary.port}/` }).end();
    res.setHeader("set-cookie", ["a=1", "b=2"]);
    let body = "";
    req.on("data", (piece) => (body += piece));
    req.on("end", () => res.end(JSON.stringify({ method: req.method, url: req.url, headers: req.rawHeaders, body })));
  });
  canary = await startHost((_req, res) => void res.end("canary"));
  echo = await startTcp((socket) => void socket.pipe(socket));
  silent = await startHost(() => {});
  const hosts = [open, echo, silent].map(({ port }) => `127.0.0.1:${port}`);
  proxy = await startProxy(signer, "http://127.0.0.1:9", { egress: { hosts } });
});
afterAll(async () => {
  await proxy.close();
  await Promise.all([open, canary, echo, silent].map((host) => host.close()));
  signer.remove();
});

const limited = (...hosts: string[]) => ({ type: "limited", hosts, package_managers: false });
const way = (network: object = { type: "unrestricted" }, more: object = {}) => new Way(proxy, signer, { network, ...more });
const absolute = async (through: Way, url: string, headers: Record<string, string> = {}) => ask(await through.open(), { path: url, headers });

test("a request in absolute form goes to the host that it names, whatever its Host says, and without what is the proxy's", async () => {
  const answer = await absolute(way(), `http://127.0.0.1:${open.port}/a?b=1`, {
    host: "forged.example",
    "proxy-authorization": "Basic eA==",
    "x-own": "1",
    connection: "keep-alive, x-hop",
    "x-hop": "1",
  });
  expect(answer.status).toBe(200);
  expect(answer.headers["set-cookie"]).toEqual(["a=1", "b=2"]);
  expect(JSON.parse(answer.body)).toEqual({
    method: "GET",
    url: "/a?b=1",
    headers: ["Host", `127.0.0.1:${open.port}`, "x-own", "1", "Connection", "close"],
    body: "",
  });
});

test("a body with a length and one in pieces come whole", async () => {
  const url = `http://127.0.0.1:${open.port}/`;
  const stated = await ask(await way().open(), { method: "POST", path: url, headers: { "content-length": "5" }, body: "hello" });
  const pieces = await ask(await way().open(), {
    method: "POST",
    path: url,
    headers: { "transfer-encoding": "chunked" },
    body: ["a".repeat(70_000), "b"],
  });
  expect(JSON.parse(stated.body).body).toBe("hello");
  expect(JSON.parse(pieces.body).body).toBe(`${"a".repeat(70_000)}b`);
});

test("requests that a program sends before the first is answered go out one after the other, and none when it has left", async () => {
  const line = await way().open();
  const to = (host: Host) => `GET http://127.0.0.1:${host.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`;
  const before = open.seen.length;
  line.write(to(silent) + to(open).repeat(20));
  await until(() => silent.seen.length === 1);
  expect((await absolute(way(), `http://127.0.0.1:${open.port}/`)).status).toBe(200);
  expect(open.seen.length - before).toBe(1);
  line.destroy();
  await until(() => silent.seen.every((socket) => socket.destroyed));
  expect(open.seen.length - before).toBe(1);
});

test("a redirect is given to the caller, and followed only if it may go there", async () => {
  const moved = await absolute(way(), `http://127.0.0.1:${open.port}/moved`);
  expect([moved.status, moved.headers.location]).toEqual([302, `http://127.0.0.1:${canary.port}/`]);
  expect((await absolute(way(), moved.headers.location ?? "")).status).toBe(403);
  expect(canary.seen).toEqual([]);
});

test("a tunnel carries both ways, and one direction may end before the other", async () => {
  const line = await way(limited(`127.0.0.1:${echo.port}`)).connect(`127.0.0.1:${echo.port}`);
  if (typeof line === "string") throw new Error(line);
  const sent = "x".repeat(1_000_000);
  line.end(sent);
  expect(await all(line)).toBe(sent);
});

test("a side that does not read holds up the other", async () => {
  const flood = await startTcp((socket) => {
    const pour = (): void => {
      while (socket.write(Buffer.alloc(65_536)));
    };
    socket.on("drain", pour);
    pour();
  });
  const flooded = await startProxy(signer, "http://127.0.0.1:9", { egress: { hosts: [`127.0.0.1:${flood.port}`] } });
  const line = await new Way(flooded, signer).connect(`127.0.0.1:${flood.port}`);
  if (typeof line === "string") throw new Error(line);
  line.pause();
  await until(() => (flood.seen[0]?.writableNeedDrain === true ? true : undefined));
  let before = -1;
  await until(() => {
    const written = flood.seen[0]?.bytesWritten ?? 0;
    const isStill = written === before;
    before = written;
    return isStill ? true : undefined;
  });
  expect(before).toBeLessThan(32 * 1024 * 1024);
  line.destroy();
  await until(() => (flood.seen[0]?.destroyed ? true : undefined));
  await flooded.close();
  await flood.close();
});

describe("what a limited environment does not name is refused, and says so", () => {
  test.each([
    ["another port", () => `127.0.0.1:${canary.port}`, () => limited(`127.0.0.1:${open.port}`)],
    ["a host without a port, at a port that is not the web's", () => `127.0.0.1:${open.port}`, () => limited("127.0.0.1")],
    ["the apex of a star", () => "example.com:443", () => limited("*.example.com")],
    ["a name that only ends alike", () => "evilexample.com:443", () => limited("*.example.com", "example.com")],
    ["a package registry, where they are not allowed", () => "registry.npmjs.org:443", () => limited()],
  ])("%s", async (_, to, network) => {
    const through = way(network());
    const refused = await through.connect(to());
    expect(refused).toContain(`HTTP/1.1 403 the environment's networking does not allow this host and port (${to()})`);
    expect(refused).toContain("x-manyhands-egress: not_allowed");
    expect((await absolute(through, `http://${to()}/`)).status).toBe(403);
    expect(canary.seen).toEqual([]);
  });
});

describe("an address that is somebody's own is reached by no spelling", () => {
  const spellings = (port: number) => [
    `127.0.0.1:${port}`,
    `localhost:${port}`,
    `localhost.:${port}`,
    `127.0.0.1.:${port}`,
    `2130706433:${port}`,
    `0x7f000001:${port}`,
    `0177.0.0.1:${port}`,
    `127.1:${port}`,
    `[::1]:${port}`,
    `[::ffff:127.0.0.1]:${port}`,
    `[::ffff:7f00:1]:${port}`,
    `0.0.0.0:${port}`,
    `user@127.0.0.1:${port}`,
    `127.0.0.1:${open.port}@127.0.0.1:${port}`,
    "169.254.169.254:80",
    "metadata.google.internal.:80",
    "[fd00:ec2::254]:80",
  ];
  test("neither by CONNECT nor in absolute form, also where everything is allowed", async () => {
    for (const to of spellings(canary.port)) {
      const refused = await way().connect(to);
      expect(refused, to).toMatch(/^HTTP\/1\.1 (400|403|502) /);
      const text = await way().raw(`GET http://${to}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
      expect(text, to).toMatch(/^HTTP\/1\.1 (400|403|502) /);
    }
    expect(canary.seen).toEqual([]);
  });
});

test("what is no request to a proxy, and TRACE, are refused", async () => {
  const url = `http://127.0.0.1:${open.port}`;
  const before = open.seen.length;
  const lines = ["GET / HTTP/1.1", `TRACE ${url}/ HTTP/1.1`, `GET ${url}\\@127.0.0.1:${canary.port}/ HTTP/1.1`, "GET https://example.com/ HTTP/1.1"];
  const answers = await Promise.all(lines.map((line) => way().raw(`${line}\r\nHost: x\r\nConnection: close\r\n\r\n`)));
  expect(answers.map((text) => text.slice(9, 12))).toEqual(["400", "405", "400", "400"]);
  const split = await way().raw(`GET ${url}/ HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n`);
  expect(split.slice(9, 12)).toBe("400");
  expect([open.seen.length, canary.seen.length]).toEqual([before, 0]);
});

describe("a line is opened by its session's grant and policy alone", () => {
  test.each([
    ["a grant for another use", { claims: { use: ["model", "mcp"] } }, 401],
    ["a grant that has ended", { claims: { exp: Math.floor(Date.now() / 1000) - 60 } }, 401],
    ["a grant of somebody else", { claims: { iss: "other" } }, 401],
    ["a grant without a network", { claims: { network: undefined } }, 403],
  ])("%s opens none", async (_, more, status) => {
    expect(await way(undefined, more).line()).toBe(status);
  });

  test("another policy than the grant's opens none", async () => {
    const line = await way(limited()).line(JSON.stringify({ type: "unrestricted" }));
    if (typeof line === "number") throw new Error("refused before the policy was read");
    expect(await all(line)).toBe("");
  });

  test("a revocation cuts what is open and refuses what comes", async () => {
    const through = way(undefined, { session: "sesn_over" });
    const line = await through.connect(`127.0.0.1:${echo.port}`);
    if (typeof line === "string") throw new Error(line);
    const ended = once(line, "end");
    line.resume();
    const token = await signer.sign({ sub: "sesn_over", use: ["revoke"] });
    await fetch(`${proxy.url}/revoke`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}` },
      body: JSON.stringify({ session: "sesn_over" }),
    });
    await ended;
    expect(await through.line()).toBe(401);
  });

  test("more lines of one session than there may be are refused, and another session has room", async () => {
    const through = way(undefined, { session: "sesn_many" });
    const lines: Socket[] = [];
    for (let count = 0; count < 128; count += 1) lines.push(await through.open());
    expect(await through.line()).toBe(529);
    expect(typeof (await way().line())).not.toBe("number");
    for (const line of lines) line.destroy();
    await until(async () => (typeof (await through.line()) === "number" ? undefined : true));
  });
});

test("nothing of a path, a header or a body is in the log", async () => {
  await ask(await way().open(), {
    method: "POST",
    path: `http://127.0.0.1:${open.port}/in-the-path`,
    headers: { "x-h": "in-the-header" },
    body: "in-the-body",
  });
  expect(proxy.log.join("")).toContain('"egress.passed"');
  expect(proxy.log.filter((line) => /in-the-(path|header|body)/.test(line))).toEqual([]);
});
