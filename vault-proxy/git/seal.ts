// Seal: tokens in, references out. What the gateway parses of a request has references where the client wrote tokens.
//
//   S1  A reference is its token, encrypted by a key that only vault proxies have, for one workspace: nothing is kept for it, so nothing is left behind
//       by a request that comes to nothing, and every proxy of the installation opens it.
//   S2  The same token of the same workspace has the same reference: a repeated request is recognised as the one that it repeats. The nonce is a keyed
//       hash of the token, so that it never stands for two.
//   S3  A token is sealed where the contract has one: `authorization_token` of the body, and of each of its `resources`. A reference that a client
//       writes there is a token like any other, and is sealed.
//   S4  More resources than a session has are refused before any is sealed: this process answers for all sessions, and sealing takes its time.

import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from "node:crypto";
import { z } from "zod";
import { parseJson } from "../api/check.ts";
import { invalid } from "../api/refusal.ts";
import { OWN_WORKSPACE, type RecordKey, StoreTrouble, type VaultStore } from "../store.ts";
import { REPOSITORIES_MAX } from "./repositories.ts";

const AT: RecordKey = { workspace: OWN_WORKSPACE, kind: "authority", id: "seal" };
const TRIES_MAX = 5;
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const PREFIX = "sealed_";
const TOKEN = /^[\x21-\x7e]{1,1024}$/;
const FIELD = "authorization_token";

const Kept = z.strictObject({ key: z.base64().length(44) });

export class Seals {
  readonly #store: VaultStore;
  #keys: Promise<Keys> | null = null;

  constructor(store: VaultStore) {
    this.#store = store;
  }

  /** The body with references in the place of its tokens. Throws an `ApiRefusal`, or the store's trouble. S3 */
  async body(workspace: string, bytes: Buffer): Promise<string> {
    const body = parseJson(bytes);
    if (typeof body !== "object" || body === null || Array.isArray(body)) return JSON.stringify(body);
    const sealed = await this.#object(workspace, body, "");
    const resources = Object.entries(sealed).find(([name]) => name === "resources")?.[1];
    if (!Array.isArray(resources)) return JSON.stringify(sealed);
    // S4
    if (resources.length > REPOSITORIES_MAX) throw invalid(`resources: at most ${REPOSITORIES_MAX} repositories`);
    const all: unknown[] = [];
    for (const [index, each] of resources.entries()) all.push(await this.#object(workspace, each, `resources.${index}.`));
    return JSON.stringify({ ...sealed, resources: all });
  }

  async seal(workspace: string, token: string): Promise<string> {
    const { nonce: nonceKey, body: bodyKey } = await this.#open();
    const nonce = createHmac("sha256", nonceKey)
      .update(JSON.stringify([workspace, token]))
      .digest()
      .subarray(0, NONCE_BYTES);
    const cipher = createCipheriv("aes-256-gcm", bodyKey, nonce).setAAD(Buffer.from(workspace));
    const sealed = Buffer.concat([cipher.update(token, "utf8"), cipher.final()]);
    return PREFIX + Buffer.concat([nonce, cipher.getAuthTag(), sealed]).toString("base64url");
  }

  /** Null: it is no reference of this workspace. */
  async unseal(workspace: string, reference: string): Promise<string | null> {
    const { body: bodyKey } = await this.#open();
    const bytes = Buffer.from(reference.startsWith(PREFIX) ? reference.slice(PREFIX.length) : "", "base64url");
    if (bytes.length <= NONCE_BYTES + TAG_BYTES) return null;
    const decipher = createDecipheriv("aes-256-gcm", bodyKey, bytes.subarray(0, NONCE_BYTES))
      .setAAD(Buffer.from(workspace))
      .setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    try {
      return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()]).toString("utf8");
    } catch {
      return null; // Its tag does not fit: it was made by nobody here, or for another workspace.
    }
  }

  async #object<T>(workspace: string, given: T, path: string): Promise<T> {
    if (typeof given !== "object" || given === null || !Object.hasOwn(given, FIELD)) return given;
    const token: unknown = Object.entries(given).find(([name]) => name === FIELD)?.[1];
    if (token === null) return given;
    // Whatever else stands there may be a token, too: it does not go back.
    if (typeof token !== "string" || !TOKEN.test(token))
      throw invalid(`${path}${FIELD}: must be 1 to 1024 printable ASCII characters without spaces`);
    return { ...given, [FIELD]: await this.seal(workspace, token) };
  }

  async #open(): Promise<Keys> {
    this.#keys ??= readKeys(this.#store);
    try {
      return await this.#keys;
    } catch (error) {
      this.#keys = null;
      throw error;
    }
  }
}

interface Keys {
  readonly nonce: Buffer;
  readonly body: Buffer;
}

/** The installation's key, made by whichever proxy needs it first. */
async function readKeys(store: VaultStore): Promise<Keys> {
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const found = await store.get(AT);
    if (found !== null) {
      const kept = Kept.safeParse(found.body);
      if (!kept.success) throw new StoreTrouble("unreadable", "the key of seals");
      return keysOf(Buffer.from(kept.data.key, "base64"));
    }
    const key = randomBytes(KEY_BYTES);
    if ((await store.put(AT, { key: key.toString("base64") }, 0)) !== "changed") return keysOf(key);
  }
  throw new StoreTrouble("busy", "the key of seals is changed again and again");
}

function keysOf(key: Buffer): Keys {
  const of = (what: string) => Buffer.from(hkdfSync("sha256", key, "", `manyhands seal ${what}`, KEY_BYTES));
  return { nonce: of("nonce"), body: of("body") };
}
