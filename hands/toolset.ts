// The built-in toolset as the model sees it: names, descriptions, input schemas, in a fixed order.
//
//   T1  The list is the same object, in the same order, at every call: a prompt that holds it stays byte-stable.
//   T2  What a tool may do is said once, here: read-only tools may overlap and run again, idempotent ones may run again, others never.

import { z } from "zod";
import { FILE_TOOL_TIMEOUT_MS, GLOB_PATHS_MAX, GREP_LINES_MAX, OUTPUT_CHARS_MAX, TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX } from "./limits.ts";

/** Every name that an agent's configuration may mention. `web_fetch` and `web_search` are run by no hand: they have no descriptor here. */
export const TOOLSET_NAMES = ["bash", "read", "write", "edit", "glob", "grep", "web_fetch", "web_search"] as const;
export type ToolsetName = (typeof TOOLSET_NAMES)[number];

/** The tools that a hand runs. */
export const HAND_TOOLS = ["bash", "read", "write", "edit", "glob", "grep"] as const satisfies readonly ToolsetName[];
export type HandTool = (typeof HAND_TOOLS)[number];

const path = z
  .string()
  .min(1)
  .max(4_096)
  .refine((text) => !text.includes("\0"), "a path holds no NUL");

/** What the model sends, checked. Unknown fields are refused by name, so that a misspelt one is not lost. */
export const TOOL_INPUTS = {
  bash: z
    .strictObject({
      command: z.string().max(1_000_000).optional(),
      restart: z.boolean().optional(),
      timeout_ms: z.number().int().min(1).max(TIMEOUT_MS_MAX).optional(),
    })
    .refine((input) => input.restart === true || (input.command ?? "") !== "", "give a command, or restart: true"),
  read: z.strictObject({ file_path: path, view_range: z.tuple([z.number().int().min(1), z.number().int()]).optional() }),
  write: z.strictObject({ file_path: path, content: z.string() }),
  edit: z.strictObject({ file_path: path, old_string: z.string().min(1), new_string: z.string(), replace_all: z.boolean().optional() }),
  glob: z.strictObject({ pattern: z.string().min(1).max(4_096), path: path.optional() }),
  grep: z.strictObject({ pattern: z.string().min(1).max(10_000), path: path.optional() }),
} as const satisfies Record<HandTool, z.ZodType>;

export type ToolInput<T extends HandTool> = z.infer<(typeof TOOL_INPUTS)[T]>;

export interface ToolsetDescriptor {
  readonly name: HandTool;
  readonly description: string;
  readonly input_schema: Readonly<Record<string, unknown>>;
  readonly isReadOnly: boolean;
  readonly isIdempotent: boolean;
}

const text = (description: string) => ({ type: "string", description });

/** T1 T2 */
export const TOOLSET: readonly ToolsetDescriptor[] = [
  {
    name: "bash",
    description: [
      "Runs a command in the session's shell and returns what it printed; a non-zero exit code is given on the last line.",
      "The working directory (at first /workspace) and plain variables are kept from one call to the next.",
      "Functions, aliases, arrays, shell options and background jobs are never kept: a job started with & ends when its command returns.",
      "Files in /workspace stay. Files from the user are in /mnt/session/uploads; put what the user is to get into /mnt/session/outputs.",
      `A command is ended after timeout_ms (${TIMEOUT_MS_DEFAULT} by default, at most ${TIMEOUT_MS_MAX}). There is no network, no terminal and no input: use non-interactive forms.`,
      `Output over ${OUTPUT_CHARS_MAX} characters is shortened in the middle and kept whole in a file whose path is given.`,
      "restart: true gives a fresh shell: directory and variables are reset, files stay.",
    ].join(" "),
    input_schema: {
      type: "object",
      properties: {
        command: text("The command to run."),
        restart: { type: "boolean", description: "Start a fresh shell first; a command given with it runs in the fresh shell." },
        timeout_ms: { type: "integer", minimum: 1, maximum: TIMEOUT_MS_MAX, description: "Milliseconds after which the command is ended." },
      },
      additionalProperties: false,
    },
    isReadOnly: false,
    isIdempotent: false,
  },
  {
    name: "read",
    description: [
      "Reads a file: text as it is, without line numbers; PNG, JPEG, GIF and WebP pictures as pictures; PDF files as documents.",
      "Relative paths start at /workspace. Use view_range for parts of a long file.",
    ].join(" "),
    input_schema: {
      type: "object",
      properties: {
        file_path: text("The file to read."),
        view_range: {
          type: "array",
          items: { type: "integer" },
          minItems: 2,
          maxItems: 2,
          description: "[first line, last line], counted from 1; a last line of 0 or less means to the end. Text files only.",
        },
      },
      required: ["file_path"],
      additionalProperties: false,
    },
    isReadOnly: true,
    isIdempotent: true,
  },
  {
    name: "write",
    description: "Writes a whole text file, replacing what was there; missing folders are made. Relative paths start at /workspace.",
    input_schema: {
      type: "object",
      properties: { file_path: text("The file to write."), content: text("All of its new content.") },
      required: ["file_path", "content"],
      additionalProperties: false,
    },
    isReadOnly: false,
    isIdempotent: true,
  },
  {
    name: "edit",
    description: [
      "Replaces a piece of a text file. old_string must match exactly, white space included, and must occur once unless replace_all is true;",
      "give enough of the lines around it to make it unique.",
    ].join(" "),
    input_schema: {
      type: "object",
      properties: {
        file_path: text("The file to change."),
        old_string: text("The text to replace, exactly as it is in the file."),
        new_string: text("What stands there afterwards; may be empty."),
        replace_all: { type: "boolean", description: "Replace every occurrence." },
      },
      required: ["file_path", "old_string", "new_string"],
      additionalProperties: false,
    },
    isReadOnly: false,
    isIdempotent: false,
  },
  {
    name: "glob",
    description: `Finds files by name: ** spans folders, * and ? stay within one, {a,b} and [abc] choose. Newest first, at most ${GLOB_PATHS_MAX} paths.`,
    input_schema: {
      type: "object",
      properties: { pattern: text("For example **/*.ts."), path: text("The folder to look in; /workspace if absent.") },
      required: ["pattern"],
      additionalProperties: false,
    },
    isReadOnly: true,
    isIdempotent: true,
  },
  {
    name: "grep",
    description: `Finds lines in text files by a regular expression (JavaScript syntax). Gives path:line:text, at most ${GREP_LINES_MAX} lines.`,
    input_schema: {
      type: "object",
      properties: { pattern: text("The regular expression."), path: text("The file or folder to search; /workspace if absent.") },
      required: ["pattern"],
      additionalProperties: false,
    },
    isReadOnly: true,
    isIdempotent: true,
  },
];

export function descriptorOf(name: string): ToolsetDescriptor | undefined {
  return TOOLSET.find((tool) => tool.name === name);
}

/** After how many milliseconds a call is ended. */
export function timeoutOf(tool: HandTool, input: unknown): number {
  return tool === "bash" ? (TOOL_INPUTS.bash.parse(input).timeout_ms ?? TIMEOUT_MS_DEFAULT) : FILE_TOOL_TIMEOUT_MS;
}
