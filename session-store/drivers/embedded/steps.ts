// A step: one call inside the open transaction of its batch. It throws a Refusal to change nothing.

import type { Sql } from "./database.ts";
import type { CallName, Calls } from "./protocol.ts";

/** What a step works with. */
export interface Bench {
  readonly sql: Sql;
  readonly leaseMs: number;
  /** Rings, once the batch is durable: a log has a new head (-1: it is gone). */
  ring(id: string, head: number): void;
  /** Tells, once the batch is durable, that a session may have become due. */
  due(): void;
}

export type Step<Name extends CallName> = (bench: Bench, ask: Calls[Name]["ask"]) => Calls[Name]["answer"];
