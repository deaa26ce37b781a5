// What a host needs to drive sessions; made once a worker, passed down.

import type { Logger } from "pino";
import type { Hands, WayOut } from "../hands/hand.ts";
import type { Lease } from "../session-store/due.ts";
import type { FaultPoint } from "../session-store/fault-point.ts";
import type { SessionStore } from "../session-store/store.ts";
import type { MintGrant } from "./grant.ts";
import type { HandsKeys } from "./hands-key.ts";
import type { Harness } from "./harness.ts";
import type { WarmViews } from "./warm-views.ts";

/** Where gateways serve the hands of one session, and the keys for it. */
export interface HandsDoor {
  /** The address of a gateway; undefined while none is known. */
  url(): string | undefined;
  readonly keys: Pick<HandsKeys, "mint">;
}

export interface HostContext {
  readonly store: SessionStore;
  readonly hands: Hands;
  readonly mintGrant: MintGrant;
  /** Where the vault proxy is. */
  readonly vaultUrl: string;
  /** Null: nobody serves it. */
  readonly handsDoor: HandsDoor | null;
  readonly harness: Harness;
  readonly log: Logger;
  readonly fault: FaultPoint;
  /** What this worker still knows of sessions that it drove. */
  readonly views: WarmViews;
}

/** The host's own tie to one lease. */
export interface LeaseContext extends HostContext {
  readonly lease: Lease;
  /** Aborts when the lease is lost or given back. */
  readonly leaseSignal: AbortSignal;
  /** What lets a hand host use these vaults for MCP servers; undefined: there are none. */
  handGrant(vaults: readonly string[]): Promise<string | undefined>;
  /** How the session's sandbox may go out; undefined: not at all. */
  wayOut(): Promise<WayOut | undefined>;
  /** Someone said that a newer fence is about: the lease is lost. */
  loseLease(cause: unknown): void;
}
