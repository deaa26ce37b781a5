// What a sandbox and its thread say to each other.

import type { ResultBlock } from "../../session-store/events/content.ts";
import type { SandboxCall } from "../sandbox.ts";

/** What a shell carries from one call to the next. */
export interface ShellState {
  readonly cwd: string;
  readonly variables: Readonly<Record<string, string>>;
}

export interface ToThread extends SandboxCall {
  /** Null: a fresh shell. */
  readonly shell: ShellState | null;
}

export interface Answer {
  readonly content: readonly ResultBlock[];
  readonly isError: boolean;
}

export interface FromThread {
  readonly id: string;
  readonly answer: Answer;
  /** After a bash call: what the next one starts with. */
  readonly shell?: ShellState | null;
}

/** An expected "no" of a tool, worded for the model. */
export class ToolError extends Error {
  override readonly name = "ToolError";
}

export const says = (text: string, isError = false): Answer => ({ content: [{ type: "text", text: text.toWellFormed() }], isError });
