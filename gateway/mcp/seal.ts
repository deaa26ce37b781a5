// The state of a question, carried by the client between two runs of one request (`requestState`): sealed, since a client may change or keep it.
//
//   G1  Only what this installation sealed opens, on any of its nodes, and a client can't read it.
//   G2  It opens only for the caller, the method and the very parameters that it was made for, until it expires.
//   G3  It opens once: the first node that takes it up writes that down before it acts on it.

import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { z } from "zod";
import type { Documents } from "../../session-store/documents.ts";
import { Refusal } from "../../session-store/refusal.ts";
import { canonical, digestOf } from "../idempotency.ts";
import { WORKSPACE } from "./kept.ts";
import { INVALID_PARAMS, RpcError } from "./rpc.ts";

export const STATE_KIND = "mcp_state";
export const STATE_LIFE_MS = 600_000;
const STATE_CHARS_MAX = 65_536;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

const Sealed = z.strictObject({ state: z.unknown(), digest: z.string(), until: z.number(), nonce: z.string() });

/** What a state is bound to. G2 */
export interface Binding {
  readonly caller: string;
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
}

export class Seal {
  readonly #key: Uint8Array;
  readonly #documents: Pick<Documents, "put">;

  /** `key`: 32 bytes that all nodes of an installation share. */
  constructor(key: Uint8Array, documents: Pick<Documents, "put">) {
    this.#key = key;
    this.#documents = documents;
  }

  close(state: unknown, binding: Binding, now = Date.now()): string {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv("aes-256-gcm", this.#key, nonce);
    const body = { state: state ?? null, digest: digest(binding), until: now + STATE_LIFE_MS, nonce: randomBytes(16).toString("hex") };
    const hidden = Buffer.concat([cipher.update(JSON.stringify(body), "utf8"), cipher.final()]);
    return Buffer.concat([nonce, cipher.getAuthTag(), hidden]).toString("base64url");
  }

  /** G1 G2 G3 */
  async open(text: string, binding: Binding, now = Date.now()): Promise<unknown> {
    const found = this.#decrypt(text);
    if (!found || found.until < now || found.digest !== digest(binding)) throw refused();
    try {
      await this.#documents.put(WORKSPACE, [{ kind: STATE_KIND, id: found.nonce, body: {}, replaces: 0 }]);
    } catch (error) {
      if (error instanceof Refusal && error.code === "document_changed") throw refused();
      throw error;
    }
    return found.state;
  }

  #decrypt(text: string): z.infer<typeof Sealed> | null {
    // Strict base64url: another spelling of the same bytes is not what we gave out.
    if (text.length > STATE_CHARS_MAX || Buffer.from(text, "base64url").toString("base64url") !== text) return null;
    const bytes = Buffer.from(text, "base64url");
    if (bytes.length <= NONCE_BYTES + TAG_BYTES) return null;
    const decipher = createDecipheriv("aes-256-gcm", this.#key, bytes.subarray(0, NONCE_BYTES));
    decipher.setAuthTag(bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    try {
      const open = Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES)), decipher.final()]);
      return Sealed.parse(JSON.parse(open.toString("utf8")));
    } catch {
      // Not ours: the cipher says no more, and neither do we.
      return null;
    }
  }
}

const refused = () => new RpcError(INVALID_PARAMS, "Invalid or expired requestState", { data: { reason: "invalid_request_state" } });

/** The request without what differs between its runs. G2 */
function digest({ caller, method, params }: Binding): string {
  const { _meta, inputResponses, requestState, ...same } = params;
  return digestOf(caller, method, canonical(same));
}
