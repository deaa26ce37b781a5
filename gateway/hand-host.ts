// The gateway's own line to hand hosts: for what it asks itself, beside the workers.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import { type HandsClient, makeHands } from "../hands/client.ts";
import { HandHosts } from "../hands/directory.ts";
import type { SessionStore } from "../session-store/store.ts";

/** A request of a client waits for an answer: a hand host that is away is said to be, sooner than to a worker. */
const HAND_LOST_MS = 3_000;

export async function openHands(options: { url: string; keysDir: string; store: SessionStore; log: Logger }): Promise<HandsClient> {
  const { url, keysDir, store, log } = options;
  const hosts = new HandHosts({ store, url, log });
  const handKey = (await readFile(join(keysDir, "hand.key"), "utf8")).trim();
  return makeHands({ resolve: (id) => hosts.resolve(id), local: { url }, handKey, log, handLostMs: HAND_LOST_MS });
}
