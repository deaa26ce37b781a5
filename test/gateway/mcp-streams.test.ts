// The answer streams of the handshake era when the store fails them: a client that comes back to the same process misses nothing, and sees no hole.

import { afterEach, beforeEach, expect, test } from "vitest";
import { Refusal } from "../../session-store/refusal.ts";
import { handshake, send } from "../support/mcp.ts";
import { type Doors, FIRST, openDoors } from "../support/mcp-door.ts";
import { type Probe, probe } from "../support/mcp-surface.ts";
import { until } from "../support/until.ts";

let tools: Probe;
let doors: Doors;
let url: string;
let isFull = false;
beforeEach(async () => {
  isFull = false;
  tools = probe();
  doors = await openDoors(tools.surface);
  url = doors.urls[0] ?? "";
  const put = doors.store.put.bind(doors.store);
  // The store's own refusal, for the documents of streams alone.
  doors.store.put = async (workspace, writes, options) => {
    if (isFull && writes.some(({ kind }) => kind === "mcp_stream" || kind === "mcp_message")) throw new Refusal("store_busy");
    return put(workspace, writes, options);
  };
});
afterEach(() => doors.close());

const streams = async () => (await doors.store.list("manyhands", "mcp_stream", { order: "asc", limit: 10 })).length;

async function broken() {
  const { call, headers } = await handshake(url, FIRST);
  const { messages, places } = await call(9, "tools/call", { name: "hold", arguments: {}, _meta: { progressToken: "p" } });
  expect(messages).toHaveLength(1);
  return { place: places.at(-1) ?? "", resume: (place: string) => send(url, "GET", { ...headers, "last-event-id": place }) };
}
const REST = [
  { method: "notifications/progress", params: { progress: 2 } },
  { id: 9, result: { content: [{ text: "let go" }] } },
];

test("one that could be stored at first, and then not any more, is resumed whole", async () => {
  const { place, resume } = await broken();
  await until(async () => (await streams()) === 1);
  isFull = true;
  tools.release();
  await until(() => doors.logged.some((line) => line.includes("mcp.stream_not_stored")));
  const start = place.replace(/\.\d+$/, ".0");
  for (let round = 0; round < 2; round += 1) {
    expect((await resume(place)).messages).toMatchObject(REST);
    expect((await resume(start)).messages).toMatchObject([{ method: "notifications/progress", params: { progress: 1 } }, ...REST]);
  }
});

test("one that could never be stored is resumed whole", async () => {
  isFull = true;
  const { place, resume } = await broken();
  await until(() => doors.logged.some((line) => line.includes("mcp.stream_not_stored")));
  const resumed = resume(place);
  tools.release();
  expect((await resumed).messages).toMatchObject(REST);
  expect((await resume(place)).messages).toMatchObject(REST);
  expect(await streams()).toBe(0);
});
