// Servers over standard input and output, by requests written by hand: streams that break and go on, sessions that end, servers that have a URL.

import { afterEach, expect, test } from "vitest";
import { CLIENT_LISTENS } from "../../hands/relay/request.ts";
import { RawServer } from "../support/mcp/raw.ts";
import { EVERYTHING, type RunningRelay, script, startServerRelay } from "../support/mcp/server-relay.ts";
import { until } from "../support/until.ts";

let relay: RunningRelay | null = null;
let raw: RawServer | null = null;
afterEach(async () => {
  await relay?.close();
  await raw?.close();
  relay = null;
  raw = null;
});
const STDIO = script("dist/test/support/mcp/stdio.js", ["plain"]);
const HEADERS = { "content-type": "application/json", accept: "application/json, text/event-stream" };

async function post(url: string, message: object, headers: Record<string, string> = {}, signal?: AbortSignal): Promise<Response> {
  const body = JSON.stringify({ jsonrpc: "2.0", ...message });
  return fetch(url, { method: "POST", headers: { ...HEADERS, ...headers }, body, ...(signal && { signal }) });
}

async function open(url: string): Promise<Record<string, string>> {
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "raw", version: "1" } };
  const response = await post(url, { id: 0, method: "initialize", params });
  expect(response.status).toBe(200);
  await response.text();
  const headers = { "mcp-session-id": String(response.headers.get("mcp-session-id")) };
  expect((await post(url, { method: "notifications/initialized" }, headers)).status).toBe(202);
  return headers;
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    // There is no such process.
    return false;
  }
}

async function pidOf(url: string, session: Record<string, string>): Promise<number> {
  const answer = (await (await post(url, { id: 1, method: "tools/call", params: { name: "pid" } }, session)).json()) as {
    result: { content: { text: string }[] };
  };
  return Number(answer.result.content[0]?.text);
}

