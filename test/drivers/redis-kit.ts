// What the tests of the Redis driver share: servers and stores that end with the test, and a log to look into.

import { onTestFinished } from "vitest";
import type { Log } from "../../session-store/drivers/redis/connection.ts";
import { openRedisStore } from "../../session-store/drivers/redis/driver.ts";
import type { SessionId } from "../../session-store/ids.ts";
import { position } from "../../session-store/ids.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { type RedisOptions, startRedis, type TestRedis } from "../support/redis.ts";

export const quiet: Log = { info: () => {}, warn: () => {}, error: () => {} };

export interface Line {
  readonly message: string;
  readonly fields: object;
}

/** A log that can be read. */
export function keptLog(): { readonly log: Log; readonly lines: Line[]; count(message: string): number } {
  const lines: Line[] = [];
  const keep = (fields: object, message: string) => void lines.push({ message, fields });
  return { log: { info: keep, warn: keep, error: keep }, lines, count: (message) => lines.filter((line) => line.message === message).length };
}

export async function redisOfTest(options: RedisOptions = {}): Promise<TestRedis> {
  const redis = await startRedis(options);
  onTestFinished(() => redis.stop());
  return redis;
}

export async function storeOfTest(url: string, log: Log = quiet, leaseMs = 30_000): Promise<SessionStore> {
  const store = await openRedisStore({ url, leaseMs, log });
  onTestFinished(() => store.close());
  return store;
}

/** The texts of a session's messages, from clients and brains, in order, and whether its positions are dense. */
export async function textsOf(store: SessionStore, id: SessionId): Promise<{ texts: string[]; isDense: boolean }> {
  const texts: string[] = [];
  let head = 0;
  let isDense = true;
  for (;;) {
    const page = await store.getEvents(id, { after: position(head) });
    if (page.length === 0) return { texts, isDense };
    for (const stored of page) {
      isDense &&= stored.position === head + 1;
      head = stored.position;
      const event = stored.entry.type === "log.received" ? stored.entry.event : stored.entry;
      if (event.type !== "user.message" && event.type !== "agent.message") continue;
      for (const block of event.content) if (block.type === "text") texts.push(block.text);
    }
  }
}
