// Keys of a session's hands: what each of them opens, and when it ends. And a harness outside of the worker, which has nothing but such a key.

import { readFile } from "node:fs/promises";
import { importJWK, SignJWT } from "jose";
import { request } from "undici";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import type { Fence } from "../../session-store/ids.ts";
import { servers, TOOLSET } from "../harnesses/agents.ts";
import { RawServer, says, tool } from "../support/mcp/raw.ts";
import { stateless } from "../support/mcp.ts";
import { outsideHarness, type Report } from "../support/outside-harness.ts";
import { API_KEY, connectHands, type Gateways, openGateways } from "../support/session-door.ts";
import { startNode, type TestNode, type TestSession } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let node: TestNode;
let gateways: Gateways;
beforeAll(async () => {
  node = await startNode();
  gateways = await openGateways(node, 2);
});
afterEach(() => node.rest());
afterAll(async () => {
  await gateways.close();
  await node.close();
});

const HandsKey = z.object({ type: z.literal("hands_key"), key: z.string(), url: z.string(), expires_at: z.string() });
const base = () => gateways.urls[0] ?? "";
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

async function keyFor(session: TestSession) {
  const { statusCode, body } = await request(`${base()}/v1/sessions/${session.id}/hands_key`, { method: "POST", headers: bearer(API_KEY) });
  const given = await body.json();
  expect({ statusCode, given }).toMatchObject({ statusCode: 200 });
  return HandsKey.parse(given);
}

/** The status of a list of tools at a door. */
async function knock(path: string, key: string): Promise<number> {
  return (await stateless(`${base()}${path}`, bearer(key), { id: 1, method: "tools/list" })).status;
}
const doorOf = ({ id }: { readonly id: string }) => `/mcp/sessions/${id}`;

describe("a client's key", () => {
  test("opens the hands of its session at every replica, and nothing else", async () => {
    await node.work();
    const [session, other] = [await node.open([TOOLSET]), await node.open([TOOLSET])];
    const { key, url, expires_at } = await keyFor(session);
    expect(url).toBe(`${base()}${doorOf(session)}`);
    const lifeMs = Date.parse(expires_at) - Date.now();
    expect([lifeMs > 500_000, lifeMs <= 600_000]).toEqual([true, true]);
    for (const replica of gateways.urls) {
      const { call, close } = await connectHands("v1", `${replica}${doorOf(session)}`, key);
      expect(await call("bash", { command: "echo in" })).toMatchObject({ text: "in", isError: false });
      await close();
    }
    expect(await knock(doorOf(session), key)).toBe(200);
    expect(await knock(doorOf(other), key)).toBe(403);
    expect(await knock(doorOf({ id: "sesn_none" }), key)).toBe(403);
    expect(await knock("/mcp", key)).toBe(401);
    for (const path of ["/v1/sessions", `/v1/sessions/${session.id}`, `/v1/sessions/${session.id}/events`])
      expect((await request(`${base()}${path}`, { headers: bearer(key) })).statusCode).toBe(401);
    const own = { method: "POST", headers: bearer(key) } as const;
    expect((await request(`${base()}/v1/sessions/${session.id}/hands_key`, own)).statusCode).toBe(401);
  });

  test("ends when the session next begins to run, and not before", async () => {
    await node.work();
    const session = await node.open([TOOLSET]);
    await session.say("say: one");
    await session.idle();
    const { key } = await keyFor(session);
    const { call, close } = await connectHands("v2", `${base()}${doorOf(session)}`, key);
    // Its own calls take the session, and are no turn.
    for (const n of [1, 2]) expect(await call("bash", { command: `echo ${n}` })).toMatchObject({ text: String(n) });
    await session.say("say: two");
    await session.idle();
    expect(await knock(doorOf(session), key)).toBe(403);
    await expect(call("bash", { command: "echo late" })).rejects.toThrow();
    expect((await session.results()).map(({ text }) => text)).toEqual(["1", "2"]);
    await close();
  });

  test("that is expired, changed or of another signer is none; an unknown session is unknown to a key of the workspace", async () => {
    const session = await node.open([TOOLSET]);
    const { key } = await keyFor(session);
    const jwk = z.looseObject({ kid: z.string() }).parse(JSON.parse(await readFile(node.keyFile, "utf8")));
    const secret = await importJWK(jwk, "EdDSA");
    const signed = (audience: string, expires: number) =>
      new SignJWT({ fence: 0, turn: false, at: 1 })
        .setProtectedHeader({ alg: "EdDSA", kid: jwk.kid })
        .setIssuer("manyhands")
        .setAudience(audience)
        .setSubject(session.id)
        .setExpirationTime(expires)
        .sign(secret);
    const now = Math.floor(Date.now() / 1000);
    expect(await knock(doorOf(session), await signed("session-hands", now + 60))).toBe(200);
    expect(await knock(doorOf(session), await signed("session-hands", now - 60))).toBe(401);
    expect(await knock(doorOf(session), await signed("vault-proxy", now + 60))).toBe(401);
    const [head, body, mark = ""] = key.split(".");
    expect(await knock(doorOf(session), [head, body, `${mark.startsWith("A") ? "B" : "A"}${mark.slice(1)}`].join("."))).toBe(401);
    expect(await knock(doorOf(session), "wrong-key-of-nobody")).toBe(401);
    expect(await knock(doorOf({ id: "sesn_none" }), API_KEY)).toBe(404);
    expect(await knock(doorOf({ id: "sesn_none" }), "wrong-key-of-nobody")).toBe(401);
  });
});

