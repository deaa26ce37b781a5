// Which servers the driver starts on.

import { expect, test } from "vitest";
import { openRedisStore } from "../../session-store/drivers/redis/driver.ts";
import { needs } from "../support/real-part.ts";
import { keptLog, quiet, redisOfTest, storeOfTest } from "./redis-kit.ts";
import { openSession } from "./suite/kit.ts";

needs("redis-server")("a Redis that is not fit", () => {
  const opening = (url: string) => openRedisStore({ url, leaseMs: 1_000, log: quiet });

  test.each([
    ["evicts, with a limit", ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"], "allkeys-lru"],
    ["would evict, had it a limit", ["--maxmemory-policy", "volatile-ttl"], "volatile-ttl"],
    ["is a cluster", ["--cluster-enabled", "yes"], "cluster mode"],
    ["is a replica", ["--replicaof", "127.0.0.1 1"], "replica"],
    ["wants a password", ["--requirepass", "hunter2"], "credentials"],
  ])("a server that %s is refused, in clear words and at once", async (_, args, says) => {
    const redis = await redisOfTest({ args });
    const from = performance.now();
    await expect(opening(redis.url)).rejects.toMatchObject({ code: "store_unfit", message: expect.stringContaining(says) });
    expect(performance.now() - from).toBeLessThan(2_000);
  });

  test("a store that was made with another number of partitions is refused", async () => {
    const redis = await redisOfTest();
    await redis.command("HSET mh:installation partitions 8");
    await expect(opening(redis.url)).rejects.toMatchObject({ code: "store_unfit", message: expect.stringContaining("8 partitions") });
  });

  test("less durability than always is said, and always is not complained of", async () => {
    const weak = keptLog();
    await storeOfTest((await redisOfTest({ appendfsync: "everysec" })).url, weak.log);
    expect(weak.lines).toEqual([{ message: "durability.weak", fields: { appendonly: "yes", appendfsync: "everysec", wants: "appendfsync always" } }]);
    const strong = keptLog();
    await storeOfTest((await redisOfTest()).url, strong.log);
    expect(strong.lines).toEqual([]);
  });

  test("a password in the url opens the store and is in no log line", async () => {
    const redis = await redisOfTest({ args: ["--requirepass", "hunter2"] });
    const { log, lines } = keptLog();
    const store = await storeOfTest(redis.url.replace("://", "://:hunter2@"), log);
    await openSession(store);
    expect(JSON.stringify(lines)).not.toContain("hunter2");
    const wrong = await opening(redis.url.replace("://", "://:hunter3@")).catch((error: unknown) => error);
    expect(wrong).toMatchObject({ code: "store_unfit" });
    expect(String(wrong)).not.toContain("hunter3");
  });
});
