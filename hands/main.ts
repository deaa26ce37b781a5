// The program `hands`: the hand host of one machine.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pino } from "pino";
import { ConfigError, readConfig } from "./config.ts";
import { HandHost } from "./host.ts";
import { type Door, openDoor } from "./http.ts";
import { Ledger } from "./ledger.ts";
import { virtualDriver } from "./virtual/sandbox.ts";

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
const host = new HandHost({ ledger, driver: virtualDriver(), dataDir: config.dataDir, log });
await host.start();
const door = await openDoor({ host, handKey: await handKey(), address: config.host, port: config.port, log });

let isStopping = false;
for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => void stop(signal, door));
if (config.hasParentPipe) {
  process.stdin.on("end", () => void stop("parent", door));
  process.stdin.on("error", () => void stop("parent", door));
  process.stdin.resume();
}
log.info({ url: door.url, ...host.identity() }, "process.listening");

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

async function handKey(): Promise<string> {
  const file = join(config.keysDir, "hand.key");
  const key = (await readFile(file, "utf8").catch(() => "")).trim();
  if (key === "") exit(`no hand key: ${file} is missing or empty`);
  return key;
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
