// What a sandbox and its thread say to each other.

import type { SandboxCall } from "../sandbox.ts";
import type { Answer } from "../tools/answer.ts";

/** What a shell carries from one call to the next. */
export interface ShellState {
  readonly cwd: string;
  readonly variables: Readonly<Record<string, string>>;
}

export interface ToThread extends SandboxCall {
  /** Null: a fresh shell. */
  readonly shell: ShellState | null;
}

export interface FromThread {
  readonly id: string;
  readonly answer: Answer;
  /** After a bash call: what the next one starts with. */
  readonly shell?: ShellState | null;
}
