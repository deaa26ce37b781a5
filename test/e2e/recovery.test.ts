// What survives a worker that vanishes, is drained, or whose harness breaks (C-08, C-16, C-17).

import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import type { Harness } from "../../harnesses/harness.ts";
import type { FaultPointName } from "../../session-store/fault-point.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { TOOLSET } from "../harnesses/agents.ts";
import { startNode, type TestNode, type TestSession, until } from "./node.ts";

const LEASE_MS = 600;

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let node: TestNode;
beforeAll(async () => {
  node = await startNode({ leaseMs: LEASE_MS });
});
afterEach(() => node.rest());
afterAll(() => node.close());

/** A store whose connection can be cut: from then on nothing gets through, as after the death of its user. */
function cuttable(store: SessionStore): { readonly store: SessionStore; cut(): void } {
  let isCut = false;
  const wrapped = new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      return (...args: unknown[]) => {
        if (isCut && name === "preview") return undefined;
        if (isCut && name !== "onDue" && name !== "listen") return Promise.reject(new Refusal("store_busy"));
        return value.apply(target, args);
      };
    },
  });
  return {
    store: wrapped,
    cut: () => {
      isCut = true;
    },
  };
}

/** Each call has exactly one result, fences only grow, and the turn has one running and one idle. */
async function checkLog(session: TestSession): Promise<void> {
  const log = await session.log();
  const fences = log.map(({ fence }) => fence as number).filter((fence) => fence > 0);
  expect(fences).toEqual([...fences].sort((one, other) => one - other));
  const uses = log.flatMap(({ entry }) => (entry.type === "agent.tool_use" ? [entry.id] : []));
  const results = log.flatMap(({ entry }) => (entry.type === "agent.tool_result" ? [entry.tool_use_id] : []));
  expect(results).toEqual(uses);
  const types = await session.types();
  expect(types.filter((type) => type === "session.status_idle")).toHaveLength(1);
  expect(types.at(-1)).toBe("session.status_idle");
  expect(types.filter((type) => type === "span.model_request_start")).toHaveLength(types.filter((type) => type === "span.model_request_end").length);
  expect(node.model.stats().rejected).toBe(0);
}

describe("a worker that vanishes", () => {
  const points: readonly FaultPointName[] = ["taken", "model-streaming", "reply-stored", "tool-running", "result-stored", "before-finish"];
  test.each(points)("at %s leaves a session that another one brings to its end, its tool run once", async (point) => {
    const cut = cuttable(node.store);
    let hasStruck = false;
    await node.work({
      store: cut.store,
      fault: async (name) => {
        if (name !== point || hasStruck) return;
        hasStruck = true;
        cut.cut();
      },
    });
    const session = await node.open([TOOLSET]);
    await session.say(
      'call bash: {"command":"sleep 0.2; echo x >> count; cat count"}\ncall bash: {"command":"echo x >> count; cat count"}\necho: got\ntoken_delay: 5',
    );
    await until(() => hasStruck, point);
    await node.work();
    await session.idle();
    await checkLog(session);
    expect((await session.texts()).at(-1)?.replaceAll("\n", " ")).toMatch(/got x ?x x/);
  });

  test("does not write again when it comes back late", async () => {
    let back = () => {};
    const late = new Promise<void>((resolve) => {
      back = resolve;
    });
    let hasStruck = false;
    const cut = cuttable(node.store);
    const slow = await node.work({
      store: new Proxy(cut.store, {
        get: (target, name) =>
          // It hears nothing more of its lease; its appends are only late.
          (name === "renew" || name === "take") && hasStruck ? () => Promise.reject(new Refusal("store_busy")) : Reflect.get(target, name),
      }),
      fault: async (name) => {
        if (name !== "reply-stored" || hasStruck) return;
        hasStruck = true;
        await late;
      },
    });
    const session = await node.open([TOOLSET]);
    await session.say('call bash: {"command":"echo once >> count; cat count"}\necho: got');
    await until(() => hasStruck, "the slow worker is in the middle");
    await node.work();
    await session.idle();
    const head = await session.head();
    back();
    await until(() => slow.driven === 0, "the slow worker gave up");
    expect(await session.head()).toBe(head);
    expect(node.logged.some(({ msg }) => msg === "lease.lost")).toBe(true);
    await checkLog(session);
    expect(await session.texts()).toEqual(["got once"]);
  });
});

