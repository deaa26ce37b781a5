// Opens the store that this node is set up for: Redis where there is a URL, else the embedded one in the data folder.

import { join } from "node:path";
import type { Logger } from "pino";
import { openEmbeddedStore } from "./drivers/embedded/driver.ts";
import { Refusal } from "./refusal.ts";
import type { SessionStore } from "./store.ts";

export interface StoreOptions {
  readonly redisUrl?: string;
  readonly dataDir: string;
  readonly leaseMs: number;
  readonly log: Logger;
}

/** Refuses (`store_unfit`) when the store can't be used by this node. */
export async function openStore({ redisUrl, dataDir, leaseMs, log }: StoreOptions): Promise<SessionStore> {
  if (redisUrl !== undefined) throw new Refusal("store_unfit", "This build has no Redis driver; leave the Redis URL out to use the embedded store.");
  const store = await openEmbeddedStore({ dir: join(dataDir, "session-store"), leaseMs });
  log.info({ driver: "embedded" }, "store.opened");
  return store;
}
