// What takes most of a minute, side by side: silence behind a proxy that cuts what is silent for 20 s, and a gateway that is killed while calls wait
// in it. Two gateways over Redis, a worker, a hand host and a vault proxy as shipped: no limit is shortened.

import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { connect } from "node:net";
import { request } from "undici";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import { isUp } from "../chaos/installation.ts";
import { freePort } from "../chaos/redis-server.ts";
import { type FullServer, startFullOld } from "../support/mcp/full-old.ts";
import { askRaw } from "../support/mcp/raw-stateless.ts";
import { handshake, type RpcMessage, STATELESS, stateless } from "../support/mcp.ts";
import type { Program } from "../support/process.ts";
import { proves } from "../support/proves.ts";
import { json, type ScriptedHand, startScriptedHand } from "../support/relay.ts";
import { startRoundRobin } from "../support/round-robin.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";
import { Stage, TOOLSET } from "./cases/stage.ts";

const CUT_MS = 20_000;
/** More than two of these. */
const QUIET_MS = 42_000;
/** The last sign of life of a killed gateway is so old before its calls are given up, and a look comes every second or two. */
const LOST_MS = 50_000;
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000, maxConcurrency: 50 });

let stage: Stage;
let proxy: TcpProxy;
let victim: { readonly program: Program; readonly url: string };
let own: Record<"old" | "new", ScriptedHand>;
let asking: FullServer;
let key: { readonly authorization: string };
/** The surviving gateway, behind the proxy. */
const at = (path: string) => `http://127.0.0.1:${proxy.port}${path}`;

beforeAll(async () => {
  stage = await Stage.open({ store: "redis", env: { MANYHANDS_MCP_INTERNAL_HOSTS: "*" } });
  const { installation } = stage;
  key = { authorization: `Bearer ${installation.apiKey}` };
  const port = await freePort();
  victim = { program: installation.startBeside("gateway", { MANYHANDS_PORT: String(port) }), url: `http://127.0.0.1:${port}` };
  proxy = await startTcpProxy(Number(new URL(installation.url).port), { idleMs: CUT_MS });
  own = { old: await startScriptedHand({ eras: ["handshake"] }), new: await startScriptedHand({ eras: ["stateless"] }) };
  asking = await startFullOld();
  for (const hand of Object.values(own)) hand.answer(answerLate);
  for (const [name, { url }] of Object.entries({ ...own, asking }))
    await stage.client.post("/v1/hands", { body: { name, description: "", transport: { type: "http", url }, allow_unreachable: true } });
  await isUp(victim.program);
});
afterAll(async () => {
  await stage.close();
  await proxy.close();
  await asking.close();
  await Promise.all(Object.values(own).map((hand) => hand.close()));
});

const Asked = z.looseObject({ id: z.unknown(), method: z.string(), params: z.looseObject({ name: z.string().optional() }).optional() });
const META = {
  "io.modelcontextprotocol/protocolVersion": STATELESS,
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": {},
};
const ACCEPT = { accept: "application/json, text/event-stream", "content-type": "application/json" };
const isChange = ({ method }: RpcMessage) => method === "notifications/tools/list_changed";
const isUpdateAfter =
  (time: number) =>
  ({ method }: RpcMessage) =>
    method === "notifications/resources/updated" && performance.now() > time;

/** Says nothing for QUIET_MS: not even that an answer has begun, or nothing after its beginning. */
function answerLate({ body, method }: { readonly body: string; readonly method: string }, response: ServerResponse): unknown {
  const later = (then: () => void) => setTimeout(then, QUIET_MS);
  const open = () => response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
  const say = (message: object) => response.write(`data: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`);
  if (method === "GET") {
    open();
    return later(() => say({ method: "notifications/tools/list_changed" }));
  }
  const asked = Asked.safeParse(body === "" ? null : JSON.parse(body)).data;
  if (asked?.id === undefined) return response.writeHead(202).end();
  const { id } = asked;
  const result = { resultType: "complete", content: [{ type: "text", text: "at last" }] };
  switch (asked.params?.name ?? asked.method) {
    case "json":
      return later(() => json(response, { jsonrpc: "2.0", id, result }));
    case "events":
      open();
      return later(() => {
        say({ id, result });
        response.end();
      });
    case "subscriptions/listen": {
      const meta = { "io.modelcontextprotocol/subscriptionId": id };
      open();
      say({ method: "notifications/subscriptions/acknowledged", params: { notifications: { toolsListChanged: true }, _meta: meta } });
      return later(() => say({ method: "notifications/tools/list_changed", params: { _meta: meta } }));
    }
    default:
      return json(response, { jsonrpc: "2.0", id, result: { resultType: "complete", tools: [], ttlMs: 0, cacheScope: "private" } });
  }
}

