// The Redis driver against the contract, on a real redis-server.

import { afterAll, beforeAll } from "vitest";
import { openRedisStore } from "../../session-store/drivers/redis/driver.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { needs } from "../support/real-part.ts";
import { startRedis, type TestRedis } from "../support/redis.ts";
import { quiet } from "./redis-kit.ts";
import { describeStore } from "./session-store.suite.ts";

needs("redis-server")("on Redis", () => {
  let redis: TestRedis;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => redis.stop());

  describeStore("Redis", async ({ leaseMs }) => {
    await redis.command("FLUSHALL");
    const stores: SessionStore[] = [];
    const open = async (): Promise<SessionStore> => {
      const store = await openRedisStore({ url: redis.url, leaseMs, log: quiet });
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
