// The hand contract: execute(name, input) → result, provision(resources). Spoken over MCP; client.ts is its client.
//
//   A hand host remembers:
//   M1  A tool use id is executed at most once: again with the same id is awaited or answered, never run again.
//   M2  The highest fence of each hand is kept; a call under an older one is refused before it acts, and a newer one ends what the older began
//       only when its holder cancels or re-asks.
//   M3  A row (tool use id, fence, boot, running) is durable before a tool starts: no row means that it never ran.
//   M4  Running in an earlier boot of the host, or the row is gone: `unknown`. It is said so, never run again by itself.
//   M5  Only `cancel` ends a call. A closed request does not: the death of a worker looks the same, and the next one awaits that very call.

import type { z } from "zod";
import type { ResultBlock } from "../session-store/events/content.ts";
import type { Fence, SessionId } from "../session-store/ids.ts";
import type { Prepared as PreparedSchema, RepositoryWanted as WantedSchema } from "./repository.ts";

/** In `_meta` of every request to a hand: who asks, under which fence, for which call, of which host. */
export const META = {
  session: "manyhands/session",
  fence: "manyhands/fence",
  toolUseId: "manyhands/tool_use_id",
  rerun: "manyhands/rerun",
  pin: "manyhands/pin",
  host: "manyhands/host",
  wayOut: "manyhands/way_out",
  grant: "manyhands/grant",
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

/** How a session's sandbox may go out: a grant for the vault proxy's egress, and the policy whose hash the grant names. */
export interface WayOut {
  readonly grant: string;
  /** JSON; only the vault proxy reads it. */
  readonly network: string;
}

export interface ToolUse {
  readonly id: string;
  readonly name: string;
  readonly input: unknown;
  /** For a sandbox whose environment lets it out. */
  readonly wayOut?: WayOut | undefined;
  /** Of a session that has vaults, for a server: a grant for them. Kept in memory, the newest of a session's. */
  readonly grant?: string | undefined;
  /** Of an MCP server's tool: the hash of the definition that was approved. The server has another one now: it is not run. */
  readonly pin?: string;
}

/** What a tool use came to. `unknown`: it may have run, and nobody can tell. `shellRestarted` is told to the model by the result's text. */
export type Outcome =
  | { readonly type: "done"; readonly content: readonly ResultBlock[]; readonly isError: boolean }
  | { readonly type: "failed"; readonly reason: string }
  | { readonly type: "unknown"; readonly reason: string };

/**
 * An MCP server that a session wants as a hand. `configured`: one that the operator named at the hand host; its command or address is known there
 * alone, and nobody who asks can bring a command.
 */
export interface ServerWanted {
  /** As the agent calls it. */
  readonly name: string;
  readonly transport:
    | { readonly type: "url"; readonly url: string; readonly isSse?: boolean | undefined }
    | { readonly type: "configured"; readonly server: string };
  /** Whoever asks for the same server under the same word shares one connection; absent: it is the session's own. */
  readonly shared?: string | undefined;
  /** Instead of the hand host's own limits. */
  readonly times?: Partial<Record<"connectMs" | "idleMs" | "totalMs", number | undefined>> | undefined;
}

/** What a session wants: its sandbox, or a connection of its own to an MCP server. */
export type Wanted = { readonly environment_id: string } | { readonly server: ServerWanted };

/** A tool of an MCP server, its schema in a form that a model's API takes. */
export interface ServerTool {
  /** The server's own. */
  readonly name: string;
  readonly description: string;
  readonly input_schema: Readonly<Record<string, unknown>>;
  /** Claims of the server; nothing is trusted for them. */
  readonly annotations?: Readonly<Record<string, unknown>> | undefined;
  /** Of the definition as the server gave it. */
  readonly hash: string;
}

/** What was left out of a server's list or changed in it, and why. */
export interface ServerNote {
  readonly tool: string;
  readonly keyword: string;
  readonly what: "left_out" | "changed";
  readonly says: string;
}

/** What a hand host knows of a server's tools. */
export type ServerTools =
  | {
      readonly type: "ready";
      /** Of the whole list. */
      readonly hash: string;
      readonly tools: readonly ServerTool[];
      readonly notes: readonly ServerNote[];
      /** Who it says that it is, and the revision of the protocol that it was spoken to in. */
      readonly server?: { readonly name: string; readonly version: string } | undefined;
      readonly protocolVersion?: string | undefined;
    }
  /** The list that the asker knows by its hash. */
  | { readonly type: "same" }
  | { readonly type: "connecting" }
  | { readonly type: "failed"; readonly cause: "connection" | "authentication"; readonly message: string };

export interface ListAsk {
  /** Hash of the list that the asker has. */
  readonly known: string | null;
  /** How long (ms) the answer may wait for a list; past it `connecting`. */
  readonly waitMs: number;
  /** Connect again now if the last try failed, and read the list again. */
  readonly isFresh: boolean;
  /** As in a `ToolUse`. */
  readonly grant?: string | undefined;
}

/** A repository that a sandbox is to have. What opens it is the vault proxy's. */
export type RepositoryWanted = Readonly<z.infer<typeof WantedSchema>>;
/** What became of it. */
export type Prepared = Readonly<z.infer<typeof PreparedSchema>>;

export interface PrepareAsk {
  readonly repositories: readonly RepositoryWanted[];
  /** As in a `ToolUse`. */
  readonly wayOut: WayOut | undefined;
}

/** A hand host as its clients see it. Refusals: `fenced` (an older fence), `hand_lost` (unreachable for HAND_LOST_MS, or the hand is gone). */
export interface Hands {
  /** Makes the session's hand of this kind, or finds the one it has. */
  provision(holder: Holder, wanted: Wanted, signal: AbortSignal): Promise<HandRef>;
  /** Clones what the sandbox does not have yet; takes as long as that does. What is there already stays as it is. */
  prepare(holder: Holder, hand: HandRef, ask: PrepareAsk, signal: AbortSignal): Promise<readonly Prepared[]>;
  /** The tools of a hand that is an MCP server; connects if it must. */
  listTools(holder: Holder, hand: HandRef, ask: ListAsk, signal: AbortSignal): Promise<ServerTools>;
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
  /** Gives a session's hands back; files, processes and connections go. Absent: nothing happens. */
  release(session: SessionId, host: string, signal: AbortSignal): Promise<void>;
  /** The servers that the operator of the local hand host named, by name. */
  configured(signal: AbortSignal): Promise<readonly string[]>;
  /** The sessions that a hand host has hands for. */
  instances(host: string, signal: AbortSignal): Promise<readonly { readonly hand: string; readonly session: SessionId }[]>;
}