const lasting = async (waited: Promise<unknown>) => {
  const since = performance.now();
  await waited;
  return performance.now() - since;
};
type Era = "handshake" | "stateless";

/** A tool of a door in either era, without asking for progress; gives what came. */
async function callTool(era: Era, url: string, name: string, args: object = {}): Promise<RpcMessage | undefined> {
  const params = { name, arguments: args };
  if (era === "stateless") return (await stateless(url, key, { id: "late", method: "tools/call", params })).messages.at(-1);
  const { call } = await handshake(url, key);
  return (await call("late", "tools/call", params)).messages.at(-1);
}

/** Reads a stream until a message fits. */
async function hears(url: string, init: Parameters<typeof request>[1], fits: (message: RpcMessage) => boolean): Promise<void> {
  const { body, statusCode } = await request(url, init);
  let text = "";
  for await (const chunk of body) {
    text += chunk;
    const messages = [...text.matchAll(/^data: ?(\{.+\})$/gm)].map(([, data = ""]) => JSON.parse(data) as RpcMessage);
    if (messages.some(fits)) return void body.destroy();
  }
  throw new Error(`the stream ended: ${statusCode} ${text.slice(-500)}`);
}

async function listens(era: Era, url: string, fits: (message: RpcMessage) => boolean, uris: readonly string[] = []): Promise<void> {
  if (era === "stateless") {
    const notifications = { toolsListChanged: true, ...(uris.length > 0 && { resourceSubscriptions: uris }) };
    const body = JSON.stringify({ jsonrpc: "2.0", id: "l", method: "subscriptions/listen", params: { notifications, _meta: META } });
    const headers = { ...key, ...ACCEPT, "mcp-protocol-version": STATELESS, "mcp-method": "subscriptions/listen" };
    return hears(url, { method: "POST", headers, body }, fits);
  }
  const { headers, call } = await handshake(url, key);
  for (const uri of uris) await call(`s-${uri}`, "resources/subscribe", { uri });
  return hears(url, { method: "GET", headers: { ...headers, accept: "text/event-stream" } }, fits);
}

describe.concurrent("behind a proxy that cuts what is silent for 20 s", () => {
  test("the proxy does cut", async () => {
    await once(connect(proxy.port, "127.0.0.1").resume(), "close", { signal: AbortSignal.timeout(CUT_MS + 10_000) });
    expect(proxy.cuts).toBe(1);
  });

  for (const era of ["handshake", "stateless"] as const) {
    for (const hand of ["old", "new"] as const) {
      test.each(["json", "events"])(`a client of the ${era} era has its answer from a slow tool of the ${hand} hand: %s`, async (tool) => {
        const since = performance.now();
        expect(await callTool(era, at(`/mcp/hands/${hand}`), tool)).toMatchObject({ id: "late", result: { content: [{ text: "at last" }] } });
        expect(performance.now() - since).toBeGreaterThan(QUIET_MS);
      });

      if (era === "handshake" || hand === "new")
        test(`a client of the ${era} era that listens to the ${hand} hand hears what is said after the silence`, async () => {
          expect(await lasting(listens(era, at(`/mcp/hands/${hand}`), isChange))).toBeGreaterThan(QUIET_MS - 1_000);
        });
    }

    test(`a client of the ${era} era waits for a turn, and hears at the end of it what it listened for`, async () => {
      const session = await stage.session([TOOLSET]);
      const message = `call bash: {"command":"sleep ${QUIET_MS / 1_000}"}\n---\nsay: at last`;
      const sending = callTool(era, at("/mcp"), "send_message", { session_id: session.id, message, wait_seconds: 90 });
      await session.has("agent.tool_use");
      const quietUntil = performance.now() + QUIET_MS - 10_000;
      const waiting = callTool(era, at("/mcp"), "wait_for_session", { session_id: session.id, wait_seconds: 90 });
      const listening = listens(era, at("/mcp"), isUpdateAfter(quietUntil), [`session://${session.id}`]);
      for (const said of await Promise.all([sending, waiting]))
        expect(said).toMatchObject({ id: "late", result: { structuredContent: { is_over: true } } });
      await listening;
    });

    test(`a client of the ${era} era has its answer from a slow tool of one session's own hands`, async () => {
      const session = await stage.session([TOOLSET]);
      const said = await callTool(era, at(`/mcp/sessions/${session.id}`), "bash", { command: `sleep ${QUIET_MS / 1_000}; echo at last` });
      expect(said).toMatchObject({ id: "late", result: { content: [{ text: expect.stringContaining("at last") }] } });
    });
  }
});

