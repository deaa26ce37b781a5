// One writer for each session: work that was claimed by a worker which died or froze is offered again after its lease, what the frozen one still does is
// stopped when it wakes, and messages that come at once are worked off in the order of the log.
//
// agentscope-ai/agentscope-java#2146, Boise-State-Development/agentcore-public-stack#655, brightwave-inc/tidebreak#320,
// anthropics/anthropic-sdk-python#1779

import { afterAll, beforeAll, expect, test } from "vitest";
import { effectsBelow } from "../../chaos/kill.ts";
import { danglingSpansOf, disorderedEventsOf, unpairedCallsOf } from "../../chaos/wire-checkers.ts";
import { needs } from "../../support/real-part.ts";
import { until } from "../../support/until.ts";
import { Stage, stopsOf, TOOLSET, textOf } from "./stage.ts";

const LEASE_MS = 1_500;
/** A lease, the taker's poll, a turn, and a busy machine. */
const OFFERED_MS = LEASE_MS + 10_000;

needs("redis-server")("with two workers on one Redis", () => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await Stage.open({ store: "redis", leaseMs: LEASE_MS });
  });
  afterAll(() => stage.close());

  test("a session that was claimed by a worker which died before it did anything is offered again", async () => {
    const { installation } = stage;
    const session = await stage.session();
    await installation.stop("worker");
    await installation.start("worker", "taken");
    await session.say("say: taken up");
    await installation.reached("worker", "taken");
    await installation.kill("worker");
    await installation.start("worker");
    const from = performance.now();
    expect(stopsOf(await session.settled())).toEqual(["end_turn"]);
    expect(performance.now() - from).toBeLessThan(OFFERED_MS);
    expect(await session.lastWords()).toBe("taken up");
    expect(session.requests()).toHaveLength(1);
  });

  test("a worker that was frozen in a model's answer stops asking when it wakes, and starts no tool", async () => {
    const { installation } = stage;
    const first = installation.program("worker");
    const session = await stage.session([TOOLSET]);
    await session.say(`stall: 60000 after=8 times=1\nsay: I count.\ncall bash: {"command":"echo ${session.nonce} >> effects.txt"}\n---\nsay: done`);
    await until(() => session.requests().length === 1);
    first.kill("SIGSTOP");
    const other = installation.startBeside("worker");
    try {
      await other.listening();
      await until(() => session.requests().length === 2, { timeoutMs: OFFERED_MS, what: "another worker to go on" });
      const { aborted } = stage.model.stats();
      first.kill("SIGCONT");
      await until(() => first.linesOf("lease.lost").length > 0, { what: "the lost lease to be noticed" });
      await until(() => stage.model.stats().aborted > aborted, { what: "the model's answer to be given up" });
      const events = await session.settled();
      expect(stopsOf(events)).toEqual(["end_turn"]);
      expect([...unpairedCallsOf(events), ...danglingSpansOf(events), ...disorderedEventsOf(events)]).toEqual([]);
      expect(events.filter(({ type }) => type === "agent.tool_use")).toHaveLength(1);
      expect((await effectsBelow(installation.dataDir)).filter((line) => line === session.nonce)).toHaveLength(1);
      expect(session.requests()).toHaveLength(3);
    } finally {
      first.kill("SIGCONT");
      await other[Symbol.asyncDispose]();
    }
  });

  test("ten messages at once are worked off in the order of the log, each once", async () => {
    const other = stage.installation.startBeside("worker");
    try {
      await other.listening();
      const session = await stage.session();
      await Promise.all(Array.from({ length: 10 }, (_, at) => session.say(`say: message ${at}`)));
      const events = await session.settled();
      const said = events.filter(({ type }) => type === "user.message").map(({ content }) => textOf(content));
      expect(said).toHaveLength(10);
      const told = session.lastRequest().messages.flatMap(({ role, content }) => (role === "user" ? content.map(({ text }) => text) : []));
      expect(told).toEqual(said);
      expect(disorderedEventsOf(events)).toEqual([]);
    } finally {
      await other[Symbol.asyncDispose]();
    }
  });
});
