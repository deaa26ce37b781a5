// Redis goes away in a running turn and comes back: restarted, its connections killed, silent. Streams and the turn go on within ten seconds of its
// return with nothing lost, no program dies of it, and a program that is told to stop while Redis is silent stops in time.
//
// taskforcesh/bullmq#4484 and #2964, redis/node-redis#2632, #2021 and #2746

import { afterAll, beforeAll, expect, test } from "vitest";
import { danglingSpansOf, disorderedEventsOf, unpairedCallsOf, WireEvent } from "../../chaos/wire-checkers.ts";
import { FrameReader } from "../../support/frames.ts";
import { proves } from "../../support/proves.ts";
import { needs } from "../../support/real-part.ts";
import { startRedis, type TestRedis } from "../../support/redis.ts";
import { until } from "../../support/until.ts";
import { errorsOf, Stage, stopsOf, TOOLSET } from "./stage.ts";

const BACK_MS = 10_000;
const SILENCE_MS = 8_000;
const TURN_MS = 90_000;
const STOPPED_MS = 5_000;
const STEPS = 50;

/** A turn that writes something every few hundred milliseconds, for longer than the troubles take. */
const SCRIPT = `${Array.from({ length: STEPS }, (_, step) => `call bash: {"command":"sleep 0.2; echo ${step} >> steps.txt; echo ${step}"}`).join("\n---\n")}\n---\ncall bash: {"command":"grep -c . steps.txt"}\necho: steps`;

needs("redis-server")("a Redis that goes away", () => {
  let redis: TestRedis;
  let stage: Stage;
  beforeAll(async () => {
    redis = await startRedis();
    stage = await Stage.open({ store: "redis", redisUrl: redis.url });
  });
  afterAll(async () => {
    redis.resume();
    await stage.close();
    await redis.stop();
  });

  proves(
    "redis:returns",
    "and comes back: two streams and the turn go on, and nothing is lost",
    async () => {
      const session = await stage.session([TOOLSET]);
      const { url, apiKey } = stage.installation;
      const open = () => FrameReader.open(`${url}/v1/sessions/${session.id}/events/stream`, { "x-api-key": apiKey });
      const readers = [await open(), await open()];
      await session.say(SCRIPT);
      await until(() => readers.every(({ frames }) => frames.length > 10), { timeoutMs: TURN_MS, what: "the turn to be under way" });

      /** Both streams bring something new. */
      const goesOn = async (what: string) => {
        const counts = readers.map(({ frames }) => frames.length);
        const isOn = () => readers.every(({ frames, isEnded }, at) => !isEnded && frames.length > (counts[at] ?? 0) + 1);
        await until(isOn, {
          timeoutMs: BACK_MS,
          what: () => `streams to go on after ${what}: ${counts} → ${readers.map(({ frames }) => frames.length)}`,
        });
      };
      await redis.restart();
      await goesOn("a restart");
      for (const type of ["normal", "pubsub"]) await redis.command(`CLIENT KILL TYPE ${type}`);
      await goesOn("killed connections");
      redis.pause();
      await new Promise((resolve) => setTimeout(resolve, SILENCE_MS));
      redis.resume();
      await goesOn("a silence");

      const events = await session.settled(TURN_MS);
      expect(await session.lastWords()).toMatch(new RegExp(`^steps ${STEPS}\\b`));
      expect(stopsOf(events)).toEqual(["end_turn"]);
      expect(errorsOf(events).filter(({ retry }) => retry !== "retrying")).toEqual([]);
      expect([...unpairedCallsOf(events), ...danglingSpansOf(events), ...disorderedEventsOf(events)]).toEqual([]);
      for (const reader of readers) {
        await reader.next("session.status_idle");
        expect(reader.frames.map(({ data }) => WireEvent.parse(data).id)).toEqual(events.map(({ id }) => id));
        reader.close();
      }
      for (const role of ["gateway", "worker", "hands", "vault-proxy"] as const) expect(stage.installation.program(role).hasExited).toBe(false);
    },
    2 * TURN_MS,
  );

  test("and stays silent: what is told to stop stops within five seconds, streams and all", async () => {
    const session = await stage.session([TOOLSET]);
    const { installation } = stage;
    const reader = await FrameReader.open(`${installation.url}/v1/sessions/${session.id}/events/stream`, { "x-api-key": installation.apiKey });
    await session.say('call bash: {"command":"sleep 3; echo slept"}\n---\nsay: went on');
    await reader.next("agent.tool_use");
    redis.pause();
    try {
      const programs = [installation.program("gateway"), installation.program("worker")];
      const from = performance.now();
      for (const program of programs) program.kill("SIGTERM");
      await Promise.all(programs.map((program) => program.exit()));
      expect(performance.now() - from).toBeLessThan(STOPPED_MS + 500);
      await until(() => reader.isEnded || reader.isCut);
    } finally {
      redis.resume();
    }
    for (const role of ["gateway", "worker"] as const) await installation.start(role);
    await session.settled();
    expect(await session.lastWords()).toBe("went on");
  });
});