test("an answer whose connection broke goes on where it was, for a client that names the last event", async () => {
  relay = await startServerRelay({ everything: script(EVERYTHING[0], [EVERYTHING[1]]) });
  const url = relay.url("everything");
  const session = await open(url);
  const off = new AbortController();
  const args = { duration: 1.5, steps: 5 };
  const params = { name: "trigger-long-running-operation", arguments: args, _meta: { progressToken: "mine" } };
  const broken = await post(url, { id: 1, method: "tools/call", params }, session, off.signal);
  let seen = "";
  const reader = broken.body?.getReader();
  while (!seen.includes('"progress":1')) seen += Buffer.from((await reader?.read())?.value ?? []).toString("utf8");
  off.abort();
  const last = [...seen.matchAll(/^id: (.+)$/gm)].at(-1)?.[1] ?? "";
  const rest = await fetch(url, { headers: { accept: "text/event-stream", "last-event-id": last, ...session } });
  expect(rest.status).toBe(200);
  const messages = [...(await rest.text()).matchAll(/^data: (\{.*)$/gm)].map(([, data]) => JSON.parse(data ?? "") as Record<string, unknown>);
  expect(messages.slice(0, -1).map(({ params: told }) => (told as { progress: number; progressToken: string }).progress)).toEqual([2, 3, 4, 5]);
  expect(messages.at(-1)).toMatchObject({ id: 1, result: { content: [{ type: "text" }] } });
  const unknown = await fetch(url, { headers: { accept: "text/event-stream", "last-event-id": "none.1", ...session } });
  expect(unknown.status).toBe(404);
});

test("a session ends with its DELETE, its child with it; so does one that nobody uses", async () => {
  relay = await startServerRelay({ plain: STDIO }, { idleMs: 600 });
  const url = relay.url("plain");
  const [deleted, idle] = [await open(url), await open(url)];
  const [first, second] = [await pidOf(url, deleted), await pidOf(url, idle)];
  expect((await fetch(url, { method: "DELETE", headers: deleted })).status).toBe(204);
  await until(() => !isAlive(first));
  expect((await post(url, { id: 2, method: "ping" }, deleted)).status).toBe(404);
  await until(() => !isAlive(second));
  expect((await post(url, { id: 2, method: "ping" }, idle)).status).toBe(404);
});

test("a client that listened and went away without a word takes its child along; one that never listened, or comes back, does not", async () => {
  relay = await startServerRelay({ plain: STDIO }, { awayMs: 600 });
  const url = relay.url("plain");
  const listen = async (session: Record<string, string>, marks: Record<string, string>) => {
    const off = new AbortController();
    const stream = await fetch(url, { headers: { accept: "text/event-stream", ...session, ...marks }, signal: off.signal });
    expect(stream.status).toBe(200);
    return () => off.abort();
  };
  const [silent, gone, back, translated] = [await open(url), await open(url), await open(url), await open(url)];
  const pid = await pidOf(url, gone);
  (await listen(translated, {}))();
  (await listen(back, CLIENT_LISTENS))();
  const again = async () => {
    // Until the first one's end is heard of, a second stream is refused.
    const stream = await fetch(url, { headers: { accept: "text/event-stream", ...back, ...CLIENT_LISTENS } });
    if (stream.status !== 200) await stream.body?.cancel();
    return stream.status === 200;
  };
  await until(again);
  (await listen(gone, CLIENT_LISTENS))();
  await until(() => !isAlive(pid));
  expect((await post(url, { id: 2, method: "ping" }, gone)).status).toBe(404);
  for (const session of [silent, back, translated]) expect((await post(url, { id: 2, method: "ping" }, session)).status).toBe(200);
});

test("requests that are no message, of no session, of no server, or of an id that is under way are refused", async () => {
  relay = await startServerRelay({ everything: script(EVERYTHING[0], [EVERYTHING[1]]) });
  const url = relay.url("everything");
  const session = await open(url);
  expect((await post(relay.url("other"), { id: 1, method: "ping" })).status).toBe(404);
  expect((await post(url, { id: 1, method: "ping" })).status).toBe(400);
  expect((await post(url, { id: 1, method: "ping" }, { "mcp-session-id": "none" })).status).toBe(404);
  expect((await post(url, { id: {}, method: "ping" }, session)).status).toBe(400);
  const slow = { id: 5, method: "tools/call", params: { name: "trigger-long-running-operation", arguments: { duration: 2, steps: 1 } } };
  const off = new AbortController();
  const first = post(url, slow, session, off.signal);
  first.catch(() => {});
  await until(async () => (await post(url, slow, session)).status === 400);
  off.abort();
});

test.each(["", "?sharing=shared"])("a burst of clients does not pass the bound of sessions: %s", async (query) => {
  relay = await startServerRelay({ plain: STDIO }, { sessionsMax: 3 });
  const url = relay.url("plain", query);
  const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } };
  const statuses = async () =>
    (await Promise.all(Array.from({ length: 8 }, () => post(url, { id: 1, method: "initialize", params: hello })))).map(({ status }) => status);
  expect((await statuses()).sort()).toEqual([200, 200, 200, 503, 503, 503, 503, 503]);
  expect(await statuses()).toEqual(Array.from({ length: 8 }, () => 503));
});

test("a server of the file that has a URL is relayed as it is, without the caller's credential", async () => {
  raw = await RawServer.start();
  relay = await startServerRelay({ remote: { type: "url", url: new URL(raw.url), isSse: false } });
  const direct = await post(raw.url, { id: 1, method: "tools/list" });
  const through = await post(relay.url("remote"), { id: 1, method: "tools/list" }, { authorization: "Bearer not-for-others" });
  expect([through.status, await through.text()]).toEqual([direct.status, await direct.text()]);
  expect(raw.headers).toHaveLength(2);
  expect(JSON.stringify(raw.headers)).not.toContain("not-for-others");
});