describe.concurrent("a gateway that is killed", () => {
  proves("mcp:any-replica", "loses the call that waits in it for an answer, and the client's next try at another one is told so", async () => {
    const balanced = await startRoundRobin([victim.url, stage.installation.url]);
    const call = (more: object = {}) =>
      askRaw(`${balanced.url}/mcp/hands/asking`, "tools/call", { name: "ask", arguments: {}, ...more }, { headers: key });
    const asked = await call();
    expect([balanced.counts(), asked.last.result?.resultType]).toEqual([[1, 0], "input_required"]);
    // A call of its own door, too: its stream is resumed elsewhere.
    const place = await beginsAt(victim.url);
    victim.program.kill("SIGKILL");
    await victim.program.exit();
    const since = performance.now();
    const inputResponses = { question_1: { action: "accept", content: { name: "Ada" } } };
    const [again, resumed] = await Promise.all([
      call({ requestState: asked.last.result?.requestState, inputResponses }),
      place.resume(stage.installation.url),
    ]);
    expect([again.last.error?.message, resumed]).toEqual([
      expect.stringContaining("may have had its effect"),
      expect.stringContaining("may have had its effect"),
    ]);
    expect(performance.now() - since).toBeLessThan(LOST_MS);
    expect(asking.seen.filter((said) => said === "call ask")).toHaveLength(1);
    // Whoever asks anew has a call that works.
    const fresh = await until(async () => {
      const { last } = await call().catch(() => ({ last: null }));
      return last?.result ?? null;
    });
    expect(fresh).toMatchObject({ resultType: "input_required" });
    await balanced.close();
  });
});

/** A long call of the handshake era at a gateway; gives how it is resumed at another one. */
async function beginsAt(url: string): Promise<{ resume(other: string): Promise<string> }> {
  const session = await stage.session([TOOLSET]);
  const { headers } = await handshake(`${url}/mcp`, key);
  const params = { name: "send_message", arguments: { session_id: session.id, message: 'call bash: {"command":"sleep 90"}', wait_seconds: 120 } };
  const { body } = await request(`${url}/mcp`, {
    method: "POST",
    headers: { ...headers, ...ACCEPT },
    body: JSON.stringify({ jsonrpc: "2.0", id: "long", method: "tools/call", params }),
  });
  let text = "";
  body
    .on("error", () => {})
    .on("data", (chunk) => {
      text += String(chunk);
    });
  await until(() => /^id: \S+$/m.test(text));
  const [, place = ""] = /^id: (\S+)$/m.exec(text) ?? [];
  const resumed = (other: string) =>
    request(`${other}/mcp`, { method: "GET", headers: { ...headers, accept: "text/event-stream", "last-event-id": place } });
  // Once it is known elsewhere, what it says there outlives this gateway.
  const known = await resumed(stage.installation.url);
  expect(known.statusCode).toBe(200);
  known.body.on("error", () => {}).destroy();
  return { resume: async (other) => (await resumed(other)).body.text() };
}
