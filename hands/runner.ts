// What runs the calls of one hand: a sandbox, or a connection to an MCP server.
//
//   R1  `run` gives an outcome for whatever the tool does: it rejects only for a bug.
//   R2  Every call ends by itself: at a time-out, or by `cancel` or `stop`.

import type { Outcome, Prepared, RepositoryWanted } from "./hand.ts";

export interface RunnerCall {
  readonly id: string;
  readonly tool: string;
  readonly input: unknown;
  /** As in a ToolUse. */
  readonly pin?: string;
}

export interface Runner {
  run(call: RunnerCall): Promise<Outcome>;
  /** Clones what is not there yet; absent: it has no git. */
  prepare?(repositories: readonly RepositoryWanted[]): Promise<readonly Prepared[]>;
  /** Ends a running call, which then comes to `failed` with this reason. One that is over or unknown: nothing happens. */
  cancel(toolUseId: string, reason: string): void;
  /** Ends everything that runs; the next `run` starts anew. */
  stop(reason: string): Promise<void>;
  /** Time (ms) of the last call's end; null while one runs or when nothing is kept running. */
  idleSince(): number | null;
}
