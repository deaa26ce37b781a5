// The MCP route (vault-proxy/mcp.ts): whose credential goes where, what passes, and what comes of the caller's leaving.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Agent, request } from "undici";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../support/until.ts";
import { Caller } from "./mcp-kit.ts";
import { Signer, startProxy, startUpstream, type TestProxy } from "./proxy.ts";

const TOKEN = "canary-bearer/0123456789+abcdef_ABCDEF==";
type Handle = Parameters<typeof startUpstream>[0];

let signer: Signer;
let proxy: TestProxy;
let caller: Caller;
const cleanups: (() => unknown)[] = [];

beforeEach(async () => {
  signer = new Signer();
  await signer.rotate("k1");
  proxy = await startProxy(signer, "http://127.0.0.1:9", { internalHosts: ["127.0.0.1"] });
  caller = new Caller(proxy.url, signer);
  cleanups.push(
    () => proxy.close(),
    () => signer.remove(),
  );
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function serve(handle: Handle): Promise<string> {
  const upstream = await startUpstream(handle);
  cleanups.push(() => upstream.close());
  return `${upstream.url}/mcp`;
}

/** A server that notes what it was asked. */
async function recorder(): Promise<{
  url: string;
  seen: { authorization: string | undefined; headers: Record<string, unknown>; url: string; body: string }[];
}> {
  const seen: { authorization: string | undefined; headers: Record<string, unknown>; url: string; body: string }[] = [];
  const url = await serve(async (req, res) => {
    let body = "";
    for await (const piece of req) body += String(piece);
    seen.push({ authorization: req.headers.authorization, headers: req.headers, url: req.url ?? "", body });
    res.writeHead(200, { "content-type": "application/json", "mcp-session-id": "s1", "set-cookie": "a=b", server: "x" }).end('{"ok":true}');
  });
  return { url, seen };
}

describe("the credential", () => {
  test("is that of the first vault in the grant's order which has one for this very address", async () => {
    const server = await recorder();
    const [none, one, other] = [
      await caller.vault(),
      await caller.bearer(server.url, "token-of-one"),
      await caller.bearer(server.url, "token-of-other"),
    ];
    const elsewhere = await caller.bearer(`${server.url}/elsewhere`, "token-of-elsewhere");
    for (const vaults of [
      [none, one, other],
      [other, one],
      [elsewhere, one],
    ])
      expect((await caller.send({ target: server.url, vaults })).status).toBe(200);
    expect((await caller.send({ target: `${server.url}/`, vaults: [one] })).status).toBe(200);
    expect(server.seen.map(({ authorization }) => authorization)).toEqual(
      ["token-of-one", "token-of-other", "token-of-one", "token-of-one"].map((token) => `Bearer ${token}`),
    );
  });

  test("goes nowhere else: another path, query, port, workspace or vault is told that there is none, and hears nothing", async () => {
    const server = await recorder();
    const vault = await caller.bearer(server.url, TOKEN);
    const archived = await caller.bearer(server.url, TOKEN);
    await caller.api("POST", `/v1/vaults/${archived}/archive`);
    const refused = await Promise.all([
      caller.send({ target: `${server.url}/other`, vaults: [vault] }),
      caller.send({ target: `${server.url}?a=1`, vaults: [vault] }),
      caller.send({ target: server.url.replace("127.0.0.1", "localhost"), vaults: [vault] }),
      caller.send({ target: server.url, vaults: [vault], workspace: "other" }),
      caller.send({ target: server.url, vaults: [] }),
      caller.send({ target: server.url, vaults: [archived] }),
      caller.send({ target: server.url, vaults: ["vlt_unknown", "../../x"] }),
    ]);
    expect(refused.map(({ status, refusal }) => `${status} ${refusal}`)).toEqual(refused.map(() => "404 no_credential"));
    expect(server.seen).toEqual([]);
  });

  test("replaces the caller's own authorization, and of the headers only those of the protocol pass, both ways", async () => {
    const server = await recorder();
    const vault = await caller.bearer(server.url, TOKEN);
    const odd = {
      cookie: "a=b",
      "x-api-key": "callers",
      "proxy-authorization": "Basic x",
      "x-forwarded-for": "1.2.3.4",
      te: "trailers",
      "x-custom": "1",
    };
    const passed = { "mcp-protocol-version": "2025-06-18", "mcp-session-id": "s0", accept: "text/event-stream", "last-event-id": "7" };
    const grant = await caller.grant([vault]);
    const got = await caller.send({ target: server.url, grant, headers: { ...odd, ...passed } });
    const [seen] = server.seen;
    expect(seen?.headers).toMatchObject({ ...passed, authorization: `Bearer ${TOKEN}`, host: new URL(server.url).host });
    for (const name of [...Object.keys(odd), "x-manyhands-target", "x-manyhands-server"]) expect(seen?.headers[name]).toBeUndefined();
    expect(JSON.stringify(seen)).not.toContain(grant.slice(-40));
    expect(got.headers).toMatchObject({ "mcp-session-id": "s1", "content-type": "application/json" });
    expect([got.headers["set-cookie"], got.headers.server]).toEqual([undefined, undefined]);
  });

  test("is written into the audit before the request leaves, and no line anywhere holds it or the address", async () => {
    const secretPath = "path-that-is-a-secret";
    const lines = () => readFile(join(proxy.parts.folder, "audit", "audit-00000001.jsonl"), "utf8");
    let atTheServer = "";
    const url = (
      await serve(async (_req, res) => {
        atTheServer = await lines();
        res.end("{}");
      })
    ).replace("/mcp", `/${secretPath}`);
    const vault = await caller.bearer(url, TOKEN);
    await caller.send({ target: url, vaults: [vault] });
    const written = JSON.parse(atTheServer.trim().split("\n").at(-1) ?? "");
    expect(written).toMatchObject({ use: "mcp", session: "sesn_1", fence: 3, workspace: "default", vault, origin: new URL(url).origin });
    expect(proxy.log.filter((line) => line.includes("mcp.relayed"))).toHaveLength(1);
    for (const text of [atTheServer, ...proxy.log]) {
      expect(text).not.toContain(TOKEN);
      expect(text).not.toContain(secretPath);
    }
  });
});

describe("who may ask", () => {
  test("nobody without a grant for this use that is good now, and a revoked one ends what is open", async () => {
    const url = await serve((req, res) => {
      res.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
      if (req.method === "POST") res.end("data: {}\n\n");
    });
    const vault = await caller.bearer(url, TOKEN);
    const base = { vaults: [vault], workspace: "default", sub: "sesn_1" };
    for (const [claims, status] of [
      [{ ...base, use: ["model"] }, 403],
      [{ ...base, use: ["mcp"], exp: Math.floor(Date.now() / 1000) - 60 }, 401],
      [{ ...base, use: ["mcp"], exp: Math.floor(Date.now() / 1000) + 7_200 }, 401],
      [{ ...base, use: ["mcp"], aud: "others" }, 401],
      [{ ...base, use: ["mcp"], sub: "hand:../x" }, 401],
    ] as const)
      expect((await caller.send({ target: url, grant: await signer.sign(claims) })).status).toBe(status);
    const hand = await signer.sign({ ...base, sub: "hand:browser", use: ["mcp"] });
    expect((await caller.send({ target: url, grant: hand })).status).toBe(200);

    const { body } = await request(`${proxy.url}/mcp`, {
      headers: { authorization: `Bearer ${await caller.grant([vault])}`, "x-manyhands-target": url },
    });
    const ended = body.text().then(
      () => "ended",
      () => "cut",
    );
    const revoked = await request(`${proxy.url}/revoke`, {
      method: "POST",
      headers: { authorization: `Bearer ${await signer.sign({ sub: "sesn_1", vaults: [], use: ["revoke"] })}` },
      body: JSON.stringify({ session: "sesn_1" }),
    });
    expect([revoked.statusCode, await revoked.body.json()]).toEqual([200, { revoked: "sesn_1" }]);
    expect(await ended).toBe("cut");
    expect((await caller.send({ target: url, vaults: [vault] })).status).toBe(401);
  });

  test("only for an address that is one, of one origin, by a method of the protocol", async () => {
    const server = await recorder();
    const vault = await caller.bearer(server.url, TOKEN);
    const ask = (more: object) => caller.send({ target: server.url, vaults: [vault], ...more });
    for (const target of ["", "/mcp", "ftp://x/y", "http://user:pw@127.0.0.1/mcp", `${server.url}#x`, "x".repeat(3_000)])
      expect([target, (await ask({ target })).refusal]).toEqual([target, "bad_target"]);
    expect((await ask({ target: "http://127.0.0.1:1/mcp", server: server.url })).refusal).toBe("bad_target");
    expect((await ask({ method: "GET", target: `${server.url}/messages`, server: server.url })).refusal).toBe("bad_target");
    for (const method of ["TRACE", "OPTIONS"] as const) expect((await ask({ method })).status).toBe(405);
    expect(server.seen).toEqual([]);
    expect((await ask({ target: `${server.url}/messages?id=1`, server: server.url })).status).toBe(200);
    expect(server.seen.map(({ url, authorization }) => [url, authorization])).toEqual([["/mcp/messages?id=1", `Bearer ${TOKEN}`]]);
  });
});

describe("bodies", () => {
  test("flow both ways while they are made: an event is there before the request ended", async () => {
    const heard: string[] = [];
    const url = await serve(async (req, res) => {
      res.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
      for await (const piece of req) {
        heard.push(String(piece));
        res.write(`data: ${heard.length}\n\n`);
      }
      res.end();
    });
    const vault = await caller.bearer(url, TOKEN);
    let more = (_: string | null) => {};
    const pieces = async function* () {
      for (const text of ["one", "two"]) {
        const wait = new Promise<string | null>((resolve) => {
          more = resolve;
        });
        yield Buffer.from(text);
        await wait;
      }
    };
    const { body } = await request(`${proxy.url}/mcp`, {
      method: "POST",
      headers: { authorization: `Bearer ${await caller.grant([vault])}`, "x-manyhands-target": url },
      body: pieces() as never,
    });
    const events: string[] = [];
    for await (const event of body) {
      events.push(String(event));
      more(null);
    }
    expect([events.join(""), heard.join("")]).toEqual(["data: 1\n\ndata: 2\n\n", "onetwo"]);
  });

  test("a caller that leaves ends the request at the server; a server that breaks off breaks off for the caller", async () => {
    let isOver = false;
    const url = await serve((req, res) => {
      res.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
      if (req.headers["last-event-id"] === "cut") return void res.write("data: 1\n\n", () => res.destroy());
      res.once("close", () => {
        isOver = true;
      });
    });
    const vault = await caller.bearer(url, TOKEN);
    const leave = new AbortController();
    const agent = new Agent();
    cleanups.push(() => agent.destroy());
    const { body } = await request(`${proxy.url}/mcp`, {
      headers: { authorization: `Bearer ${await caller.grant([vault])}`, "x-manyhands-target": url },
      signal: leave.signal,
      dispatcher: agent,
    });
    body.on("error", () => {});
    leave.abort();
    await until(() => isOver);
    await until(() => proxy.log.some((line) => line.includes('"reason":"caller_left"')));
    await expect(caller.send({ target: url, vaults: [vault], headers: { "last-event-id": "cut" } })).rejects.toThrow();
  });

  test("a server that can't be reached, or breaks before it answers, is told apart", async () => {
    const url = await serve((req, res) => {
      req.resume();
      res.destroy();
    });
    const away = "http://127.0.0.1:9/mcp";
    const vaults = [await caller.bearer(url, TOKEN), await caller.bearer(away, TOKEN)];
    expect((await caller.send({ target: url, vaults })).refusal).toBe("server_broke");
    expect((await caller.send({ target: away, vaults })).refusal).toBe("server_unreachable");
  });
});
