// What this installation signs with on the way out of hands: certificates for hosts that a credential is for, and placeholders for credentials.
//
//   A1  It is made once, by whichever proxy needs it first, and kept sealed beside the vaults: the key never leaves the vault proxies. Hands get the
//       certificate alone.
//   A2  A placeholder is a keyed hash of session, vault and credential: the same at every proxy and after every restart, nobody else's to guess, and
//       another one in every other session.

import { createHmac, createPrivateKey, generateKeyPairSync, type KeyObject, randomBytes, X509Certificate } from "node:crypto";
import { createSecureContext, type SecureContext } from "node:tls";
import { z } from "zod";
import { OWN_WORKSPACE, type RecordKey, type VaultStore } from "../store.ts";
import { authorityCertificate, hostCertificate } from "./certificate.ts";

const AT: RecordKey = { workspace: OWN_WORKSPACE, kind: "authority", id: "egress" };
const NAME = "manyhands egress authority";
const AUTHORITY_DAYS = 3_650;
/** It is replaced when less is left: longer than any container lives. */
const RENEWED_DAYS = 90;
const HOST_DAYS = 30;
const CONTEXT_MS = 86_400_000;
const CONTEXTS_MAX = 500;
const TRIES_MAX = 5;
const DAY_MS = 86_400_000;

export const PLACEHOLDER_PREFIX = "mhenv_";
const PLACEHOLDER_HEX = 32;
export const PLACEHOLDER_LENGTH = PLACEHOLDER_PREFIX.length + PLACEHOLDER_HEX;

const Kept = z.strictObject({ certificate: z.string(), key: z.string(), placeholder: z.string() });

export class Authority {
  /** PEM. */
  readonly certificate: string;
  readonly #key: KeyObject;
  readonly #placeholderKey: Buffer;
  /** One for all hosts: it is never kept. */
  readonly #hostKey: KeyObject = newKey();
  readonly #contexts = new Map<string, { readonly context: SecureContext; readonly until: number }>();

  private constructor(kept: z.infer<typeof Kept>) {
    this.certificate = kept.certificate;
    this.#key = createPrivateKey(kept.key);
    this.#placeholderKey = Buffer.from(kept.placeholder, "base64");
  }

  /** Throws the store's trouble. A1 */
  static async open(store: VaultStore): Promise<Authority> {
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const found = await store.get(AT);
      const kept = found === null ? null : Kept.parse(found.body);
      if (kept !== null && Date.parse(new X509Certificate(kept.certificate).validTo) > Date.now() + RENEWED_DAYS * DAY_MS) return new Authority(kept);
      const fresh = made(kept?.placeholder);
      if ((await store.put(AT, fresh, found?.revision ?? 0)) !== "changed") return new Authority(fresh);
    }
    throw new Error("the egress authority is changed again and again");
  }

  /** A2 */
  placeholderOf(session: string, vault: string, credential: string): string {
    const mac = createHmac("sha256", this.#placeholderKey)
      .update(JSON.stringify([session, vault, credential]))
      .digest("hex");
    return PLACEHOLDER_PREFIX + mac.slice(0, PLACEHOLDER_HEX);
  }

  contextOf(host: string): SecureContext {
    const known = this.#contexts.get(host);
    if (known !== undefined && known.until > Date.now()) return known.context;
    const issuer = { name: NAME, key: this.#key };
    const cert = hostCertificate(issuer, host, this.#hostKey, HOST_DAYS) + this.certificate;
    const context = createSecureContext({ key: this.#hostKey.export({ type: "pkcs8", format: "pem" }), cert });
    this.#contexts.delete(host);
    this.#contexts.set(host, { context, until: Date.now() + CONTEXT_MS });
    const [oldest] = this.#contexts.keys();
    if (this.#contexts.size > CONTEXTS_MAX && oldest !== undefined) this.#contexts.delete(oldest);
    return context;
  }
}

function made(placeholder = randomBytes(32).toString("base64")): z.infer<typeof Kept> {
  const key = newKey();
  return {
    certificate: authorityCertificate({ name: NAME, key }, AUTHORITY_DAYS),
    key: key.export({ type: "pkcs8", format: "pem" }).toString(),
    placeholder,
  };
}

const newKey = (): KeyObject => generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
