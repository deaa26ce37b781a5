// The vault proxy as a program: config, wiring, signals. It holds the credentials and shares its process with nothing.

import { join } from "node:path";
import { pino } from "pino";
import { Audit } from "./audit.ts";
import { type Config, readConfig, takeModelKey } from "./config.ts";
import { FileVault } from "./drivers/file/driver.ts";
import { VaultSettingError } from "./drivers/file/keyring.ts";
import { ServerVault } from "./drivers/server/driver.ts";
import { Way } from "./egress/way.ts";
import { GitHosts } from "./git/hosts.ts";
import { fixedKey, keyFile, type ModelKeys } from "./model-key.ts";
import { type Models, ownProvider, plainModels, readModels } from "./models/providers.ts";
import { Spend } from "./models/spend.ts";
import { Reach } from "./reach.ts";
import { type Serving, serve } from "./serve.ts";
import type { VaultStore } from "./store.ts";

/** How long a start waits for its port to become free. */
const PORT_WAIT_MS = 10_000;
const PORT_RETRY_MS = 200;
const CLOSE_MS_MAX = 5_000;

// Taken first: whatever is wrong with the rest, the key is out of the environment.
const modelKey = takeModelKey();
const config = configured();
const log = pino({ level: config.logLevel, base: { role: "vault-proxy" } });

process.on("uncaughtException", (error) => {
  log.fatal({ error: error.name, code: "code" in error ? error.code : undefined, stack: error.stack }, "process.failed");
  process.exit(1);
});

const vaults = await openVaults();
const audit = await Audit.open(join(config.vaultFolder, "audit"), log);
const spend = new Spend(config.vaultFolder);
const serving = await start();
log.info({ url: serving.url }, "process.listening");

let isClosing = false;
for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => void close(signal));
if (config.isParentPiped) {
  process.stdin.on("end", () => void close("parent gone"));
  process.stdin.on("error", () => void close("parent gone"));
  process.stdin.resume();
}

function configured(): Config {
  try {
    return readConfig();
  } catch (error) {
    return refuseToStart(error instanceof Error ? error.message : String(error));
  }
}

function refuseToStart(says: string): never {
  process.stderr.write(`manyhands vault-proxy: ${says}\n`);
  process.exit(2);
}

async function openVaults(): Promise<VaultStore> {
  if (config.server !== null) return new ServerVault(config.server, log);
  try {
    return await FileVault.open({
      folder: config.vaultFolder,
      keys: config.vaultKey,
      onRotated: (records, failed) =>
        failed === null
          ? log.info({ records }, "vault.rotated")
          : log.error({ reason: failed.reason, detail: failed.detail }, "vault.rotation_failed"),
    });
  } catch (error) {
    if (error instanceof VaultSettingError) return refuseToStart(error.message);
    throw error;
  }
}

async function start(): Promise<Serving> {
  const models = modelsOf();
  if (models.all.every((provider) => provider.keys.current() === null)) log.warn({}, "model_key.missing");
  const isLoopback = ["127.0.0.1", "localhost", "[::1]"].includes(config.modelUrl.hostname);
  if (config.modelUrl.protocol === "http:" && !isLoopback) log.warn({}, "model_url.unencrypted");
  const deadline = performance.now() + PORT_WAIT_MS;
  for (let attempt = 0; ; attempt++) {
    try {
      return await serve({
        ...config,
        models,
        spend,
        vaults,
        audit,
        reach: new Reach(config.internalHosts),
        egressWay: new Way(new Reach(config.egressInternalHosts)),
        gitHosts: new GitHosts(config.gitOrigins),
        log,
      });
    } catch (error) {
      const isTaken = error instanceof Error && "code" in error && error.code === "EADDRINUSE";
      if (!isTaken || performance.now() > deadline) {
        log.fatal({ code: error instanceof Error && "code" in error ? error.code : undefined, port: config.port }, "process.failed");
        process.exit(1);
      }
      if (attempt === 0) log.warn({ port: config.port, waitMs: PORT_WAIT_MS }, "port.taken");
      await new Promise((resolve) => setTimeout(resolve, PORT_RETRY_MS));
    }
  }
}

function modelsOf(): Models {
  const own = ownProvider(config.modelUrl, keys());
  if (config.modelsFile === null) return plainModels(own);
  try {
    return readModels(config.modelsFile, own, (file, reason) => log.warn({ file, reason }, "model_key.doubtful"));
  } catch (error) {
    return refuseToStart(error instanceof Error ? error.message : String(error));
  }
}

function keys(): ModelKeys {
  if (config.modelKeyFile === null) return fixedKey(modelKey);
  return keyFile(config.modelKeyFile, (reason) => log.warn({ file: config.modelKeyFile, reason }, "model_key.doubtful"));
}

async function close(reason: string): Promise<void> {
  if (isClosing) return;
  isClosing = true;
  log.info({ reason }, "process.stopping");
  setTimeout(() => process.exit(0), CLOSE_MS_MAX).unref();
  await serving.close();
  await vaults.close();
  await audit.close();
  spend.close();
  process.exit(0);
}
