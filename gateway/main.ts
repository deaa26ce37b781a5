// The gateway as a program: with REDIS_URL the HTTP door alone; without, the node: door, worker and embedded store in one process.

import { createServer } from "node:http";
import { join } from "node:path";
import { pino } from "pino";
import { openHandsKeys } from "../harnesses/hands-key.ts";
import type { FaultPoint } from "../session-store/fault-point.ts";
import { armFaultPoint, noFault } from "../session-store/fault-point.ts";
import { checkInstallation } from "../session-store/installation.ts";
import { openStore } from "../session-store/open.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { Brain } from "./brain.ts";
import { type Config, EXIT_CONFIGURATION, isLoopback, readConfig, SettingError } from "./config.ts";
import { openHands } from "./hand-host.ts";
import { ensureKeys } from "./keys.ts";
import { HEADER_BYTES_MAX, harden, listen } from "./listen.ts";
import { LogLines } from "./log-lines.ts";
import { sweepNowAndThen } from "./repository-sweep.ts";
import { makeServer } from "./server.ts";
import { endOnBugs, endWhenAsked } from "./shutdown.ts";
import { VaultProxy } from "./vault-proxy.ts";

/** Of the time that a stop may take: for turns to be handed over, and for answers under way to get out. */
const DRAIN_MS = 2_500;
const ANSWERS_MS = 1_000;

const config = orStop(readConfig);
const log = pino({ level: config.logLevel, base: { role: "gateway" } }, new LogLines((text) => void process.stdout.write(text)));
endOnBugs(log);
try {
  await run(config);
} catch (error) {
  explainAndExit(error);
}

async function run({ keysDir, apiKey, redisUrl, dataDir, leaseMs, keepAliveMs, host, port, parentPipe, vaultUrl, ...more }: Config): Promise<void> {
  const keys = await ensureKeys(keysDir, apiKey);
  if (keys.loose.length > 0) log.warn({ dir: keys.dir, files: keys.loose }, "keys.readable_by_others");
  const store = await openStore({ ...(redisUrl === undefined ? {} : { redisUrl }), dataDir, leaseMs, log });
  await checkInstallation(store, keysDir);

  const fault = faultPoint();
  let isReady = false;
  const vaultProxy = vaultUrl === undefined ? null : await VaultProxy.open({ url: vaultUrl, keysDir, log });
  const hands = config.handsUrl === undefined ? null : await openHands({ url: config.handsUrl, keysDir, store, log });
  let ownUrl = "";
  const mcp = {
    publicUrl: more.publicUrl ?? null,
    ownUrl: () => ownUrl,
    isLoopback: isLoopback(host),
    issuer: more.mcpIssuer ?? null,
    isOpen: more.isMcpOpen,
    stateKey: keys.stateKey,
  };
  const relay = { ...more.hands, handsUrl: more.handsUrl ?? null, handKey: keys.handKey };
  const handsKeys = await openHandsKeys(join(keysDir, "grant.private.jwk"));
  const sessionHands = { keys: handsKeys, url: () => mcp.publicUrl ?? ownUrl };
  const door = makeServer({
    vaultProxy,
    hands,
    store,
    relay,
    sessionHands,
    apiKeys: [keys.apiKey],
    log,
    fault,
    ready: () => isReady,
    keepAliveMs,
    handCheckMs: more.hands.checkMs,
    mcp,
  });
  const server = createServer({ maxHeaderSize: HEADER_BYTES_MAX }, door.listener);
  harden(server);
  // Loaded only where it runs: a gateway on Redis has no harness in its process.
  const brain: Brain | null =
    redisUrl === undefined
      ? await (await import("./brain.ts")).startBrain({ config, store, log, fault, handsDoor: { keys: handsKeys, url: () => ownUrl || undefined } })
      : null;

  const endSweep = vaultProxy && sweepNowAndThen(vaultProxy, store, log);
  endWhenAsked({
    log,
    parentPipe,
    stop: async () => {
      isReady = false;
      endSweep?.();
      door.close();
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeIdleConnections();
      const cut = setTimeout(() => server.closeAllConnections(), ANSWERS_MS);
      await Promise.all([brain?.stop(DRAIN_MS), server.listening ? closed : undefined]);
      clearTimeout(cut);
      await vaultProxy?.close();
      await hands?.close();
      await store.close();
    },
  });
  const bound = await listen(server, host, port);
  ownUrl = `http://${host.includes(":") ? `[${host}]` : host}:${bound}`;
  isReady = true;
  log.info({ url: ownUrl }, "process.listening");
}

function faultPoint(): FaultPoint {
  if (config.faultPoint === undefined) return noFault;
  return armFaultPoint(config.faultPoint, (name) => log.info({ point: name, pid: process.pid }, "fault.reached"));
}

function orStop<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof SettingError)) throw error;
    return refuseToStart(error.message);
  }
}

/** What the operator can put right is said in one line; anything else is a bug, or a store that is not there yet: the launcher tries again. */
function explainAndExit(error: unknown): never {
  if (error instanceof SettingError) return refuseToStart(error.message);
  if (error instanceof Refusal && error.code === "store_unfit") return refuseToStart(error.message);
  log.fatal({ err: error, ...(error instanceof Refusal ? { code: error.code, detail: error.detail } : {}) }, "process.failed");
  process.exit(1);
}

function refuseToStart(says: string): never {
  process.stderr.write(`manyhands gateway: ${says}\n`);
  process.exit(EXIT_CONFIGURATION);
}
