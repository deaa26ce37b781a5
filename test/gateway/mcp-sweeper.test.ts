// What the MCP door keeps for a while goes away by itself, and what is in use stays.

import { expect, test } from "vitest";
import { sweep } from "../../gateway/mcp/sweeper.ts";
import { handshake, post, stateless } from "../support/mcp.ts";
import { FIRST, openDoors } from "../support/mcp-door.ts";
import { probe } from "../support/mcp-surface.ts";
import { until } from "../support/until.ts";

const DAY_MS = 86_400_000;
const KINDS = ["mcp_ask", "mcp_state", "mcp_stream", "mcp_message"] as const;

test("questions, spent states and stored answers are swept when their time is over, not before", async () => {
  const tools = probe();
  const doors = await openDoors(tools.surface);
  try {
    const [url = ""] = doors.urls;
    const { store } = doors;
    const counts = async () => Promise.all(KINDS.map(async (kind) => (await store.list("manyhands", kind, { order: "asc", limit: 100 })).length));
    const { call, headers } = await handshake(url, FIRST, { capabilities: { elicitation: {} } });
    const asking = call(1, "tools/call", { name: "effect", arguments: {} });
    await until(async () => (await counts())[0] === 1);
    const asked = await stateless(url, FIRST, { id: 1, method: "tools/call", params: { name: "effect", arguments: {} } }, { elicitation: {} });
    const requestState = String(asked.messages.at(-1)?.result.requestState);
    const answered = { requestState, inputResponses: { form: { action: "accept", content: { name: "Ada" } } } };
    await stateless(url, FIRST, { id: 2, method: "tools/call", params: { name: "effect", arguments: {}, ...answered } }, { elicitation: {} });
    tools.release();
    await call(3, "tools/call", { name: "hold", arguments: {} });
    await until(async () => {
      const [questions = 0, states = 0, streams = 0] = await counts();
      return questions === 1 && states === 1 && streams >= 1;
    });
    const before = await counts();
    await sweep(store, Date.now());
    expect(await counts()).toEqual(before);
    await post(url, { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 1 } }, headers);
    await asking;
    await sweep(store, Date.now() + DAY_MS);
    await until(async () => (await counts()).every((count) => count === 0));
  } finally {
    await doors.close();
  }
});

test("streams that have to stay keep none that came after them", async () => {
  const doors = await openDoors(probe().surface);
  try {
    const { store } = doors;
    const put = (id: string, until: number) =>
      store.put("manyhands", [{ kind: "mcp_stream", id, body: { session: "mcps_1", request: 1, count: 0, isDone: false, until }, replaces: 0 }]);
    const later = Date.now() + DAY_MS;
    for (let n = 0; n < 250; n += 1) await put(`running-${n}`, later + DAY_MS);
    await put("over", 0);
    await sweep(store, later);
    expect(await store.get("manyhands", "mcp_stream", "over")).toBeNull();
    expect(await store.list("manyhands", "mcp_stream", { order: "asc", limit: 1_000 })).toHaveLength(250);
  } finally {
    await doors.close();
  }
});
