// A client that resumes from the last event it saw gets every later one exactly once, in the order of the log, whatever was cut, by whichever way it
// resumes, and on whichever gateway. A gateway that misses its bells catches up by itself.
//
// openclaw/openclaw#7442, omnara-ai/omnara#421

import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { seeded } from "../../chaos/seed.ts";
import { WireEvent } from "../../chaos/wire-checkers.ts";
import { FrameReader } from "../../support/frames.ts";
import { freePort } from "../../support/free-port.ts";
import { proves } from "../../support/proves.ts";
import { needs } from "../../support/real-part.ts";
import { startRedis, type TestRedis } from "../../support/redis.ts";
import { startTcpProxy, type TcpProxy } from "../../support/tcp-proxy.ts";
import { until } from "../../support/until.ts";
import { type CaseSession, Stage } from "./stage.ts";

const EVENTS_MIN = 2_000;
const STEPS = 20;
const CALLS = 50;
const DROPS = 20;
const TURN_MS = 90_000;
const HEALED_MS = 10_000;

/** Two thousand events: calls of a tool that nobody has come with their results at once, and the model takes its time. */
const SCRIPT = Array.from(
  { length: STEPS },
  (_, step) => `wait: 150\nthink: step ${step}\nsay: step ${step}\n${"call nothing: {}\n".repeat(CALLS)}`,
).join("---\n");

needs("redis-server")("with two gateways on one Redis, one of them behind a line that can swallow bells", () => {
  let redis: TestRedis;
  let line: TcpProxy;
  let stage: Stage;
  let gateways: readonly string[];

  beforeAll(async () => {
    redis = await startRedis();
    line = await startTcpProxy(redis.port);
    stage = await Stage.open({ store: "redis", redisUrl: redis.url });
    const port = await freePort();
    await stage.installation.startBeside("gateway", { MANYHANDS_PORT: String(port), REDIS_URL: `redis://127.0.0.1:${line.port}` }).listening();
    gateways = [stage.installation.url, `http://127.0.0.1:${port}`];
  });
  afterAll(async () => {
    await stage.close();
    await line.close();
    await redis.stop();
  });

  const open = (session: CaseSession, gateway: number, headers: Record<string, string> = {}) =>
    FrameReader.open(`${gateways[gateway % 2]}/v1/sessions/${session.id}/events/stream`, { "x-api-key": stage.installation.apiKey, ...headers });

  /** Reads by Last-Event-ID: each time on the other gateway, from the last frame that was taken. What came after it and was not taken is lost with the drop. */
  async function readFrames(session: CaseSession, first: FrameReader, spans: readonly number[]): Promise<readonly WireEvent[]> {
    const seen: WireEvent[] = [];
    let last = "";
    let reader = first;
    for (let at = 0; ; at += 1) {
      let taken = 0;
      const span = spans[at] ?? Number.POSITIVE_INFINITY;
      await until(() => reader.frames.length >= span || reader.frames.some(({ event }) => event === "session.status_idle"), { timeoutMs: TURN_MS });
      for (const { id, data } of reader.frames) {
        if (taken === span) break;
        taken += 1;
        const event = WireEvent.parse(data);
        last = id ?? last;
        if (event.processed_at !== null) seen.push(event);
      }
      reader.close();
      if (seen.at(-1)?.type === "session.status_idle") return seen;
      reader = await open(session, at, { "last-event-id": last });
    }
  }

  /** Reads as a client of the SDK does that has no place to resume from: opens a stream, lists what is there, and drops what it has seen. */
  async function readLists(session: CaseSession, spans: readonly number[]): Promise<readonly string[]> {
    const seen = new Set<string>();
    for (let at = 0; ; at += 1) {
      const client = stage.clientOf(gateways[at % 2]);
      const stream = await client.beta.sessions.events.stream(session.id);
      let left = spans[at] ?? Number.POSITIVE_INFINITY;
      let isOver = false;
      const take = (event: unknown) => {
        const { id, type, processed_at: processedAt } = WireEvent.parse(event);
        if (processedAt !== null) seen.add(id);
        isOver ||= type === "session.status_idle";
      };
      for await (const event of client.beta.sessions.events.list(session.id, { limit: 200 })) take(event);
      if (!isOver)
        for await (const event of stream) {
          take(event);
          left -= 1;
          if (left <= 0 || isOver) break;
        }
      stream.controller.abort();
      if (isOver) return [...seen];
    }
  }

  proves(
    "stream:resumes",
    "two thousand events with twenty drops come once each, in order, by Last-Event-ID and by list and stream",
    async () => {
      const chance = seeded("resumed stream");
      const spans = () => Array.from({ length: DROPS }, () => chance.between(1, (2 * EVENTS_MIN) / DROPS - 20));
      const session = await stage.session();
      const first = await open(session, 0);
      const reading = [readFrames(session, first, spans()), readLists(session, spans())] as const;
      await session.say(SCRIPT);
      const [frames, listed] = await Promise.all(reading);
      const log = await session.settled();
      const ids = log.map(({ id }) => id);
      expect(log.length).toBeGreaterThan(EVENTS_MIN);
      expect(frames).toEqual(log);
      expect(listed).toEqual(ids);
      expect(new Set(ids).size).toBe(ids.length);

      // And afterwards, from any place, on any gateway.
      const whole = await open(session, 1, { "last-event-id": `${session.id.slice("sesn_".length)}.0` });
      await whole.next("session.status_idle");
      whole.close();
      const events = whole.frames.map(({ data }) => WireEvent.parse(data)).filter(({ processed_at: at }) => at !== null);
      expect(events).toEqual(log);
    },
    2 * TURN_MS,
  );

  test("a stream whose gateway misses every bell catches up by itself within ten seconds", async () => {
    const session = await stage.session();
    const deaf = await open(session, 1);
    await until(() => deaf.comments.length > 0);
    line.swallowAnswers((answer) => answer.includes("\r\n$7\r\nmessage\r\n"));
    try {
      await session.say("call nothing: {}\n---\nsay: heard");
      const log = await session.settled();
      const since = performance.now();
      await until(() => deaf.frames.length >= log.length, { timeoutMs: HEALED_MS });
      expect(performance.now() - since).toBeLessThan(HEALED_MS);
      expect(deaf.frames.map(({ data }) => z.looseObject({ id: z.string() }).parse(data).id)).toEqual(log.map(({ id }) => id));
      expect(line.swallowed).toBeGreaterThan(0);
    } finally {
      line.passAll();
      deaf.close();
    }
  });
});