describe("a harness in a process of its own", () => {
  test("reaches its hands by its turn's key alone, finishes its turn, and the key ends with it", async () => {
    const docs = await RawServer.start({ hasSessions: true, tools: [tool("search")], call: (_name, { text }) => says(`found ${String(text)}`) });
    const reports: Report[] = [];
    const keys: { url: string; key: string }[] = [];
    const harness = outsideHarness((report, given) => {
      reports.push(report);
      keys.push(given);
    });
    await node.work({ harness, handsDoor: { keys: gateways.keys, url: () => gateways.urls[1] } });
    const { tools, mcp_servers } = servers({ docs: docs.url, session: "hand:session" });
    const session = await node.open([TOOLSET, ...tools], { mcp_servers });
    for (const word of ["first", "second"]) {
      await session.say(`the ${word} message`);
      await session.idle();
    }
    expect(await session.texts()).toEqual(["outside says: from outside", "outside says: from outside\nfrom outside"]);
    expect(reports.map(({ docs: { text } }) => text)).toEqual(["found hello", "found hello"]);
    expect(reports[0]?.tools).toEqual(["bash", "read", "write", "edit", "glob", "grep", "mcp__docs__search", ...LOG_NAMES]);
    expect(reports[1]?.log.structured).toMatchObject({
      events: [{ content: [{ text: "the second message" }] }, { content: [{ text: "the first message" }] }],
      next: null,
    });
    const uses = (await session.log()).flatMap(({ entry, fence }) =>
      entry.type === "agent.tool_use" || entry.type === "agent.mcp_tool_use" ? [`${fence} ${entry.name}`] : [],
    );
    expect(uses).toEqual([1, 2].flatMap((fence) => [`${fence} bash`, `${fence} search`, `${fence} get_events`]));
    expect((await session.types()).filter((type) => type === "session.status_idle")).toHaveLength(2);
    expect(new Set(keys.map(({ url }) => url))).toEqual(new Set([`${gateways.urls[1]}${doorOf(session)}`]));
    for (const { key } of keys) expect(await knock(doorOf(session), key)).toBe(403);
    await docs.close();
  });

  test("whose lease was taken over finds its key superseded, and nothing of it runs", async () => {
    const session = await node.open([TOOLSET]);
    await session.say("say: taken");
    const lease = await node.store.take("frozen", "nonce");
    if (lease?.id !== session.id) throw new Error("another session was due");
    const { key } = await gateways.keys.mint({ session: session.id, fence: lease.fence, by: { type: "turn", fence: lease.fence } });
    expect(await knock(doorOf(session), key)).toBe(200);
    const early = { fence: (lease.fence - 1) as Fence, by: { type: "turn", fence: (lease.fence - 1) as Fence } } as const;
    expect(await knock(doorOf(session), (await gateways.keys.mint({ session: session.id, ...early })).key)).toBe(403);
    // What slipped in before the lease changed hands is refused by the host that took over.
    const { call, close } = await connectHands("v1", `${base()}${doorOf(session)}`, key);
    const calling = call("bash", { command: "echo late" });
    await session.has("log.asked");
    await node.store.release(lease, 1, [], 0);
    await node.work();
    expect(await calling).toMatchObject({ isError: true, text: expect.stringContaining("earlier turn") });
    await session.idle();
    expect(await session.texts()).toEqual(["taken"]);
    expect(await session.results()).toEqual([]);
    await close();
  });
});

const LOG_NAMES = ["mcp__session__get_events", "mcp__session__search_events", "mcp__session__rewind"];
