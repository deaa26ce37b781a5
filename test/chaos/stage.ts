// Sets the stage for zombies: an installation on Redis behind a relay, a client, and a store that looks from outside. Everything goes with dispose.

import { pino } from "pino";
import { openStore } from "../../session-store/open.ts";
import { startModel } from "../support/model/server.ts";
import { Api } from "./api.ts";
import { type HandRelay, startHandRelay } from "./hand-relay.ts";
import { Installation } from "./installation.ts";
import type { Chance } from "./seed.ts";
import type { Stage } from "./zombie.ts";

const LEASE_MS = 1_000;

export interface SetStage extends Stage {
  dispose(): Promise<void>;
}

export async function setStage(options: { readonly work: string; readonly chance: Chance; readonly dist?: string }): Promise<SetStage> {
  const model = await startModel({ port: 0 });
  const relays: HandRelay[] = [];
  const installation = await Installation.make({
    store: "redis",
    leaseMs: LEASE_MS,
    modelUrl: model.url,
    work: options.work,
    ...(options.dist === undefined ? {} : { dist: options.dist }),
    handsUrlFor: async (url) => {
      const relay = await startHandRelay(url);
      relays.push(relay);
      return relay.url;
    },
  });
  const [relay] = relays;
  if (!relay) throw new Error("the relay was not asked for");
  await installation.startMissing();
  const log = pino({ level: "silent" });
  const store = await openStore({ redisUrl: installation.redisUrl, dataDir: installation.dataDir, leaseMs: LEASE_MS, log });
  return {
    installation,
    relay,
    store,
    chance: options.chance,
    api: new Api(installation.url, installation.apiKey),
    dispose: async () => {
      await store.close();
      await installation[Symbol.asyncDispose]();
      await relay.close();
      await model.close();
    },
  };
}
