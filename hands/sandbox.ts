// A sandbox: what runs a hand's tools, and the driver that makes one. The hand host knows nothing else about either.
//
//   B1  A call's files outlive the sandbox; its processes don't. Opening the same folder again finds the files.
//   B2  `run` gives an outcome for whatever the tool does: it rejects only for a bug.
//   B3  Every call ends by itself: at its own time-out, or by `cancel` or `stop`, and nothing of it goes on running.
//   B4  Opening costs nothing: what a sandbox needs is started by the first call.

import type { Holder, Outcome, Prepared, RepositoryWanted, WayOut } from "./hand.ts";
import type { HandTool } from "./toolset.ts";

export interface SandboxCall {
  readonly id: string;
  readonly tool: HandTool;
  /** Already read by the tool's schema. */
  readonly input: unknown;
}

export interface Sandbox {
  run(call: SandboxCall): Promise<Outcome>;
  /** Clones what is not there yet; absent: it has no git. */
  prepare?(repositories: readonly RepositoryWanted[]): Promise<readonly Prepared[]>;
  /** Ends a running call, which then comes to `failed` with this reason. One that is over or unknown: nothing happens. */
  cancel(toolUseId: string, reason: string): void;
  /** Ends everything that runs; running calls come to `failed` with this reason. The next `run` starts anew on the same files. */
  stop(reason: string): Promise<void>;
  /** Time (ms) of the last call's end; null while one runs or when nothing is kept running. */
  idleSince(): number | null;
}

export interface SandboxDriver {
  readonly name: string;
  /** Names of the drivers whose hands this one goes on with: a hand that was made behind a wall is never opened without one. */
  readonly takes: readonly string[];
  /**
   * `isAdopted`: the folder was used before this host started, so its shell is a new one; the next bash result says so. The hand is named by its
   * folder; `session` is whom it was made for.
   */
  open(folder: string, isAdopted: boolean, session?: string): Sandbox;
  /** From now on the session's sandbox may go out by this. A driver whose sandboxes have no network has none. */
  admit?(holder: Holder, wayOut: WayOut): void;
  /**
   * Removes what this host's sandboxes left outside of their folders and no hand owns; tried again at every sweep. Gives the hands of which
   * something still runs; null: not all of it could be done, and it is to be tried again soon. Once before the first `open`, `isStart`: what is left
   * of an earlier run of the host can't be at work then.
   */
  sweep?(isOwned: (hand: string) => boolean, isStart: boolean): Promise<readonly string[] | null>;
  /** Removes what a hand has outside of its folder. False: it can't be done now, and the folder must stay. */
  remove?(hand: string): Promise<boolean>;
}
