// What a tool says to the model.

import type { ResultBlock } from "../../session-store/events/content.ts";

export interface Answer {
  readonly content: readonly ResultBlock[];
  readonly isError: boolean;
}

/** An expected "no" of a tool, worded for the model. */
export class ToolError extends Error {
  override readonly name = "ToolError";
}

export const says = (text: string, isError = false): Answer => ({ content: [{ type: "text", text: text.toWellFormed() }], isError });
