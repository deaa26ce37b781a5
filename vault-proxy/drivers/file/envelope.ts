// How a record lies on the disk: sealed by a key of its own, which is sealed by the master key.
//
//   E1  AES-256-GCM, twice. Each write makes a fresh record key, so that no key ever meets two bodies; the master key seals record keys only, and a
//       rotation seals these anew without touching a body.
//   E2  Workspace, kind, id and revision are bound in as additional data: a file under another name, or one whose revision was changed, does not open.
//   E3  What can't be opened is `unreadable`. Why exactly is not told: a reader of our answers learns nothing about a forgery.

import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { z } from "zod";
import { type RecordKey, StoreTrouble } from "../../store.ts";
import type { Keyring } from "./keyring.ts";

const CIPHER = "aes-256-gcm";
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const FORMAT = "manyhands-vault-1";

const Envelope = z.strictObject({
  format: z.literal(FORMAT),
  kid: z.string(),
  revision: z.int().min(1),
  key: z.base64(),
  body: z.base64(),
});
export type Envelope = z.infer<typeof Envelope>;

/** Seals a record's text under the current master key. E1 E2 */
export function seal(keys: Keyring, key: RecordKey, revision: number, text: string): string {
  const recordKey = randomBytes(KEY_BYTES);
  const { kid } = keys.current;
  const envelope: Envelope = {
    format: FORMAT,
    kid,
    revision,
    key: encrypt(keys.current.bytes, recordKey, bound("key", key, revision, kid)).toString("base64"),
    body: encrypt(recordKey, Buffer.from(text, "utf8"), bound("body", key, revision)).toString("base64"),
  };
  recordKey.fill(0);
  return JSON.stringify(envelope);
}

/** Opens a record's text. E2 E3 */
export function unseal(keys: Keyring, key: RecordKey, envelope: Envelope): string {
  const recordKey = openKey(keys, key, envelope);
  try {
    return decrypt(recordKey, envelope.body, bound("body", key, envelope.revision)).toString("utf8");
  } finally {
    recordKey.fill(0);
  }
}

/** The same record under the current master key; its body is as it was. E1 */
export function reseal(keys: Keyring, key: RecordKey, envelope: Envelope): string {
  const recordKey = openKey(keys, key, envelope);
  const { kid, bytes } = keys.current;
  const sealed = encrypt(bytes, recordKey, bound("key", key, envelope.revision, kid)).toString("base64");
  recordKey.fill(0);
  return JSON.stringify({ ...envelope, kid, key: sealed } satisfies Envelope);
}

export function readEnvelope(text: string): Envelope {
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch {
    throw new StoreTrouble("unreadable", "a record's file is not an envelope");
  }
  const envelope = Envelope.safeParse(read);
  if (!envelope.success) throw new StoreTrouble("unreadable", "a record's file is not an envelope");
  return envelope.data;
}

function openKey(keys: Keyring, key: RecordKey, { kid, revision, key: sealed }: Envelope): Buffer {
  const master = keys.find(kid);
  if (master === null) throw new StoreTrouble("unreadable", `a record is sealed by the key ${kid}, which is not here`);
  return decrypt(master, sealed, bound("key", key, revision, kid));
}

function bound(part: "key" | "body", { workspace, kind, id }: RecordKey, revision: number, kid = ""): Buffer {
  return Buffer.from(JSON.stringify([FORMAT, part, workspace, kind, id, revision, kid]), "utf8");
}

function encrypt(key: Buffer, plain: Buffer, additional: Buffer): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(additional);
  const sealed = Buffer.concat([cipher.update(plain), cipher.final()]);
  return Buffer.concat([nonce, sealed, cipher.getAuthTag()]);
}

function decrypt(key: Buffer, base64: string, additional: Buffer): Buffer {
  const bytes = Buffer.from(base64, "base64");
  if (bytes.length < NONCE_BYTES + TAG_BYTES) throw new StoreTrouble("unreadable", "a record's envelope is cut off");
  const nonce = bytes.subarray(0, NONCE_BYTES);
  const cipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(additional);
  cipher.setAuthTag(bytes.subarray(bytes.length - TAG_BYTES));
  try {
    return Buffer.concat([cipher.update(bytes.subarray(NONCE_BYTES, bytes.length - TAG_BYTES)), cipher.final()]);
  } catch {
    throw new StoreTrouble("unreadable", "a record does not open: it was changed, moved, or sealed for another place");
  }
}
