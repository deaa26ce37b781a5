// Who signs grants in tests.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type CryptoKey, exportJWK, generateKeyPair, SignJWT } from "jose";

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

  /** One whose public key is somewhere already. */
  static of(privateKey: CryptoKey, kid: string): Signer {
    const signer = new Signer();
    signer.remove();
    signer.#privateKey = privateKey;
    signer.#kid = kid;
    return signer;
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
