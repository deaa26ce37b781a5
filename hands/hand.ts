// The hand contract: execute(name, input) → result, provision(resources). Spoken over MCP; client.ts is its client.
//
//   A hand host remembers:
//   M1  A tool use id is executed at most once: again with the same id is awaited or answered, never run again.
//   M2  The highest fence of each hand is kept; a call under an older one is refused before it acts, and a newer one ends what the older began
//       only when its holder cancels or re-asks.
//   M3  A row (tool use id, fence, boot, running) is durable before a tool starts: no row means that it never ran.
//   M4  Running in an earlier boot of the host, or the row is gone: `unknown`. It is said so, never run again by itself.
//   M5  Only `cancel` ends a call. A closed request does not: the death of a worker looks the same, and the next one awaits that very call.

import type { ResultBlock } from "../session-store/events/content.ts";
import type { Fence, SessionId } from "../session-store/ids.ts";

/** In `_meta` of every request to a hand: who asks, under which fence, for which call, of which host. */
export const META = {
  session: "manyhands/session",
  fence: "manyhands/fence",
  toolUseId: "manyhands/tool_use_id",
  rerun: "manyhands/rerun",
  host: "manyhands/host",
} as const;

/** Who asks: the holder of a session's lease. */
export interface Holder {
  readonly session: SessionId;
  readonly fence: Fence;
}

export interface HandRef {
  readonly hand: string;
  /** Id of the hand host that has it. */
  readonly host: string;
}

export interface ToolUse {
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
}

/** What a tool use came to. `unknown`: it may have run, and nobody can tell. `shellRestarted` is told to the model by the result's text. */
export type Outcome =
  | { readonly type: "done"; readonly content: readonly ResultBlock[]; readonly isError: boolean }
  | { readonly type: "failed"; readonly reason: string }
  | { readonly type: "unknown"; readonly reason: string };

/** What the session wants in its hand; empty for now but for the working directory. */
interface Resources {
  readonly environment_id: string;
}

/** A hand host as its clients see it. Refusals: `fenced` (an older fence), `hand_lost` (unreachable for HAND_LOST_MS, or the hand is gone). */
export interface Hands {
  /** Makes the session's hand, or finds the one it has. */
  provision(holder: Holder, resources: Resources, signal: AbortSignal): Promise<HandRef>;
  /** Announces the holder's fence: from the answer on, older ones are refused. */
  announce(holder: Holder, hand: HandRef, signal: AbortSignal): Promise<void>;
  /** Runs a tool once. M1. The signal's abort stops the waiting (the promise rejects with its reason), not the tool: M5. `mayRerun`: unknown → run again. */
  execute(holder: Holder, hand: HandRef, use: ToolUse, mayRerun: boolean, signal: AbortSignal): Promise<Outcome>;
  /** Ends a running call; answers with what it came to. A result that exists wins. */
  cancel(holder: Holder, hand: HandRef, toolUseId: string, signal: AbortSignal): Promise<Outcome>;
  /** Changes the holder; the old one is refused from then on. */
  transfer(holder: Holder, hand: HandRef, to: Holder, signal: AbortSignal): Promise<void>;
  /** Result texts that are in the log now; the host may drop them. Ids stay. */
  settled(holder: Holder, hand: HandRef, toolUseIds: readonly string[], signal: AbortSignal): Promise<void>;
  /** Gives a session's hand back; files and processes go. Absent: nothing happens. */
  release(session: SessionId, host: string, signal: AbortSignal): Promise<void>;
  /** The sessions that a hand host has hands for. */
  instances(host: string, signal: AbortSignal): Promise<readonly { readonly hand: string; readonly session: SessionId }[]>;
}
