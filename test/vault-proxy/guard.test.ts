// The one way out to servers that somebody else named (vault-proxy/guard.ts). What it refuses by name and address is tried in connect-reach.test.ts.

import type { ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import { afterEach, expect, test } from "vitest";
import { isInternal } from "../../vault-proxy/address.ts";
import { Guard, type GuardLimits, Unreachable } from "../../vault-proxy/guard.ts";
import { Reach } from "../../vault-proxy/reach.ts";
import { startCanary } from "../support/oauth-world.ts";
import { startUpstream } from "./proxy.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((each) => each.close()));
});

async function served(handle: (res: ServerResponse) => void): Promise<string> {
  const upstream = await startUpstream((req, res) => {
    req.resume();
    handle(res);
  });
  opened.push(upstream);
  return upstream.url;
}

function guard(allowed: readonly string[], limits: GuardLimits = {}): Guard {
  const made = new Guard(new Reach(allowed), limits);
  opened.push(made);
  return made;
}

async function reasonOf(work: Promise<unknown>): Promise<unknown> {
  try {
    return await work;
  } catch (error) {
    return error instanceof Unreachable ? error.reason : error;
  }
}

test.each([
  ["8.8.8.8", false],
  ["2606:4700:4700::1111", false],
  ["::ffff:8.8.8.8", false],
  ["127.0.0.1", true],
  ["::ffff:127.0.0.1", true],
  ["::ffff:7f00:1", true],
  ["::127.0.0.1", true],
  ["::1", true],
  ["::", true],
  ["0.0.0.0", true],
  ["10.1.2.3", true],
  ["100.64.0.1", true],
  ["169.254.169.254", true],
  ["172.31.0.1", true],
  ["192.168.0.1", true],
  ["255.255.255.255", true],
  ["fe80::1", true],
  ["fd12::1", true],
  ["64:ff9b::7f00:1", true],
  ["2002:7f00:1::", true],
  ["no address", true],
])("%s is internal: %s", (address, expected) => {
  expect(isInternal(address)).toBe(expected);
});

test("an answer comes whole, unpacked, with its status and headers", async () => {
  const url = await served((res) => res.writeHead(201, { "content-encoding": "gzip", "x-one": "1" }).end(gzipSync("hello")));
  const answer = await guard(["127.0.0.1"]).fetch(url, { method: "POST", body: new URLSearchParams({ a: "b" }) });
  expect([answer.status, answer.headers.get("x-one"), await answer.text()]).toEqual([201, "1", "hello"]);
});

test("what is too long, also once unpacked, what is too slow and what redirects is said to be so", async () => {
  const limits = { answerBytesMax: 10_000, fetchMs: 300 };
  const packed = await served((res) => res.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(Buffer.alloc(1_000_000))));
  expect(await reasonOf(guard(["127.0.0.1"], limits).fetch(packed))).toBe("size");
  const silent = await served(() => {});
  expect(await reasonOf(guard(["127.0.0.1"], limits).fetch(silent))).toBe("time");
  const dripping = await served((res) => void res.writeHead(200).write("a"));
  expect(await reasonOf(guard(["127.0.0.1"], limits).fetch(dripping))).toBe("time");
  const moved = await served((res) => res.writeHead(308, { location: "/x" }).end());
  expect(await reasonOf(guard(["127.0.0.1"]).fetch(moved))).toBe("redirect");
  const cut = await served((res) => res.destroy());
  expect(await reasonOf(guard(["127.0.0.1"]).fetch(cut))).toBe("network");
});

test("a caller's own signal ends it with the caller's own reason", async () => {
  const url = await served(() => {});
  const reason = new Error("enough");
  const controller = new AbortController();
  const work = guard(["127.0.0.1"]).fetch(url, { signal: controller.signal });
  controller.abort(reason);
  await expect(work).rejects.toBe(reason);
});

test("the dispatcher for what streams is held to the same, and an allowed host is one by name, or by name and port", async () => {
  const canary = await startCanary();
  opened.push(canary);
  const ask = (from: Guard, scheme: string, host: string) =>
    from.agent.request({ origin: `${scheme}://${host}:${canary.port}`, path: "/", method: "GET" }).then((answer) => answer.statusCode);
  for (const scheme of ["http", "https"])
    for (const host of ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"]) {
      expect(await reasonOf(ask(guard([]), scheme, host))).toBe(scheme === "http" ? "scheme" : "internal");
      expect(await reasonOf(ask(guard([`${host}:1`, "localhost.example"]), scheme, host))).toBe(scheme === "http" ? "scheme" : "internal");
    }
  expect(canary.visits()).toBe(0);
  expect(await reasonOf(ask(guard([`localhost:${canary.port}`]), "http", "localhost"))).not.toBeInstanceOf(Unreachable);
  expect(canary.visits()).toBe(1);
});

test("an address with a user, or of another kind, is refused before anything is looked up", async () => {
  const from = guard(["a.example"]);
  expect(await reasonOf(from.fetch("https://user:word@a.example/"))).toBe("userinfo");
  for (const url of ["file:///etc/passwd", "ftp://a.example/", "data:,x"]) expect(await reasonOf(from.fetch(url))).toBe("scheme");
});

test("a refusal names the host and nothing else of the address", async () => {
  const says = await guard([])
    .fetch("https://127.0.0.1:9/secret-path?secret=query")
    .catch((error: unknown) => (error instanceof Error ? error.message : ""));
  expect(says).toContain("127.0.0.1");
  expect(says).not.toContain("secret");
});
