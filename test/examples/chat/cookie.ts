// The browser's conversation, as a cookie: the session's id, sealed, so that a browser can neither read it nor make up another one's.
// Nothing has to be kept here for it, and a restart of this program loses no conversation.

import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";

const NAME = "chat";
const CIPHER = "aes-256-gcm";
const KEY_BYTES = 32;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const TEXT_CHARS_MAX = 512;
const MAX_AGE_S = 30 * 24 * 3600;
// Scripts can't read it, and no other site can have it sent. Behind TLS, add `Secure`.
const ATTRIBUTES = "Path=/; HttpOnly; SameSite=Strict";

export class Cookies {
  readonly #key: Buffer;

  constructor(secret: string) {
    this.#key = Buffer.from(hkdfSync("sha256", secret, "", "chat example: conversation cookie", KEY_BYTES));
  }

  /** The session that a request's cookie header names; null: none, or not one of ours. */
  read(header: string | undefined): string | null {
    const value = header
      ?.split(";")
      .map((part) => part.trim())
      .find((part) => part.startsWith(`${NAME}=`));
    return value === undefined || value.length > TEXT_CHARS_MAX ? null : this.#open(value.slice(NAME.length + 1));
  }

  /** A set-cookie header. */
  write(sessionId: string): string {
    const iv = randomBytes(IV_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, iv);
    const sealed = Buffer.concat([iv, cipher.update(sessionId, "utf8"), cipher.final(), cipher.getAuthTag()]);
    return `${NAME}=${sealed.toString("base64url")}; Max-Age=${MAX_AGE_S}; ${ATTRIBUTES}`;
  }

  clear(): string {
    return `${NAME}=; Max-Age=0; ${ATTRIBUTES}`;
  }

  #open(value: string): string | null {
    const sealed = Buffer.from(value, "base64url");
    if (sealed.length <= IV_BYTES + TAG_BYTES) return null;
    try {
      const decipher = createDecipheriv(CIPHER, this.#key, sealed.subarray(0, IV_BYTES));
      decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
      return Buffer.concat([decipher.update(sealed.subarray(IV_BYTES, -TAG_BYTES)), decipher.final()]).toString("utf8");
    } catch {
      return null; // Sealed by somebody else, or under another key.
    }
  }
}
