// Opens the store that this node is set up for: Redis where there is a URL, else the embedded one in the data folder.

import { join } from "node:path";
import type { Logger } from "pino";
import { openEmbeddedStore } from "./drivers/embedded/driver.ts";
import { openRedisStore } from "./drivers/redis/driver.ts";
import type { SessionStore } from "./store.ts";

export interface StoreOptions {
  readonly redisUrl?: string;
  readonly dataDir: string;
  readonly leaseMs: number;
  readonly log: Logger;
}

/** Refuses (`store_unfit`) when the store can't be used by this node. */
export async function openStore({ redisUrl, dataDir, leaseMs, log }: StoreOptions): Promise<SessionStore> {
  const store =
    redisUrl === undefined
      ? await openEmbeddedStore({ dir: join(dataDir, "session-store"), leaseMs })
      : await openRedisStore({ url: redisUrl, leaseMs, log });
  log.info({ driver: redisUrl === undefined ? "embedded" : "redis" }, "store.opened");
  return store;
}
