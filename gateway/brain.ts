// The worker's part of a node: what the program `worker` does by itself, beside the gateway in one process.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import { makeHands } from "../hands/client.ts";
import { HandHosts } from "../hands/directory.ts";
import { grantMinter } from "../harnesses/grant.ts";
import type { HandsDoor } from "../harnesses/host-context.ts";
import { loadHarness } from "../harnesses/registry.ts";
import { startWorker } from "../harnesses/worker.ts";
import type { FaultPoint } from "../session-store/fault-point.ts";
import type { SessionStore } from "../session-store/store.ts";
import { type Config, SettingError } from "./config.ts";

export interface Brain {
  /** Hands its sessions over, within `graceMs`, and lets go of the hands. */
  stop(graceMs: number): Promise<void>;
}

export interface BrainOptions {
  readonly config: Config;
  readonly store: SessionStore;
  readonly log: Logger;
  readonly fault: FaultPoint;
  readonly handsDoor: HandsDoor;
}

export async function startBrain({ config, store, log, fault, handsDoor }: BrainOptions): Promise<Brain> {
  const { vaultUrl, handsUrl, keysDir, sessionsMax } = config;
  if (vaultUrl === undefined)
    throw new SettingError("MANYHANDS_VAULT_URL is not set: without REDIS_URL the gateway also drives sessions, and needs the vault proxy.");
  if (handsUrl === undefined)
    throw new SettingError("MANYHANDS_HANDS_URL is not set: without REDIS_URL the gateway also drives sessions, and needs a hand host.");
  const hosts = new HandHosts({ store, url: handsUrl, log });
  const handKey = (await readFile(join(keysDir, "hand.key"), "utf8")).trim();
  const hands = makeHands({ resolve: (id) => hosts.resolve(id), local: { url: handsUrl }, handKey, log });
  const mintGrant = await grantMinter(join(keysDir, "grant.private.jwk"));
  const worker = await startWorker({ store, hands, mintGrant, vaultUrl, harness: await loadHarness(), log, sessionsMax, fault, handsDoor });
  hosts.start(hands);
  return {
    async stop(graceMs) {
      await worker.drain(graceMs);
      await hosts.stop();
      await hands.close();
    },
  };
}
