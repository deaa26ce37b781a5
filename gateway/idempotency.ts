// What makes a repeated POST one request: an idempotency key, or the SDK's own retry count (contract §1.2).
//
//   P1  A key makes the ids (a hash of workspace, path, key and index): the same key finds what it made, on every node.
//   P2  The same key with another body is refused (`idempotency_conflict`).
//   P3  A retried create whose first answer never got out gets the first one's id. This gateway remembers it for REMEMBER_MS; a retry that
//       reaches another gateway is a new create. Sends are remembered by the store, for all gateways.

import { createHash } from "node:crypto";
import { mint, mintFrom } from "../session-store/ids.ts";
import { invalid } from "./answer.ts";
import type { Principal } from "./authenticate.ts";

const REMEMBER_MS = 60_000;
const REMEMBERED_MAX = 10_000;
export const KEY_PATTERN = /^[\x21-\x7e]{1,255}$/;

/** Reads the `idempotency-key` header. */
export function readKey(header: string | readonly string[] | undefined): string | null {
  if (header === undefined) return null;
  if (typeof header !== "string" || !KEY_PATTERN.test(header)) throw invalid("idempotency-key: 1 to 255 printable ASCII characters without spaces");
  return header;
}

/** Reads `x-stainless-retry-count`: how often this request was sent before. */
export function readRetries(header: string | readonly string[] | undefined): number {
  return typeof header === "string" && /^\d{1,4}$/.test(header) ? Number(header) : 0;
}

/** A body as text in which the order of keys doesn't matter. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_name, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)))
      : inner,
  );
}

export const digestOf = (...parts: readonly (string | Buffer)[]): string => {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part).update("\n");
  return hash.digest("base64url");
};

/** One create: its id, and whether something may already be there under it. */
export interface Creation {
  readonly id: string;
  readonly digest: string;
  readonly mayExist: boolean;
}

/** What a create's identity is read from. */
export interface CreateRequest {
  readonly principal: Principal;
  readonly path: string;
  readonly key: string | null;
  readonly retries: number;
  readonly body: unknown;
  /** Calls back once the answer got out. */
  onAnswered(then: () => void): void;
}

/** Creates whose answers are not out yet. P3 */
export class Unanswered {
  readonly #ids = new Map<string, { id: string; until: number }>();

  /** The id that this create has: from its key, from its first try, or fresh. P1 P3 */
  identify(prefix: string, request: CreateRequest): Creation {
    const { principal, path, key } = request;
    const digest = digestOf(canonical(request.body));
    if (key !== null) return { id: mintFrom(prefix, principal.workspace, path, key, 0), digest, mayExist: true };
    const name = digestOf(principal.name, path, digest);
    const known = request.retries > 0 ? this.#ids.get(name) : undefined;
    const isKnown = known !== undefined && known.until > Date.now();
    const id = isKnown ? known.id : mint(prefix);
    this.#remember(name, id);
    request.onAnswered(() => {
      if (this.#ids.get(name)?.id === id) this.#ids.delete(name);
    });
    return { id, digest, mayExist: isKnown };
  }

  #remember(name: string, id: string): void {
    this.#ids.delete(name);
    this.#ids.set(name, { id, until: Date.now() + REMEMBER_MS });
    // Insertion order is age: the oldest go first.
    for (const [oldest, { until }] of this.#ids) {
      if (this.#ids.size <= REMEMBERED_MAX && until > Date.now()) break;
      this.#ids.delete(oldest);
    }
  }
}
