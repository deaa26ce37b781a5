// The Redis driver against the contract, on a real redis-server.

import { afterAll, beforeAll, describe, test } from "vitest";
import { openRedisStore } from "../../session-store/drivers/redis/driver.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { redisMissing, startRedis, type TestRedis } from "../support/redis.ts";
import { describeStore } from "./session-store.suite.ts";

const missing = redisMissing();
const log = { info: () => {}, warn: () => {}, error: () => {} };

describe.skipIf(missing !== null)("Redis", () => {
  let redis: TestRedis;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => redis.stop());

  describeStore("Redis", async ({ leaseMs }) => {
    await redis.command("FLUSHALL");
    const stores: SessionStore[] = [];
    const open = async (): Promise<SessionStore> => {
      const store = await openRedisStore({ url: redis.url, leaseMs, log });
      stores.push(store);
      return store;
    };
    const store = await open();
    return {
      store,
      peer: await open(),
      reopen: async () => {
        await store.close();
        return await open();
      },
      close: async () => {
        await Promise.all(stores.map((opened) => opened.close()));
      },
    };
  });
});

test.runIf(missing !== null)("redis-server is there", () => {
  throw new Error(missing ?? "");
});
