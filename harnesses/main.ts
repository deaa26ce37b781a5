// The program `worker`: takes due sessions from the store and drives them.

import { hostname } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { makeHands } from "../hands/client.ts";
import { HandHosts } from "../hands/directory.ts";
import { armFaultPoint, noFault } from "../session-store/fault-point.ts";
import { checkInstallation } from "../session-store/installation.ts";
import { readKeyFile } from "../session-store/key-file.ts";
import { openStore } from "../session-store/open.ts";
import { Refusal } from "../session-store/refusal.ts";
import { type Config, readConfig, SettingError } from "./config.ts";
import { grantMinter } from "./grant.ts";
import { openHandsKeys } from "./hands-key.ts";
import { loadHarness } from "./registry.ts";
import { startWorker } from "./worker.ts";

const EXIT_CONFIGURATION = 2;
/** For the hand-over of what runs; the rest of the five seconds is for closing. */
const DRAIN_MS = 3_500;
const SHUTDOWN_MS = 4_800;

const config = configOrExit();
const log = pino({ level: config.logLevel, base: { role: "worker" } });

process.on("uncaughtException", (error) => die(error));
process.on("unhandledRejection", (error) => die(error));

await run(config).catch((error: unknown) => {
  if (error instanceof Refusal && error.code === "store_unfit") exit(error.message);
  die(error);
});

async function run({ redisUrl, dataDir, keysDir, leaseMs, vaultUrl, handsUrl, sessionsMax, faultPoint, gatewayUrl }: Config): Promise<void> {
  const handKey = await keyOrExit("hand.key");
  await keyOrExit("grant.private.jwk");
  const store = await openStore({ redisUrl, dataDir, leaseMs, log });
  await checkInstallation(store, keysDir);
  const hosts = new HandHosts({ store, url: handsUrl, log });
  const hands = makeHands({ resolve: (id) => hosts.resolve(id), local: { url: handsUrl }, handKey, log });
  const fault =
    faultPoint === undefined ? noFault : armFaultPoint(faultPoint, (name) => log.info({ point: name, pid: process.pid }, "fault.reached"));
  const mintGrant = await grantMinter(join(keysDir, "grant.private.jwk"));
  const handsDoor = { keys: await openHandsKeys(join(keysDir, "grant.private.jwk")), url: () => gatewayUrl };
  const worker = await startWorker({ store, hands, mintGrant, vaultUrl, harness: await loadHarness(), log, sessionsMax, fault, handsDoor });
  hosts.start(hands);

  endWhenAsked(async () => {
    await worker.drain(DRAIN_MS);
    await hosts.stop();
    await hands.close();
    await store.close();
  });
  log.info({ url: `worker://${hostname()}/${process.pid}`, sessionsMax }, "process.listening");
}

/** Exits with 0 when all is given back; with 1 when that took too long. */
function endWhenAsked(stop: () => Promise<void>): void {
  let isStopping = false;
  const end = (reason: string) => {
    if (isStopping) return;
    isStopping = true;
    log.info({ reason }, "process.stopping");
    setTimeout(() => die(new Error("The shutdown took too long.")), SHUTDOWN_MS).unref();
    stop().then(() => process.exit(0), die);
  };
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => end(signal));
  if (!config.hasParentPipe) return;
  process.stdin.on("end", () => end("parent"));
  process.stdin.on("error", () => end("parent"));
  process.stdin.resume();
}

function configOrExit(): Config {
  try {
    return readConfig();
  } catch (error) {
    if (error instanceof SettingError) return exit(error.message);
    throw error;
  }
}

async function keyOrExit(name: string): Promise<string> {
  const file = join(config.keysDir, name);
  const key = await readKeyFile(file);
  return key.type === "key" ? key.text : exit(`The key file ${file} ${key.why}.`);
}

function exit(says: string): never {
  process.stderr.write(`manyhands worker: ${says}\n`);
  process.exit(EXIT_CONFIGURATION);
}

function die(error: unknown): never {
  log.fatal({ err: error }, "process.failed");
  process.exit(1);
}
