// Streams that clients listen on: one a session however often it comes back, on whatever replica; bounded for each caller; and no call waits for another's.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { handshake, send, stateless } from "../support/mcp.ts";
import { type Doors, FIRST, openDoors, SECOND } from "../support/mcp-door.ts";
import { probe } from "../support/mcp-surface.ts";
import { until } from "../support/until.ts";

const SOON_MS = 10_000;
const tools = probe();
let doors: Doors;
let one: string;
let other: string;
beforeAll(async () => {
  doors = await openDoors(tools.surface, { count: 2 });
  [one = "", other = ""] = doors.urls;
});
afterAll(() => doors.close());

async function listen(url: string, headers: Record<string, string>) {
  const gone = new AbortController();
  const response = await fetch(url, { headers: { ...headers, accept: "text/event-stream" }, signal: gone.signal });
  const stream = { status: response.status, retryAfter: response.headers.get("retry-after"), isOver: false, leave: () => gone.abort() };
  const read = async () => {
    for await (const _ of response.body ?? []);
  };
  void read()
    .catch(() => {})
    .finally(() => {
      stream.isOver = true;
    });
  return stream;
}

describe("a client that comes back", () => {
  test("fifty times, now here and now there, has one stream; the end of its session ends that", async () => {
    const { headers } = await handshake(one, FIRST);
    const streams: Awaited<ReturnType<typeof listen>>[] = [];
    for (let n = 0; n < 50; n += 1) streams.push(await listen(n % 2 === 0 ? one : other, headers));
    const open = () => streams.filter(({ isOver }) => !isOver);
    await until(() => open().length === 1);
    expect(open()[0]).toBe(streams.at(-1));
    expect((await send(one, "DELETE", headers)).status).toBe(204);
    await until(() => open().length === 0);
  });

  test("and never goes properly leaves nothing behind", async () => {
    const { headers, call } = await handshake(one, FIRST);
    await call(1, "resources/subscribe", { uri: (await call(2, "resources/list")).messages[0]?.result.resources[0].uri });
    const streams = await Promise.all([listen(one, headers), listen(other, headers)]);
    for (const stream of streams) stream.leave();
    await until(() => streams.every(({ isOver }) => isOver));
    const again = await listen(other, headers);
    expect(again).toMatchObject({ status: 200, isOver: false });
    again.leave();
  });
});

test("calls that hang keep no other call waiting, of the same caller or of another, on any replica", async () => {
  const opened = await handshake(one, FIRST, { other });
  const before = tools.calledOff;
  const hanging = Array.from({ length: 60 }, (_, n) => opened.call(100 + n, "tools/call", { name: "wait", arguments: {} }));
  const from = performance.now();
  const call = { id: 1, method: "tools/call", params: { name: "echo", arguments: { text: "x" } } };
  for (const url of [one, other]) for (const headers of [FIRST, SECOND]) expect((await stateless(url, headers, call)).status).toBe(200);
  expect(performance.now() - from).toBeLessThan(SOON_MS);
  for (let n = 0; n < hanging.length; n += 1) await opened.notify("notifications/cancelled", { requestId: 100 + n });
  await Promise.all(hanging);
  expect(tools.calledOff).toBe(before + hanging.length);
});

describe("a caller that opens streams without a pause", () => {
  let few: Doors;
  let url: string;
  beforeAll(async () => {
    few = await openDoors(tools.surface, { listening: { open: 4, burst: 6, perS: 0.001 } });
    url = few.urls[0] ?? "";
  });
  afterAll(() => few.close());

  test("is told to wait, in both eras, and no other caller notices", async () => {
    const sessions = await Promise.all(Array.from({ length: 5 }, () => handshake(url, FIRST)));
    const streams: Awaited<ReturnType<typeof listen>>[] = [];
    for (const { headers } of sessions) streams.push(await listen(url, headers));
    expect(streams.map(({ status }) => status)).toEqual([200, 200, 200, 200, 429]);
    expect(streams[4]?.retryAfter).toBe("1");
    const listening = { id: 1, method: "subscriptions/listen", params: { notifications: { toolsListChanged: true } } };
    expect(await stateless(url, FIRST, listening)).toMatchObject({ status: 429, messages: [{ error: { code: -32_000 } }] });

    const theirs = await listen(url, (await handshake(url, SECOND)).headers);
    expect(theirs.status).toBe(200);
    // Calls are something else.
    expect((await stateless(url, FIRST, { id: 2, method: "tools/list" })).status).toBe(200);

    // Places come free; but of the six in a row two are left.
    for (const stream of streams) stream.leave();
    const again: number[] = [];
    for (let n = 0; n < 4; n += 1) {
      const stream = await until(async () => {
        const next = await listen(url, sessions[0]?.headers ?? {});
        return next.status === 200 || n >= 2 ? next : null;
      });
      again.push(stream.status);
      stream.leave();
    }
    expect(again).toEqual([200, 200, 429, 429]);
    theirs.leave();
  });
});
