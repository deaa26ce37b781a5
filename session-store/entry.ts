// Every entry that a log can hold, and who may write it.

import type { BrainEvent } from "./events/brain.ts";
import type { GatewayEvent } from "./events/gateway.ts";
import type {
  LogApplied,
  LogAsked,
  LogCalledOff,
  LogCreated,
  LogGrading,
  LogHand,
  LogNote,
  LogOutcome,
  LogReceived,
  LogReply,
  LogRepositories,
  LogResources,
  LogTaken,
  LogTools,
} from "./events/log.ts";
import type { Fence, Position } from "./ids.ts";

/** Written under a lease, by the host that drives a brain. */
export type BrainEntry = BrainEvent | LogApplied | LogOutcome | LogGrading | LogReply | LogHand | LogRepositories | LogTools | LogTaken | LogNote;
/** Written without a lease: a client's event, or the gateway's own. */
export type OutsideEntry = LogReceived | LogAsked | LogCalledOff | LogResources | GatewayEvent;
export type Entry = LogCreated | OutsideEntry | BrainEntry;

/** An entry in its place. `at` is the store's time (ms since 1970), which never goes back along a log; `fence` is 0 for outside entries. */
export interface Stored {
  readonly position: Position;
  readonly at: number;
  readonly fence: Fence;
  readonly entry: Entry;
}
