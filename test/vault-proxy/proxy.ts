// A vault proxy inside the test's process, the keys that sign grants for it, and doors of odd upstreams.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type CryptoKey, exportJWK, generateKeyPair, SignJWT } from "jose";
import { pino } from "pino";
import { fixedKey, type ModelKeys } from "../../vault-proxy/model-key.ts";
import { type Models, ownProvider, plainModels } from "../../vault-proxy/models/providers.ts";
import { serve } from "../../vault-proxy/serve.ts";
import { type EgressParts, openVaultParts, type VaultParts } from "../support/vault-parts.ts";

export const KEY = "sk-ant-api03-canary/0123456789+abcdefghijklmnop_QRSTUVWXYZ-AA";

/** Who signs grants: a pair of keys and the folder in which the public one lies. */
export class Signer {
  readonly folder = mkdtempSync(join(tmpdir(), "manyhands-vault-"));
  readonly file = join(this.folder, "grant.public.jwk");
  #privateKey: CryptoKey | null = null;
  #kid = "";

  /** Makes a pair and puts the public key where the vault proxy looks for it. */
  async rotate(kid: string): Promise<void> {
    const { publicKey, privateKey } = await generateKeyPair("EdDSA", { extractable: true });
    writeFileSync(this.file, JSON.stringify({ ...(await exportJWK(publicKey)), kid, alg: "EdDSA" }));
    this.#privateKey = privateKey;
    this.#kid = kid;
  }

  async sign(claims: Record<string, unknown> = {}): Promise<string> {
    if (this.#privateKey === null) throw new Error("rotate first");
    const now = Math.floor(Date.now() / 1000);
    const all = { iss: "manyhands", aud: "vault-proxy", sub: "sesn_1", fence: 3, vaults: [], use: ["model"], exp: now + 300, ...claims };
    return new SignJWT(all).setProtectedHeader({ alg: "EdDSA", kid: this.#kid }).sign(this.#privateKey);
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export interface TestProxy {
  readonly url: string;
  /** Every line that was logged. */
  readonly log: string[];
  readonly parts: VaultParts;
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
  } = {},
): Promise<TestProxy> {
  const log: string[] = [];
  const { keys = fixedKey(KEY), headersTimeoutMs = 5_000, bodyBytesMax, models, internalHosts, egress } = more;
  const logger = pino({ level: "trace" }, { write: (line: string) => log.push(line) });
  const parts = await openVaultParts(logger, internalHosts, egress);
  const serving = await serve({
    ...parts,
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
  return { url: serving.url, log, parts, close };
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