describe("a worker that is drained", () => {
  test("in a model request closes the span and hands over; the next one asks again", async () => {
    const first = await node.work();
    const session = await node.open();
    await session.say("token_delay: 30\nrepeat: 20 word");
    await session.has("span.model_request_start");
    await until(() => node.model.stats().active === 1, "the model streams");
    await first.drain(5_000);
    expect((await session.types()).slice(-3)).toEqual(["span.model_request_end", "session.thread_status_rescheduled", "session.status_rescheduled"]);
    await node.work();
    await session.idle();
    expect((await session.types()).filter((type) => type === "session.status_running")).toHaveLength(2);
    expect((await session.texts()).map((text) => text.length)).toEqual([80]);
    await checkLog(session);
  });

  test("in a tool leaves it running; the next one gets its result", async () => {
    const first = await node.work();
    const session = await node.open([TOOLSET]);
    await session.say('call bash: {"command":"sleep 0.5; echo x >> count; cat count"}\necho: got');
    await session.has("log.hand");
    await first.drain(5_000);
    await node.work();
    await session.idle();
    await checkLog(session);
    expect(await session.texts()).toEqual(["got x"]);
  });
});

describe("a harness that throws", () => {
  test("is a failed attempt of its session alone: the turn is tried again", async () => {
    let throws = 1;
    const harness: Harness = {
      name: "moody",
      async run(session) {
        const span = await session.begin();
        throws -= 1;
        if (throws >= 0) throw new TypeError("a bug of its own");
        const usage = { input_tokens: 1, output_tokens: 1, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 };
        await session.respond(span, { model: "none", stop_reason: "end_turn", content: [{ type: "text", text: "well" }], truncated: [], usage });
        return { type: "end_turn" };
      },
    };
    await node.work({ harness });
    const session = await node.open();
    await session.say("hello");
    await session.idle();
    expect(await session.texts()).toEqual(["well"]);
    expect((await session.has("session.error")).entry).toMatchObject({ error: { type: "unknown_error", retry_status: { type: "retrying" } } });
    const types = await session.types();
    expect(types.slice(4, 9)).toEqual([
      "span.model_request_end",
      "session.error",
      "session.thread_status_rescheduled",
      "session.status_rescheduled",
      "session.status_running",
    ]);
    expect(JSON.stringify(await session.log())).not.toContain("a bug of its own");
  });

  test("always ends the turn with retries_exhausted after five attempts, and other sessions do not notice", async () => {
    const broken: Harness = {
      name: "broken",
      run: async (session) => {
        if (session.agent.name === "Broken") throw new Error("always");
        const span = await session.begin();
        const usage = { input_tokens: 1, output_tokens: 1, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 };
        await session.respond(span, { model: "none", stop_reason: "end_turn", content: [{ type: "text", text: "fine" }], truncated: [], usage });
        return { type: "end_turn" };
      },
    };
    await node.work({ harness: broken });
    const bad = await node.open([], { name: "Broken" });
    const good = await node.open();
    await bad.say("hello");
    await good.say("hello");
    await good.idle();
    expect(await good.texts()).toEqual(["fine"]);
    await until(async () => (await bad.status()) === "idle", "the turn is given up", 20_000);
    expect((await bad.log()).filter(({ entry }) => entry.type === "session.error")).toHaveLength(5);
    expect((await bad.has("session.status_idle")).entry).toMatchObject({ stop_reason: { type: "retries_exhausted" } });
  });
});
