// A vault proxy inside the test's process, the keys that sign grants for it, and doors of odd upstreams.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { pino } from "pino";
import { fixedKey, type ModelKeys } from "../../vault-proxy/model-key.ts";
import { type Models, ownProvider, plainModels } from "../../vault-proxy/models/providers.ts";
import { serve } from "../../vault-proxy/serve.ts";
import type { VaultStore } from "../../vault-proxy/store.ts";
import { type EgressParts, openVaultParts, type VaultParts } from "../support/vault-parts.ts";
import { Signer } from "./signer.ts";

export { Signer };

export const KEY = "sk-ant-api03-canary/0123456789+abcdefghijklmnop_QRSTUVWXYZ-AA";

export interface TestProxy {
  readonly url: string;
  /** Every line that was logged. */
  readonly log: string[];
  readonly parts: VaultParts;
  /** Ends it and starts the next one on the same folder. */
  again(): Promise<TestProxy>;
  close(): Promise<void>;
}

export async function startProxy(
  signer: Signer,
  modelUrl: string,
  more: {
    keys?: ModelKeys;
    headersTimeoutMs?: number;
    bodyBytesMax?: number;
    models?: Models;
    internalHosts?: readonly string[];
    egress?: EgressParts;
    gitOrigins?: readonly string[];
    folder?: string;
    /** One that it shares with others; it is not closed with the proxy. */
    store?: VaultStore;
    lookMs?: number;
  } = {},
): Promise<TestProxy> {
  const log: string[] = [];
  const { keys = fixedKey(KEY), headersTimeoutMs = 5_000, bodyBytesMax, models, internalHosts, egress, gitOrigins, store, lookMs } = more;
  const logger = pino({ level: "trace" }, { write: (line: string) => log.push(line) });
  const folder = more.folder === undefined ? {} : { folder: more.folder };
  const parts = await openVaultParts(logger, {
    internalHosts: internalHosts ?? [],
    gitOrigins: gitOrigins ?? [],
    ...(egress && { egress }),
    ...folder,
  });
  const serving = await serve({
    ...parts,
    ...(store === undefined ? {} : { vaults: store }),
    ...(lookMs === undefined ? {} : { lookMs }),
    host: "127.0.0.1",
    port: 0,
    grantKeyFile: signer.file,
    models: models ?? plainModels(ownProvider(new URL(modelUrl), keys)),
    headersTimeoutMs,
    idleTimeoutMs: 5_000,
    ...(bodyBytesMax === undefined ? {} : { bodyBytesMax }),
    log: logger,
  });
  const close = async () => {
    await serving.close();
    await parts.close();
  };
  const again = async () => {
    await serving.close();
    await parts.close(true);
    return startProxy(signer, modelUrl, { ...more, folder: parts.folder });
  };
  return { url: serving.url, log, parts, again, close };
}

/** An upstream of the test's own making. */
export async function startUpstream(handle: (req: IncomingMessage, res: ServerResponse) => void): Promise<{ url: string; close(): Promise<void> }> {
  const server = createServer(handle);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no address");
  return {
    url: `http://127.0.0.1:${address.port}`,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}
