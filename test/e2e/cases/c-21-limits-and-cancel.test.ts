// Progress extends the idle limit of a call and never the total one; whatever ends a call, the server is told, a late answer is dropped and the error
// says which limit it was.
//
// anomalyco/opencode#24965, NousResearch/hermes-agent#94727, anthropics/claude-code#44006

import { afterEach, expect, test } from "vitest";
import { closeHands, openUrl, textOf } from "../../support/mcp/hand.ts";
import { type Asked, RawServer, says } from "../../support/mcp/raw.ts";
import { until } from "../../support/until.ts";

const TIMES = { idleMs: 600, totalMs: 2_500 };
const STEP_MS = 200;
const started: RawServer[] = [];
afterEach(async () => {
  await closeHands();
  await Promise.all(started.splice(0).map((server) => server.close()));
});

/** Answers after so many steps, each with a word of progress. */
function progressing(steps: number) {
  return async (_name: string, _input: object, asked: Asked): Promise<object | undefined> => {
    const meta = asked.rpc.params?._meta as { progressToken?: number } | undefined;
    const tell = asked.stream();
    for (let step = 1; step <= steps && !asked.response.destroyed; step += 1) {
      await new Promise((resolve) => setTimeout(resolve, STEP_MS));
      tell({ method: "notifications/progress", params: { progressToken: meta?.progressToken, progress: step } });
    }
    return says("done");
  };
}

async function serve(call: NonNullable<Parameters<typeof RawServer.start>[0]>["call"]): Promise<RawServer> {
  const server = await RawServer.start({ hasSessions: true, ...(call ? { call } : {}) });
  started.push(server);
  return server;
}

const cancelled = (server: RawServer) => until(() => server.count("notifications/cancelled") === 1, { what: "the cancel at the server" });

test("a call that speaks of its progress outlives the idle limit", async () => {
  const server = await serve(progressing(8));
  expect(textOf(await openUrl(server.url, TIMES).call("long"))).toBe("done");
});

test("a silent call ends at the idle limit, and its server is told", async () => {
  const server = await serve(() => undefined);
  const from = performance.now();
  expect(textOf(await openUrl(server.url, TIMES).call("silent"))).toBe(
    "failed: it was ended after 600 ms without a word of progress, the idle limit of a call",
  );
  expect(performance.now() - from).toBeGreaterThanOrEqual(590);
  await cancelled(server);
  const asked = server.seen.find(({ method }) => method === "tools/call");
  expect(server.seen.at(-1)?.params?.requestId).toBe(asked?.id);
});

test("endless progress ends at the limit in all", async () => {
  const server = await serve(progressing(100));
  expect(textOf(await openUrl(server.url, TIMES).call("endless"))).toBe("failed: it was ended after 2500 ms, the limit of a call in all");
  await cancelled(server);
});

test("an answer that comes after the end is dropped, and the next call has its own", async () => {
  const held: Asked[] = [];
  const server = await serve((name, _input, asked) => {
    if (name !== "late") return says("mine");
    held.push(asked);
    return undefined;
  });
  const { hand, call } = openUrl(server.url, { ...TIMES, idleMs: 5_000 });
  const late = call("late", {}, "late-1");
  await until(() => held.length === 1, { what: "the call at the server" });
  hand.cancel("late-1", "it was cancelled");
  expect(textOf(await late)).toBe("failed: it was cancelled");
  held[0]?.result(says("late"));
  expect(textOf(await call("next"))).toBe("mine");
});
