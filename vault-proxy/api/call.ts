// One request to the vaults' API, as the resources see it.

import type { Caller } from "../grant.ts";

export interface ApiCall {
  /** Whom the gateway let in. */
  readonly caller: Caller;
  readonly path: string;
  /** The idempotency key. */
  readonly key: string | null;
  /** How often this request was sent before. */
  readonly retries: number;
  /** An id from the path. */
  id(name: "vault" | "credential"): string;
  onAnswered(then: () => void): void;
}
