// The program `hands`: the hand host of one machine.

import { join } from "node:path";
import { pino } from "pino";
import { readKeyFile } from "../session-store/key-file.ts";
import { chooseDriver, SandboxUnavailable } from "./choose.ts";
import { ConfigError, readConfig } from "./config.ts";
import { HandHost } from "./host.ts";
import { type Door, openDoor } from "./http.ts";
import { Ledger } from "./ledger.ts";
import type { SandboxDriver } from "./sandbox.ts";
import { type ConfiguredServers, readServers } from "./servers/configured.ts";

const LOCK_WAIT_MS = 10_000;
const LOCK_RETRY_MS = 100;
/** From the signal to the exit, whatever still runs. */
const SHUTDOWN_MS = 4_500;
/** For the answers of the calls that were ended to get out. */
const FLUSH_MS = 500;

const config = configOrExit();
const log = pino({ level: config.logLevel, base: { role: "hands" } });

process.on("uncaughtException", (error) => die(error));
process.on("unhandledRejection", (error) => die(error));

const ledger = await openLedger();
const driver = await driverOrExit();
const servers = { ...config.servers, configured: await configuredServers() };
const host = new HandHost({ ledger, driver, dataDir: config.dataDir, log, idleMs: config.sandboxIdleMs, servers });
await host.start();
const door = await openDoor({ host, handKey: await handKey(), address: config.host, port: config.port, log });

let isStopping = false;
for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => void stop(signal, door));
if (config.hasParentPipe) {
  process.stdin.on("end", () => void stop("parent", door));
  process.stdin.on("error", () => void stop("parent", door));
  process.stdin.resume();
}
log.info({ url: door.url, ...host.identity(), sandbox: driver.name }, "process.listening");

async function stop(reason: string, { close, cut }: Door): Promise<void> {
  if (isStopping) return;
  isStopping = true;
  log.info({ reason }, "process.stopping");
  setTimeout(() => die(new Error("the shutdown took too long")), SHUTDOWN_MS).unref();
  close();
  await host.stop();
  await new Promise((resolve) => setTimeout(resolve, FLUSH_MS));
  await cut();
  process.exit(0);
}

/** The host before this one may still be on its way out; one that stays is the operator's to end. */
async function openLedger(): Promise<Ledger> {
  const deadline = Date.now() + LOCK_WAIT_MS;
  for (;;) {
    try {
      return Ledger.open(config.dataDir, die);
    } catch (error) {
      const isBusy = error instanceof Error && "code" in error && String(error.code).startsWith("SQLITE_BUSY");
      if (!isBusy) throw error;
      if (Date.now() >= deadline) exit(`Another hand host uses ${config.dataDir}. Stop that one, or choose another MANYHANDS_DATA_DIR.`);
      await new Promise((resolve) => setTimeout(resolve, LOCK_RETRY_MS));
    }
  }
}

async function driverOrExit(): Promise<SandboxDriver> {
  const hasContainers = ledger.hands().some((row) => row.driver === "docker");
  try {
    return await chooseDriver({ config, host: ledger.hostId, hasContainers, log });
  } catch (error) {
    if (error instanceof SandboxUnavailable) return exit(error.message);
    throw error;
  }
}

async function configuredServers(): Promise<ConfiguredServers> {
  if (config.serversFile === null) return new Map();
  try {
    return await readServers(config.serversFile);
  } catch (error) {
    return exit(error instanceof Error ? error.message : "the file of MCP servers can't be used");
  }
}

async function handKey(): Promise<string> {
  const file = join(config.keysDir, "hand.key");
  const key = await readKeyFile(file);
  return key.type === "key" ? key.text : exit(`no hand key: ${file} ${key.why}`);
}

function configOrExit() {
  try {
    return readConfig();
  } catch (error) {
    if (error instanceof ConfigError) return exit(error.message);
    throw error;
  }
}

function exit(says: string): never {
  process.stderr.write(`manyhands hands: ${says}\n`);
  process.exit(2);
}

function die(error: unknown): never {
  log.fatal({ err: error }, "process.failed");
  process.exit(1);
}
